"""How far the node lanes are, so that no tick is drawn before all of them have reported it."""

from flyball_contracts.records import DemandTick

UNSETTLED = 5
"""The page waits for a lane that is this many ticks behind; a lane that is further behind may have ended."""


class Progress:
    """The newest tick that each lane has completed, as one partition of the demand topic reports it."""

    def __init__(self) -> None:
        self._ends_ns: dict[str, int] = {}
        self._period_ns = 0

    def add(self, record: DemandTick) -> None:
        """Note a message of a lane; a lane that repeats its last ticks after a restart is not behind."""
        self._period_ns, end_ns = record.tick.period_ns, record.tick.end_ns
        known_ns = self._ends_ns.get(record.source)
        is_last = record.part == record.parts - 1
        if is_last and (known_ns is None or not 0 <= known_ns - end_ns <= UNSETTLED * self._period_ns):
            self._ends_ns[record.source] = end_ns

    @property
    def period_ns(self) -> int:
        """Length of a tick, 0 before the first."""
        return self._period_ns

    def complete_ns(self) -> int:
        """End of the newest tick that is complete, 0 without any."""
        newest_ns = max(self._ends_ns.values(), default=0)
        return min((end for end in self._ends_ns.values() if newest_ns - end <= UNSETTLED * self._period_ns), default=0)
