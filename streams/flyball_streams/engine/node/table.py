"""Subjects of one cell as rows of dense arrays, and the anomaly score of their watched metrics."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.frame import stacked
from flyball_contracts.metrics import Layout
from flyball_contracts.records import Tick
from flyball_models import bucket
from flyball_models.anomaly import departure, tail
from flyball_streams.engine.budget import BUDGET_S
from flyball_streams.engine.node.window import Means, Window
from flyball_streams.engine.packing import arrays, like, wiped


class Departure(NamedTuple):
    """Departure of one subject from its baseline, by watched metric; all arrays are ``[watched]``.

    ``rate`` is how often a healthy subject would depart this far, per second, infinite where nothing departs;
    ``since_s`` is the duration of the longest departure.
    """

    slot: int
    rate: NDArray[np.float64]
    value: NDArray[np.float32]
    expected: NDArray[np.float32]
    since_s: float


class SubjectTable:
    """Slots of subjects (devices or hosts) and this tick's values, ``float32[capacity, metrics]``.

    Capacity is padded, so a growing fleet compiles only a few shapes. A retired subject keeps its slot and history
    until a new subject needs it. ``watched`` gives the smallest change of each metric that matters, in its unit.
    ``rate`` is the budget of false departures per subject and second. ``phase`` shifts the ends of windows, in ticks.
    """

    def __init__(
        self, layout: Layout, watched: Mapping[str, float], rate: float, capacity: int = 0, phase: int = 0
    ) -> None:
        self.layout = layout
        self.watched = tuple(watched)
        self.columns = np.array([layout.column(key) for key in watched], np.int64)
        self.floors = np.array(list(watched.values()), np.float32)
        self.slots: dict[str, int] = {}
        self.names: list[str] = []
        self.owner: list[str] = []
        self.retired: dict[str, None] = {}
        self.recycled: list[int] = []
        self._size(bucket(capacity))
        self.window = Window(self.capacity, len(layout), phase)
        self.rate = rate / len(watched)
        self.course = departure.init(self.capacity, len(watched))
        self.tail = tail.init(2 * len(watched), self.rate)

    @property
    def budget(self) -> float:
        """Budget of false departures in a thousand GPU-days."""
        return self.rate * len(self.watched) * BUDGET_S

    @property
    def capacity(self) -> int:
        """Padded number of slots."""
        return len(self.mask)

    def rows(self, names: tuple[str, ...], node: str) -> NDArray[np.int64]:
        """Slots of some subjects of a node, ``int64[len(names)]``; new subjects get new ones.

        ``recycled`` lists slots that belong to other subjects now: other state by slot must be reset there.
        """
        self.recycled = []
        for name in names:
            if name not in self.slots:
                self._add(name)
            self.retired.pop(name, None)
            self.owner[self.slots[name]] = node
        if len(self.names) > self.capacity:
            self._grow(bucket(len(self.names)))
        if self.recycled:
            self.forget(self.recycled)
        return np.array([self.slots[name] for name in names], np.int64)

    def reserve(self, names: Iterable[str]) -> None:
        """Make room for all subjects at once: growing node by node would compile every size."""
        new = sum(name not in self.slots for name in names)
        wanted = len(self.names) + new - len(self.retired)
        if wanted > self.capacity:
            self._grow(bucket(wanted))

    def retire(self, names: Iterable[str], node: str) -> list[str]:
        """Retire subjects that their node no longer has, except those of another node by now; return the retired."""
        gone = [name for name in names if name in self.slots and self.owner[self.slots[name]] == node]
        self.retired.update(dict.fromkeys(gone))
        return gone

    def clear(self) -> None:
        """Start a tick: every value missing, in new arrays, as the old ones are read later."""
        self.values, self.mask = self._missing.copy(), np.zeros(self.capacity, bool)

    def put(self, blocks: Sequence[tuple[NDArray[np.int64], bytes]]) -> None:
        """Set values: pairs of slots ``int64[n]`` and the block of a frame with n rows; a slot's last row counts."""
        if blocks:
            rows = np.concatenate([rows for rows, _ in blocks])
            self.values[rows] = stacked([block for _, block in blocks], self.layout)
            self.mask[rows] = True

    def forget(self, slots: list[int]) -> None:
        """Reset the baselines of some slots: they hold other subjects, or these do other work."""
        if not slots:
            return
        self.course = wiped(self.course, departure.init(self.capacity, len(self.watched)), slots)
        self.window.forget(slots)

    def means(self, tick: Tick) -> Means | None:
        """Add the values of this tick to the window; return the means when it ends, ``None`` before."""
        n = len(self.names)
        return self.window.add(self.values[:n], self.mask[:n], tick)

    def departures(self, means: Means, group: NDArray[np.int32]) -> Iterator[Departure]:
        """Update baselines with a window; yield departures by slot; ``group`` int32[capacity] numbers peer groups."""
        x = means.values.take(self.columns, axis=1)
        self.course, self.tail, found = departure.step(
            self.course, self.tail, x, means.mask, group, self.floors, means.elapsed_s, self.rate
        )
        if found.ratio.any():  # never negative
            metrics = np.arange(len(self.watched))
            for slot in np.flatnonzero(found.ratio.any(axis=0)).tolist():
                stratum = np.where(self.course.peered[:, slot], metrics, metrics + len(metrics))
                rate = tail.rates(self.tail, stratum, found.ratio[:, slot].astype(np.float64)) * len(metrics)
                rate = np.where(found.ratio[:, slot] > 0, rate, np.inf)
                yield Departure(slot, rate, x[slot], found.expected[:, slot], float(found.since_s[:, slot].max()))

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "names": self.names,
            "owner": self.owner,
            "retired": list(self.retired),
            "capacity": self.capacity,
            "course": arrays(self.course),
            "tail": arrays(self.tail),
            "window": self.window.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.names, self.owner = list(state["names"]), list(state["owner"])
        self.slots = {name: i for i, name in enumerate(self.names)}
        self.retired = dict.fromkeys(state["retired"])
        self._size(state["capacity"])
        self.course = like(departure.init(self.capacity, len(self.watched)), state["course"])
        self.tail = like(self.tail, state["tail"])
        self.window.load(state["window"])

    def _add(self, name: str) -> None:
        slot = len(self.names)
        if slot >= self.capacity and self.retired:
            oldest = next(iter(self.retired))
            del self.retired[oldest]
            slot = self.slots.pop(oldest)
            self.names[slot] = name
            self.recycled.append(slot)
        else:
            self.names.append(name)
            self.owner.append("")
        self.slots[name] = slot

    def _size(self, capacity: int) -> None:
        self._missing = np.full((capacity, len(self.layout)), np.nan, np.float32)
        self.values = self._missing.copy()
        self.mask = np.zeros(capacity, bool)

    def _grow(self, capacity: int) -> None:
        values, mask = self.values, self.mask
        self._size(capacity)
        self.values[: len(mask)], self.mask[: len(mask)] = values, mask
        self.course = departure.resize(self.course, capacity)
        self.window.resize(capacity)
