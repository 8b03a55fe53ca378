"""An outbox without Kafka, for nodes that are only scraped, or only send OTLP."""

from flyball_collectors.spool import SpoolStats
from flyball_contracts.codec import Message


class NullOutbox:
    """Accepts messages and drops them, without counting them."""

    sent = carried = delivered = dropped = spooled = 0
    spool_stats: SpoolStats | None = None

    def send(self, message: Message) -> None:
        """Drop one message."""

    def poll(self) -> None:
        """Do nothing: nothing waits."""

    def settle(self) -> None:
        """Do nothing: nothing is in flight."""

    def close(self) -> None:
        """Do nothing."""
