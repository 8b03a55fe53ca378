"""What has counted in the last ticks of a cell, so that it counts once however often it is published."""

from collections.abc import Iterable

import msgspec

from flyball_contracts.ids import NS_PER_S

KEPT_NS = 600 * NS_PER_S
"""Event time that a lane may publish again after a crash: it snapshots every 30 s."""
MOST = 1 << 14


class RecentlyCounted(msgspec.Struct):
    """Names and the ticks in which they counted, the oldest first; state for a snapshot.

    Names that counted in tick ``forgotten`` or before may be missing.
    """

    ticks: dict[str, int] = {}
    forgotten: int = -1

    def __contains__(self, name: str) -> bool:
        return name in self.ticks

    def add(self, names: Iterable[str], index: int) -> None:
        """Note that names count in a tick."""
        for name in names:
            self.ticks.pop(name, None)
            self.ticks[name] = index

    def forget(self, index: int, period_ns: int) -> None:
        """Remove names that are too old or too many when tick ``index`` closes."""
        kept = KEPT_NS // period_ns
        if index + kept < self.forgotten:  # the cell's clock was set back
            self.ticks, self.forgotten = {}, -1
        self.forgotten = max(self.forgotten, index - kept)
        while self.ticks:
            name, counted_at = next(iter(self.ticks.items()))
            if counted_at > self.forgotten and len(self.ticks) <= MOST:
                break
            del self.ticks[name]
            self.forgotten = max(self.forgotten, counted_at)
