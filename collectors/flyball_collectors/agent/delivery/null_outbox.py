"""Stands in for the way to Kafka where there is none: for nodes that are only scraped, or only send OTLP."""

from flyball_collectors.spool import SpoolStats
from flyball_contracts.codec import Message


class NullOutbox:
    """Takes messages and keeps nothing; as nothing is meant to be sent, nothing is counted either."""

    sent = carried = delivered = dropped = spooled = 0
    spool_stats: SpoolStats | None = None

    def send(self, message: Message) -> None:
        """Forget one message."""
        del message

    def poll(self) -> None:
        """Nothing waits."""

    def settle(self) -> None:
        """Nothing is on its way."""

    def close(self) -> None:
        """Nothing is held."""
