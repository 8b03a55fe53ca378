"""Deterministic identifiers: the same cause gives the same id, in a live run and in a replay."""

from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL: 4 MiB of each agent
from functools import lru_cache

NS_PER_S = 1_000_000_000
MAX_TIME_NS = 2**63 - 1  # the year 2262; also what 64-bit readers can hold


def record_id(*parts: str | int) -> str:
    """Hash what a record is about and the event-time tick that caused it.

    The result is 32 lower-case hexadecimal digits (128 bits of BLAKE2b). Parts are length-prefixed,
    so ``("ab", "c")`` and ``("a", "bc")`` differ. It is the CloudEvents ``id`` and the idempotency key.
    """
    return blake2b(b"".join(map(_prefixed, parts)), digest_size=16).hexdigest()


def decision_id(cell: str, subject: str, tick_ns: int, ordinal: int = 0) -> str:
    """Identify the decision number ``ordinal`` about one subject in one event-time tick of a cell.

    The content of the decision is not part of it: whatever a restarted lane decides again, one (subject, tick, ordinal)
    is one decision, and has at most one effect.
    """
    return record_id("Decision", cell, subject, tick_ns, ordinal)


@lru_cache(maxsize=1 << 14, typed=True)  # kinds, cells, subjects and the tick come again and again
def _prefixed(part: str | int) -> bytes:
    raw = str(part).encode()
    return len(raw).to_bytes(4, "little") + raw
