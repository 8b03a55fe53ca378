"""Warns of jobs whose GPU memory will be full: a job out of memory loses all work since its last checkpoint."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Anomaly, Evidence
from flyball_models.profile import filling
from flyball_models.profile.signals import Floats
from flyball_streams.engine.node.detector import CellTick
from flyball_streams.engine.node.slot_model import SlotModel

DETECTOR = "memory_filling"
HORIZON_S = 1_800.0
"""Memory that will be full later than this causes no warning."""
REPEAT_S = 600.0
_HOUR_S = 3_600.0


class MemoryGuard(SlotModel[filling.State]):
    """Monitors the memory of each device; servers are not watched, as they fill it at the start on purpose."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, filling.init)
        self.warned: dict[str, int] = {}

    def step(self, seen: CellTick, memory: Floats, watched: NDArray[np.bool_]) -> Iterator[Anomaly]:
        """Update with the share of memory in use, [N]; warn of ``watched`` devices that will be full."""
        tick, table = seen.tick, seen.gpus
        now_s = tick.end_ns / NS_PER_S
        self.model, whole = filling.step(self.model, memory, table.mask, now_s)
        if not whole:
            return
        found = filling.summarize(self.model)
        repeat_ns = round(REPEAT_S * NS_PER_S)
        self.warned = {d: t for d, t in self.warned.items() if 0 <= tick.end_ns - t < repeat_ns}
        with np.errstate(invalid="ignore"):
            slots: list[int] = np.flatnonzero(watched & (found.lead_s < HORIZON_S)).tolist()
        for slot in slots:
            subject = table.names[slot]
            if subject in self.warned:
                continue
            self.warned[subject] = tick.end_ns
            lead_s, rate = float(found.lead_s[slot]), float(found.rate_per_s[slot])
            evidence = (
                Evidence(name="hw.gpu.memory.utilization", value=float(found.share[slot]), expected=1.0),
                Evidence(name="memory.lead_time", value=lead_s, expected=HORIZON_S, unit="s"),
                Evidence(name="memory.growth", value=rate * _HOUR_S, expected=0.0, unit="1/h"),
                Evidence(name="memory.growth.explained", value=float(found.explained[slot])),
            )
            yield seen.anomaly(table, slot, DETECTOR, 1.0 - 0.5 * lead_s / HORIZON_S, evidence)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {**super().state(), "warned": self.warned}

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        super().load(state, capacity)
        self.warned = dict(state["warned"])
