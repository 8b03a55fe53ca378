"""Warns of jobs whose GPU memory will be full: a job out of memory loses all work since its last checkpoint."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Anomaly, Evidence, Tick
from flyball_models.profile import filling
from flyball_models.profile.signals import Floats
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import Tenancy
from flyball_streams.engine.packing import arrays, like, wiped

DETECTOR = "memory_filling"
HORIZON_S = 1_800.0
"""No warning of memory that will be full later than this."""
REPEAT_S = 600.0
_HOUR_S = 3_600.0


class MemoryGuard:
    """Monitors the memory of each device, without servers, which fill theirs at the start on purpose."""

    def __init__(self, cell: str, capacity: int) -> None:
        self.cell = cell
        self.state_ = filling.init(capacity)
        self.warned: dict[str, int] = {}

    def resize(self, capacity: int) -> None:
        """Make room for more devices."""
        old, new = self.state_, filling.init(capacity)
        have = old.ring.shape[1]
        new.ring[:, :have], new.total[:have], new.known[:have] = old.ring, old.total, old.known
        self.state_ = new._replace(opened_s=old.opened_s)

    def forget(self, slots: list[int]) -> None:
        """Reset slots with another device or other work."""
        self.state_ = wiped(self.state_, filling.init(self.state_.ring.shape[1]), slots)

    def step(
        self, tick: Tick, table: SubjectTable, memory: Floats, watched: NDArray[np.bool_], tenancy: Tenancy
    ) -> Iterator[Anomaly]:
        """Update with the share of memory in use, [N]; warn of ``watched`` devices that will be full."""
        now_s = tick.end_ns / NS_PER_S
        self.state_, whole = filling.step(self.state_, memory, table.mask, now_s)
        if not whole:
            return
        found = filling.summarize(self.state_)
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
            yield Anomaly(
                id=record_id("Anomaly", self.cell, subject, DETECTOR, tick.index),
                subject=subject,
                cell=self.cell,
                node=table.owner[slot],
                time_ns=tick.end_ns,
                detector=DETECTOR,
                score=1.0 - 0.5 * lead_s / HORIZON_S,
                evidence=(
                    Evidence(name="hw.gpu.memory.utilization", value=float(found.share[slot]), expected=1.0),
                    Evidence(name="memory.lead_time", value=lead_s, expected=HORIZON_S, unit="s"),
                    Evidence(name="memory.growth", value=rate * _HOUR_S, expected=0.0, unit="1/h"),
                    Evidence(name="memory.growth.explained", value=float(found.explained[slot])),
                ),
                workload=tenancy.replica_of_slot.get(slot, ("", ""))[0],
            )

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {"filling": arrays(self.state_), "warned": self.warned}

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        self.state_ = like(filling.init(capacity), state["filling"])
        self.warned = dict(state["warned"])
