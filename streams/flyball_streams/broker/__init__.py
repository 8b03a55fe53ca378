"""A broker for the demo that needs no installation.

`faust_on_mock` is imported by its own name, so that this package does not import Faust.
"""

from flyball_streams.broker.embedded import EmbeddedBroker

__all__ = ["EmbeddedBroker"]
