"""Dead letters: the untouched message and why it was refused.

Header names follow Kafka Connect (KIP-298), so existing tools can read them.
"""

from collections.abc import Sequence

from flyball_contracts.cloudevents import Header
from flyball_contracts.codec import Message
from flyball_contracts.topics import DEAD_LETTERS

PREFIX = "__connect.errors."


def dead_letter(
    *,
    topic: str,
    partition: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
    stage: str,
    error: Exception,
) -> Message:
    """Message for the dead-letter topic; ``stage`` is the part that refused it."""
    why: list[Header] = [
        (f"{PREFIX}topic", topic.encode()),
        (f"{PREFIX}partition", str(partition).encode()),
        (f"{PREFIX}offset", str(offset).encode()),
        (f"{PREFIX}stage", stage.encode()),
        (f"{PREFIX}exception.class.name", type(error).__name__.encode()),
        (f"{PREFIX}exception.message", str(error)[:2000].encode("utf-8", "replace")),
    ]
    kept: list[Header] = [(name, value or b"") for name, value in headers]
    return Message(DEAD_LETTERS.name, key or b"", value or b"", kept + why)
