"""Subjects of one cell as rows of dense arrays, and the anomaly score of their watched metrics."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import Layout
from flyball_models import bucket
from flyball_models.anomaly import record_ratio
from flyball_streams.engine.packing import arrays


class SubjectTable:
    """Slots of subjects (devices or hosts) and this tick's values, ``float32[capacity, metrics]``.

    Capacity is padded, so a growing fleet compiles a few shapes only. A subject keeps its slot for good: its history
    is there when it comes back. ``watched`` gives for each metric the change, in its unit, that is worth a word: for a
    reading that never moved any step is a record.
    """

    def __init__(self, layout: Layout, watched: Mapping[str, float], capacity: int = 0) -> None:
        self.layout = layout
        self.watched = tuple(watched)
        self.columns = np.array([layout.column(key) for key in watched], np.int64)
        self.floors = np.array(list(watched.values()), np.float32)
        self.slots: dict[str, int] = {}
        self.names: list[str] = []
        self.owner: list[str] = []
        self._size(bucket(capacity))
        self.scores = record_ratio.init(self.capacity * len(watched))

    @property
    def capacity(self) -> int:
        """Padded number of slots."""
        return len(self.mask)

    def rows(self, names: tuple[str, ...], node: str) -> NDArray[np.int64]:
        """Slots of some subjects of a node, made where they are new; ``int64[len(names)]``."""
        for name in names:
            if name not in self.slots:
                self.slots[name] = len(self.names)
                self.names.append(name)
                self.owner.append(node)
        if len(self.names) > self.capacity:
            self._grow(bucket(len(self.names)))
        return np.array([self.slots[name] for name in names], np.int64)

    def clear(self) -> None:
        """Start a tick: every value missing."""
        self.values.fill(np.nan)
        self.mask.fill(False)

    def score(self, hour: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Learn this tick; scores and expectations, ``float32[capacity, watched]``. ``hour`` is 0..23, UTC."""
        x = self.values[:, self.columns].reshape(-1)
        mask = np.repeat(self.mask, len(self.watched))
        self.scores, result = record_ratio.step(self.scores, x, mask, np.array(hour, np.int32))
        shape = (self.capacity, len(self.watched))
        score, expected = np.asarray(result.score).reshape(shape), np.asarray(result.expected).reshape(shape)
        away = np.abs(self.values[:, self.columns] - expected)
        return np.where(away >= self.floors, score, np.float32(0)), expected

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {"names": self.names, "owner": self.owner, "capacity": self.capacity, "scores": arrays(self.scores)}

    def load(self, state: dict[str, Any]) -> None:
        """Take on the state of a snapshot."""
        self.names, self.owner = list(state["names"]), list(state["owner"])
        self.slots = {name: i for i, name in enumerate(self.names)}
        self._size(state["capacity"])
        self.scores = record_ratio.State(*state["scores"])

    def _size(self, capacity: int) -> None:
        self.values = np.full((capacity, len(self.layout)), np.nan, np.float32)
        self.mask = np.zeros(capacity, bool)

    def _grow(self, capacity: int) -> None:
        values, mask = self.values, self.mask
        self._size(capacity)
        self.values[: len(mask)], self.mask[: len(mask)] = values, mask
        self.scores = record_ratio.resize(self.scores, capacity * len(self.watched))
