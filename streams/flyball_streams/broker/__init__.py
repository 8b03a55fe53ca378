"""A broker for the demo that needs no installation."""

from flyball_streams.broker.embedded import EmbeddedBroker as EmbeddedBroker
