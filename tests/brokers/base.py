"""The interface of both brokers, so that one test runs on either."""

from collections.abc import Mapping
from typing import Protocol


class Broker(Protocol):
    """A running broker on loopback."""

    @property
    def bootstrap(self) -> str:
        """`host:port` for `bootstrap.servers`."""
        ...

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create topics, name to number of partitions; `TransportError` when one is refused."""
        ...

    def set_down(self) -> None:
        """Cut every connection and accept no new one until `set_up`; acknowledged data stay."""
        ...

    def set_up(self) -> None:
        """Accept connections again, at the same address."""
        ...

    def close(self) -> None:
        """End the broker; a second call does nothing."""
        ...
