"""Deterministic identifiers: the same cause gives the same id, in a live run and in a replay."""

from hashlib import blake2b

NS_PER_S = 1_000_000_000
MAX_TIME_NS = 2**63 - 1  # the year 2262; also what 64-bit readers can hold


def record_id(*parts: str | int) -> str:
    """Hash what a record is about and the event-time tick that caused it.

    The result is 32 lower-case hexadecimal digits (128 bits of BLAKE2b). Parts are length-prefixed,
    so ``("ab", "c")`` and ``("a", "bc")`` differ. It is the CloudEvents ``id`` and the idempotency key.
    """
    raws = [str(part).encode() for part in parts]
    return blake2b(b"".join([len(raw).to_bytes(4, "little") + raw for raw in raws]), digest_size=16).hexdigest()


def tick_of(time_ns: int, period_ns: int) -> int:
    """Index of the event-time tick that holds ``time_ns``, for ticks of ``period_ns`` nanoseconds."""
    return time_ns // period_ns
