"""Detects devices that hang; one finding for each workload, as the ranks of a gang wait together."""

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
REPEAT_S = 300.0


class Hang(NamedTuple):
    """Index of a workload, its slots that hang, and for how long, s."""

    workload: int
    slots: list[int]
    since_s: float


class Hangs:
    """Monitors the devices of one cell; ``reported`` is the time of the last finding of each workload, ns."""

    def __init__(self, capacity: int) -> None:
        self.model = hang.init(capacity)
        self.reported: dict[str, int] = {}

    def resize(self, capacity: int) -> None:
        """Make room for more devices."""
        self.model = hang.resize(self.model, capacity)

    def reset(self, slots: list[int]) -> None:
        """Reset slots with other work or another device."""
        if slots:
            self.model = wiped(self.model, hang.init(len(self.model.seen_s)), slots)

    def step(
        self, values: NDArray[np.float32], owner: NDArray[np.int32], workloads: list[str], now_ns: int, period_s: float
    ) -> Iterator[Hang]:
        """Workloads that hang, each at most once in ``REPEAT_S``.

        ``values`` are float32[capacity, metrics], ``owner`` int32[capacity] is the workload of a slot, -1 for none.
        """
        x = hang.Inputs(*(values[:, column] for column in (UTILIZATION, SM_ACTIVITY, POWER, POWER_LIMIT)))
        self.model, hung = hang.step(self.model, x, period_s)
        if not hung.any():
            return
        names: list[int] = np.unique(owner[hung & (owner >= 0)]).tolist()
        for workload in names:
            if self.is_news(workloads[workload], now_ns):
                slots = np.flatnonzero(hung & (owner == workload))
                yield Hang(workload, slots.tolist(), float(self.model.hung_s[slots].max()))

    def is_news(self, workload: str, now_ns: int) -> bool:
        """Whether a workload that hangs is to be reported now; it is not again for ``REPEAT_S``."""
        self.reported = {w: t for w, t in self.reported.items() if 0 <= now_ns - t < REPEAT_S * 1e9}
        return self.reported.setdefault(workload, now_ns) == now_ns

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {"model": arrays(self.model), "reported": self.reported}

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        self.model, self.reported = like(hang.init(capacity), state["model"]), dict(state["reported"])
