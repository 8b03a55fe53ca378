"""The rate limit of decisions: one per target and interval, except where a device fails or nothing runs.

A proposal that waits is not lost: it is repeated, and decided when the interval is over. As the next decision is an
interval away, growth is decided once the number of replicas has stopped rising: the start of a burst, or of its
backlog, shows only a fraction of the replicas that it will take.

A target whose growth needs the room of others waits until their intervals are over, for one interval at most: each of
them is due once within that time, but meanwhile a decision about another one may start a new interval.
"""

import msgspec

from flyball_contracts.ids import NS_PER_S

SETTLES = 0.25
"""Growth waits for at most this share of the interval."""
STEADY = 1.0 / 3.0
"""Share of that wait after which a number that has not risen is final; demand is known every 5 s."""


class Rising(msgspec.Struct):
    """Wanted growth of a target: since when, the most replicas and since when, and the last tick that wanted it."""

    since_ns: int
    replicas: int
    rose_ns: int
    seen_ns: int


class WaitForVictims(msgspec.Struct):
    """The wait of a target until others, whose room it needs, are due: its first tick, and the last one so far."""

    since_ns: int
    seen_ns: int


class RateLimit:
    """The limit of one tick; ``decided``, ``rescued``, ``rising`` and ``waits`` are parts of a snapshot.

    ``decided`` is the time of the last decision about each target that later decisions wait for, in ns, and ``rescued``
    that of the last rescue among them. ``waits`` are targets that wait for other targets. Targets whose interval is
    over at ``now`` are dropped, and so are growth that is not wanted any more and waits that were not seen for an
    interval, or for a tick of ``period_ns`` where that is longer.
    """

    def __init__(
        self,
        decided: dict[str, int],
        rescued: dict[str, int],
        rising: dict[str, Rising],
        waits: dict[str, WaitForVictims],
        interval_s: float,
        now: int,
        period_ns: int,
    ) -> None:
        self._decided = decided
        self._rescued = rescued
        self._rising = rising
        self._waits = waits
        self._now = now
        self._interval_ns = round(interval_s * NS_PER_S)
        self._kept_ns = max(self._interval_ns, period_ns)
        self._settles_ns = round(SETTLES * interval_s * NS_PER_S)
        for target in [target for target in decided if self.is_due(target)]:
            del decided[target]
        for target in [name for name, at in rescued.items() if not 0 <= now - at < 2 * self._interval_ns]:
            del rescued[target]
        for target in [name for name, known in rising.items() if not 0 <= now - known.seen_ns <= self._settles_ns]:
            del rising[target]
        for target in [name for name, known in waits.items() if not self._is_kept(known)]:
            del waits[target]

    def is_due(self, target: str) -> bool:
        """Whether the interval since the last decision about a target is over."""
        last = self._decided.get(target)
        return last is None or not 0 <= self._now - last < self._interval_ns

    def is_of_this_tick(self, target: str) -> bool:
        """Whether a decision about a target that later decisions wait for was made in this tick."""
        return self._decided.get(target) == self._now

    def has_waited(self, target: str) -> bool:
        """Whether a target has waited for other targets as long as it has to."""
        known = self._waits.get(target)
        return known is not None and self._now - known.since_ns >= self._interval_ns

    def note_wait(self, target: str) -> None:
        """Note that a target waits for other targets; the wait starts once its own interval is over."""
        known = self._waits.get(target)
        if known is not None:
            known.seen_ns = self._now
        elif self.is_due(target):
            self._waits[target] = WaitForVictims(self._now, self._now)

    def end_wait(self, target: str) -> None:
        """Note that a target got its room, or does not need it any more."""
        self._waits.pop(target, None)

    def is_rising(self, target: str, replicas: int, period_ns: int) -> bool:
        """Whether a target that is to grow to ``replicas`` may need more, and the next tick can show it in time."""
        now, known = self._now, self._rising.get(target)
        if known is None:
            known = self._rising[target] = Rising(now, 0, now, now)
        known.seen_ns = now
        if replicas > known.replicas:
            known.replicas, known.rose_ns = replicas, now
        in_time = now + period_ns - known.since_ns <= self._settles_ns
        return in_time and now - known.rose_ns < STEADY * self._settles_ns

    def note(self, target: str) -> None:
        """Note a decision about a target."""
        self._decided[target] = self._now
        self._rising.pop(target, None)

    def note_rescue(self, target: str) -> None:
        """Note a rescue, which waited for nothing.

        Other decisions about its target wait for it, but only in every other interval, so that a series of faults does
        not hold them up forever.
        """
        if target not in self._decided and target not in self._rescued:
            self._decided[target] = self._rescued[target] = self._now

    def _is_kept(self, wait: WaitForVictims) -> bool:
        return wait.since_ns <= wait.seen_ns <= self._now <= wait.seen_ns + self._kept_ns
