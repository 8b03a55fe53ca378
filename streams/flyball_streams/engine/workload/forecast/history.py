"""Initial states of a cell's forecasters, fitted to an earlier recording."""

from collections.abc import Callable
from typing import Any, NamedTuple

from flyball_contracts.records import Tick


class History(NamedTuple):
    """States of the models after the series of one cell, as host arrays.

    ``slots`` are those of the workloads ``names`` in the states; ``last_tick`` is the index of the last tick in
    the series, of ``period_ns``.
    """

    names: tuple[str, ...]
    slots: tuple[int, ...]
    period_ns: int
    last_tick: int
    smooth: Any
    bands: Any

    def only(self, wanted: Callable[[str], bool]) -> "History":
        """The same history with the wanted workloads only."""
        kept = [pair for pair in zip(self.names, self.slots, strict=True) if wanted(pair[0])]
        return self._replace(names=tuple(name for name, _ in kept), slots=tuple(slot for _, slot in kept))

    def gap(self, tick: Tick, season: int) -> int:
        """Ticks between the history and ``tick``; if the history ends later, ticks to the same phase of the week."""
        ticks = tick.index - self.last_tick - 1
        return ticks if ticks >= 0 else ticks % max(7 * season, 1)
