"""The rate limit of decisions: one per target and interval, except in an emergency.

An emergency is a device that fails, room that others lack, or far more replicas than there are or were ordered. A
proposal that waits is not lost: it is repeated, and decided when the interval is over.
"""

from flyball_contracts.ids import NS_PER_S

SHORTAGE = 0.25
"""A workload that must grow by more than this share of its replicas does not wait."""


class RateLimit:
    """The time of the last decision about each target, ``decided``, in ns; it is part of a snapshot.

    Targets whose interval is over at ``now`` are dropped.
    """

    def __init__(self, decided: dict[str, int], interval_s: float, now: int) -> None:
        self._decided = decided
        self._interval_ns = round(interval_s * NS_PER_S)
        for target in [target for target in decided if self.is_due(target, now)]:
            del decided[target]

    def is_due(self, target: str, now: int) -> bool:
        """Whether the interval since the last decision about a target is over."""
        last = self._decided.get(target)
        return last is None or not 0 <= now - last < self._interval_ns

    def note(self, target: str, now: int) -> None:
        """Note a decision about a target."""
        self._decided[target] = now


def is_short(before: int, after: int) -> bool:
    """Whether a workload that gets ``after`` replicas instead of ``before`` lacked so many that it cannot wait."""
    return after - before > SHORTAGE * before
