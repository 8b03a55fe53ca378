"""Subjects of one cell as rows of dense arrays, with the models that follow their slots."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.frame import stacked
from flyball_contracts.metrics import Layout
from flyball_contracts.records import Tick
from flyball_models import bucket
from flyball_streams.engine.node.slot_model import SlotModel
from flyball_streams.engine.node.window import Means, Window


class SubjectTable:
    """Slots of subjects (devices or hosts) and this tick's values, ``float32[capacity, metrics]``.

    Capacity is padded, so a growing fleet compiles only a few shapes. A retired subject keeps its slot and history
    until a new subject needs it. ``means`` are those of the window that ended with this tick, if any subject was seen
    in it. ``phase`` shifts the ends of windows, in ticks. ``models`` follow the slots.
    """

    def __init__(self, layout: Layout, capacity: int = 0, phase: int = 0) -> None:
        self.layout = layout
        self.models: Sequence[SlotModel[Any]] = ()
        self.slots: dict[str, int] = {}
        self.names: list[str] = []
        self.owner: list[str] = []
        self.retired: dict[str, None] = {}
        self._size(bucket(capacity))
        self.window = Window(self.capacity, len(layout), phase)
        self.means: Means | None = None

    @property
    def capacity(self) -> int:
        """Padded number of slots."""
        return len(self.mask)

    def rows(self, names: tuple[str, ...], node: str) -> NDArray[np.int64]:
        """Slots of some subjects of a node, ``int64[len(names)]``; new subjects get new ones."""
        recycled: list[int] = []
        for name in names:
            if name not in self.slots:
                self._add(name, recycled)
            self.retired.pop(name, None)
            self.owner[self.slots[name]] = node
        if len(self.names) > self.capacity:
            self._grow(bucket(len(self.names)))
        if recycled:
            self.window.forget(recycled)
            for model in self.models:
                model.reset(recycled)
        return np.array([self.slots[name] for name in names], np.int64)

    def reserve(self, names: Iterable[str]) -> None:
        """Make room for all subjects at once: growing node by node would compile every size."""
        new = sum(name not in self.slots for name in names)
        wanted = len(self.names) + new - len(self.retired)
        if wanted > self.capacity:
            self._grow(bucket(wanted))

    def retire(self, names: Iterable[str], node: str) -> list[str]:
        """Retire subjects that their node no longer has, unless another node has them by now; return those retired."""
        gone = [name for name in names if name in self.slots and self.owner[self.slots[name]] == node]
        self.retired.update(dict.fromkeys(gone))
        for model in self.models:
            model.retire(gone)
        return gone

    def change_work(self, kinds: dict[int, str]) -> None:
        """Note that allocations have changed; ``kinds`` maps slots whose work has changed to the new kinds of work."""
        if kinds:
            self.window.forget(list(kinds))
        for model in self.models:
            model.change_work(kinds)

    def clear(self) -> None:
        """Start a tick: every value missing, in new arrays, as the old ones are read later."""
        self.values, self.mask = self._missing.copy(), np.zeros(self.capacity, bool)

    def put(self, blocks: Sequence[tuple[NDArray[np.int64], bytes]]) -> None:
        """Set values: pairs of slots ``int64[n]`` and the block of a frame with n rows; a slot's last row counts."""
        if blocks:
            rows = np.concatenate([rows for rows, _ in blocks])
            self.values[rows] = stacked([block for _, block in blocks], self.layout)
            self.mask[rows] = True

    def end_tick(self, tick: Tick) -> None:
        """Add the values of this tick to the window."""
        n = len(self.names)
        means = self.window.add(self.values[:n], self.mask[:n], tick)
        self.means = means if means is not None and means.mask.any() else None

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "names": self.names,
            "owner": self.owner,
            "retired": list(self.retired),
            "capacity": self.capacity,
            "window": self.window.state(),
            "models": [model.state() for model in self.models],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.names, self.owner = list(state["names"]), list(state["owner"])
        self.slots = {name: i for i, name in enumerate(self.names)}
        self.retired = dict.fromkeys(state["retired"])
        self._size(state["capacity"])
        self.window.load(state["window"])
        for model, kept in zip(self.models, state["models"], strict=True):
            model.load(kept, self.capacity)

    def _add(self, name: str, recycled: list[int]) -> None:
        slot = len(self.names)
        if slot >= self.capacity and self.retired:
            oldest = next(iter(self.retired))
            del self.retired[oldest]
            slot = self.slots.pop(oldest)
            self.names[slot] = name
            recycled.append(slot)
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
        self.window.resize(capacity)
        for model in self.models:
            model.resize(capacity)
