"""Brokers for Flyball: one that needs no installation, and a real Apache Kafka.

`faust_on_mock` is imported by its own name, so that this package does not import Faust.
"""

from flyball_streams.broker.base import Broker
from flyball_streams.broker.embedded import EmbeddedBroker
from flyball_streams.broker.faults import ApiKey, Fault
from flyball_streams.broker.kafka import RealKafka

__all__ = ["ApiKey", "Broker", "EmbeddedBroker", "Fault", "RealKafka"]
