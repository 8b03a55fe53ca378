"""Dead letters: the message and why it was refused.

Header names follow Kafka Connect (KIP-298), so existing tools can read them. A message is untouched unless its letter
would be larger than producers and brokers take; then it is cut, and headers ``cut.*`` say what is missing.
"""

from collections.abc import Sequence

from flyball_contracts.cloudevents import Header
from flyball_contracts.codec import Message
from flyball_contracts.topics import DEAD_LETTERS

PREFIX = "__connect.errors."
MOST_BYTES = 900_000
"""Larger letters are cut: by default a producer of librdkafka refuses messages of more than 1,000,000 bytes."""
MOST_KEY_BYTES, MOST_HEADER_BYTES = 64 * 1024, 128 * 1024
_HEADER_BYTES = 10  # at most, for the two lengths of a header
_ROOM_FOR_REASON = 10_000  # 2000 characters of up to 4 bytes, and what was cut


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
    """Message for the dead-letter topic; ``stage`` is the part that refused it.

    A letter has at most ``MOST_BYTES``. Of a message that is too large it holds the first bytes of value and key, and
    those headers for which there is room. Headers ``cut.value.bytes``, ``cut.key.bytes`` and ``cut.headers.bytes``
    state how many bytes each cut part had (with ten more for each header), and the reason states it, too. A letter with
    such a header is not the whole message and must not be sent again.
    """
    reason = str(error)[:2000]
    why: list[Header] = [
        (f"{PREFIX}topic", topic.encode()),
        (f"{PREFIX}partition", str(partition).encode()),
        (f"{PREFIX}offset", str(offset).encode()),
        (f"{PREFIX}stage", stage.encode()),
        (f"{PREFIX}exception.class.name", type(error).__name__.encode()),
    ]
    body, name = value or b"", key or b""
    kept: list[Header] = [(label, text or b"") for label, text in headers]
    had = {"value": len(body), "key": len(name), "headers": _bytes_of(kept)}
    room = MOST_BYTES - _bytes_of(why) - _ROOM_FOR_REASON
    if sum(had.values()) > room:
        name, kept = name[:MOST_KEY_BYTES], _fitting(kept)
        body = body[: room - len(name) - _bytes_of(kept)]
        has = {"value": len(body), "key": len(name), "headers": _bytes_of(kept)}
        cut = [part for part in had if has[part] < had[part]]
        why += [(f"{PREFIX}cut.{part}.bytes", str(had[part]).encode()) for part in cut]
        reason += "".join(f"; its {part} was cut from {had[part]} to {has[part]} bytes" for part in cut)
    why.append((f"{PREFIX}exception.message", reason.encode("utf-8", "replace")))
    return Message(DEAD_LETTERS.name, name, body, kept + why)


def _fitting(headers: Sequence[Header]) -> list[Header]:
    """The headers that fit; none is cut."""
    kept: list[Header] = []
    left = MOST_HEADER_BYTES
    for one in headers:
        if (size := _bytes_of([one])) <= left:
            kept.append(one)
            left -= size
    return kept


def _bytes_of(headers: Sequence[Header]) -> int:
    return sum(len(name.encode("utf-8", "replace")) + len(value) + _HEADER_BYTES for name, value in headers)
