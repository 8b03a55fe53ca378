"""Means over windows of some seconds, for detectors that regard shorter changes as noise."""

from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Tick

WINDOW_NS = 5 * NS_PER_S
"""Departures and hangs last longer; a detector that runs once a window costs a fifth of one that runs every second."""

AT_ONCE = 5
"""Ticks that are added together: operations on small arrays are several times as fast in a row as one per tick."""

BLOCK = 512
"""Subjects whose values are added together: those of more do not stay in the processor's cache between operations."""


class Means(NamedTuple):
    """Means ``float32[subjects, metrics]``, NaN where no value came; ``mask`` marks subjects that were seen at all."""

    values: NDArray[np.float32]
    mask: NDArray[np.bool_]
    elapsed_s: float


class Window:
    """Sums the values of subjects until the window ends.

    ``phase`` shifts the end by some ticks, so that the windows of lanes end in different ticks and spread the load.
    Values are kept as they come and added up to ``AT_ONCE`` ticks at a time.
    """

    def __init__(self, capacity: int, metrics: int, phase: int = 0) -> None:
        self.phase = phase
        self.total = np.zeros((capacity, metrics))
        self.count = np.zeros((capacity, metrics), np.float32)
        self.seen = np.zeros(capacity, bool)
        self.elapsed_ns = 0
        self._kept: list[tuple[NDArray[np.float32], NDArray[np.bool_]]] = []

    def add(self, values: NDArray[np.float32], mask: NDArray[np.bool_], tick: Tick) -> Means | None:
        """Add the values of a tick, NaN where missing; return the means if the window ends with this tick.

        ``values`` may end with the last subject in use; both arrays must not be changed any more.
        """
        self._kept.append((values, mask))
        self.elapsed_ns += tick.period_ns
        ends = not (tick.index + self.phase) % max(1, round(WINDOW_NS / tick.period_ns))
        if ends or len(self._kept) == AT_ONCE:
            self._add_kept()
        if not ends:
            return None
        with np.errstate(invalid="ignore"):
            means = Means((self.total / self.count).astype(np.float32), self.seen, self.elapsed_ns / NS_PER_S)
        self.total, self.count = np.zeros_like(self.total), np.zeros_like(self.count)
        self.seen, self.elapsed_ns = np.zeros_like(self.seen), 0
        return means

    def forget(self, slots: list[int]) -> None:
        """Drop the values of slots that hold other subjects now, or whose work has changed."""
        self._add_kept()
        self.total[slots], self.count[slots], self.seen[slots] = 0.0, 0.0, False

    def resize(self, capacity: int) -> None:
        """Make room for more subjects."""
        self._add_kept()
        more = capacity - len(self.seen)
        self.total = np.pad(self.total, ((0, more), (0, 0)))
        self.count = np.pad(self.count, ((0, more), (0, 0)))
        self.seen = np.pad(self.seen, (0, more))

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        self._add_kept()
        return {"total": self.total, "count": self.count, "seen": self.seen, "elapsed_ns": self.elapsed_ns}

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.total, self.count, self.seen = (np.array(state[name]) for name in ("total", "count", "seen"))
        self.elapsed_ns = state["elapsed_ns"]
        self._kept = []

    def _add_kept(self) -> None:
        """Add the kept ticks; ticks in a row with the same number of subjects are added together."""
        for n, ticks in groupby(self._kept, lambda kept: len(kept[1])):
            values, masks = zip(*ticks, strict=True)
            for first in range(0, n, BLOCK):
                block = slice(first, min(first + BLOCK, n))
                stacked, total = np.array([one[block] for one in values]), self.total[block]
                known = np.isfinite(stacked)
                np.copyto(stacked, np.float32(0.0), where=~known)
                for one in stacked:
                    total += one
                self.count[block] += np.add.reduce(known.view(np.int8), axis=0, dtype=np.int8)  # AT_ONCE at most
            self.seen[:n] |= np.logical_or.reduce(masks)
        self._kept.clear()
