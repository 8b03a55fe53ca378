"""Devices that hang, told as one incident for each workload: the ranks of a gang wait together."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import GPU
from flyball_models.anomaly import hang
from flyball_streams.engine.node.tenancy import POWER, UTILIZATION
from flyball_streams.engine.packing import arrays, like, wiped

SM_ACTIVITY = GPU.column("nvidia.gpu.sm.activity")
POWER_LIMIT = GPU.column("nvidia.gpu.power.limit{type=enforced}")
AGAIN_S = 300.0


class Hang(NamedTuple):
    """Slots of one workload that hang, the first slot of its own, and since when, s."""

    workload: int
    slots: list[int]
    since_s: float


class Hangs:
    """Follows the devices of one cell; ``told`` is when each workload was told last, in ns of event time."""

    def __init__(self, capacity: int) -> None:
        self.model = hang.init(capacity)
        self.told: dict[str, int] = {}

    def resize(self, capacity: int) -> None:
        """Make room for more devices."""
        self.model = hang.resize(self.model, capacity)

    def wipe(self, slots: list[int]) -> None:
        """Start anew where a slot holds other work, or is another device's."""
        if slots:
            self.model = wiped(self.model, hang.init(len(self.model.seen_s)), slots)

    def step(
        self, values: NDArray[np.float32], owner: NDArray[np.int32], workloads: list[str], now_ns: int, period_s: float
    ) -> Iterator[Hang]:
        """Workloads that hang, once in ``AGAIN_S``.

        ``values`` are float32[capacity, metrics], ``owner`` int32[capacity] is the workload of a slot, -1 for none.
        """
        x = hang.Inputs(*(values[:, column] for column in (UTILIZATION, SM_ACTIVITY, POWER, POWER_LIMIT)))
        self.model, hung = hang.step(self.model, x, period_s)
        if not hung.any():
            return
        self.told = {w: t for w, t in self.told.items() if 0 <= now_ns - t < AGAIN_S * 1e9}
        for workload in np.unique(owner[hung & (owner >= 0)]).tolist():
            if workloads[workload] not in self.told:
                self.told[workloads[workload]] = now_ns
                slots = np.flatnonzero(hung & (owner == workload))
                yield Hang(workload, slots.tolist(), float(self.model.hung_s[slots].max()))

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {"model": arrays(self.model), "told": self.told}

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Take on the state of a snapshot."""
        self.model, self.told = like(hang.init(capacity), state["model"]), dict(state["told"])
