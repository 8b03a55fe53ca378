"""What every Kafka client of Flyball shares: settings, what is told of failures, and where partitions end."""

from flyball_contracts.kafka.log import ClientLog as ClientLog, Storms as Storms
from flyball_contracts.kafka.offsets import Bounds as Bounds, Place as Place, bounds as bounds, ends as ends
from flyball_contracts.kafka.settings import (
    Settings as Settings,
    consumer_settings as consumer_settings,
    producer_settings as producer_settings,
)
