"""Shared parts of all Kafka clients: settings, constructors, logging of failures, and partition offsets."""

from flyball_contracts.kafka.clients import (
    open_admin as open_admin,
    open_consumer as open_consumer,
    open_producer as open_producer,
)
from flyball_contracts.kafka.log import ClientLog as ClientLog, RepeatFilter as RepeatFilter
from flyball_contracts.kafka.metadata import list_topics as list_topics, raise_if_stopped as raise_if_stopped
from flyball_contracts.kafka.offsets import Bounds as Bounds, Place as Place, bounds as bounds, ends as ends
from flyball_contracts.kafka.settings import (
    REFUSED as REFUSED,
    Settings as Settings,
    consumer_settings as consumer_settings,
    producer_settings as producer_settings,
)
