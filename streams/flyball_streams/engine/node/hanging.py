"""Anomalies of workloads that hang: their devices spin without work, or stand still."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Anomaly, Evidence, Tick
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.node.detectors.hangs import Hangs
from flyball_streams.engine.node.detectors.standstills import Standstills
from flyball_streams.engine.node.profile import Profiles
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import POWER, UTILIZATION, Tenancy
from flyball_streams.engine.node.training import TrainingWorkloads
from flyball_streams.engine.node.window import Means

SCORE = 0.9
Noted = tuple[Evidence, ...]


class Hanging:
    """Both kinds of hang in one cell; a workload is reported once for both."""

    def __init__(self, cell: str, directory: FleetIndex, training: TrainingWorkloads, capacity: int) -> None:
        self.cell = cell
        self.directory = directory
        self.training = training
        self.hangs = Hangs(capacity)
        self.standstills = Standstills()

    def resize(self, capacity: int) -> None:
        """Make room for more devices."""
        self.hangs.resize(capacity)

    def reset(self, slots: list[int]) -> None:
        """Reset slots with other work or another device."""
        self.hangs.reset(slots)

    def forget_pages(self) -> None:
        """Drop the workload rows of this window: from now on they belong to others."""
        self.standstills.forget_pages()

    def note(self, tenancy: Tenancy) -> None:
        """Keep the workload rows of a tick."""
        self.standstills.note(tenancy.values)

    def step(
        self, tick: Tick, means: Means, table: SubjectTable, tenancy: Tenancy, profiles: Profiles
    ) -> Iterator[Anomaly]:
        """Anomalies at the end of a window; each names its workload and its first device."""
        trains = self.training.of(tenancy)
        owner = np.where(means.mask, tenancy.workload_of_slot[: len(means.mask)], np.int32(-1))
        reported: set[str] = set()
        for found in self.hangs.step(means.values, owner, tenancy.workloads, tick.end_ns, means.elapsed_s):
            workload, slot = tenancy.workloads[found.workload], found.slots[0]
            if not self._works_alone(workload, trains[found.workload]):
                continue
            reported.add(workload)
            usual, now = float(self.hangs.model.power_w[slot]), means.values[slot]
            power = Evidence(name="hw.power", value=float(now[POWER]), expected=usual, unit="W")
            yield self._anomaly(tick, table, workload, found.slots, found.since_s, float(now[UTILIZATION]), power)
        step_s = tick.period_ns / NS_PER_S
        seen = means.values, means.mask, tenancy, trains, profiles.periods_s
        for still in self.standstills.step(*seen, profiles.pauses, means.elapsed_s, step_s):
            workload = tenancy.workloads[still.workload]
            if workload not in reported and self.hangs.is_news(workload, tick.end_ns):
                use = _mean(means.values[still.slots, UTILIZATION])
                name = "ranks.idle" if still.idle else "without.step"
                pause = Evidence(name=name, value=still.since_s, expected=still.limit_s, unit="s")
                yield self._anomaly(tick, table, workload, still.slots, still.since_s, use, pause)

    def _works_alone(self, workload: str, trains: bool) -> bool:
        """Whether a workload waits for no requests: a server with few of them is as busy, and does as little."""
        spec = self.directory.spec(workload)
        return trains or (spec is not None and spec.kind == "batch")

    def _anomaly(
        self, tick: Tick, table: SubjectTable, workload: str, slots: list[int], since_s: float, use: float, of: Evidence
    ) -> Anomaly:
        return Anomaly(
            id=record_id("Anomaly", self.cell, workload, "hang", tick.index),
            subject=table.names[slots[0]] if len(slots) == 1 else workload,
            cell=self.cell,
            node=table.owner[slots[0]],
            time_ns=tick.end_ns,
            detector="hang",
            score=SCORE,
            evidence=(
                Evidence(name="hw.gpu.utilization{task=general}", value=use),
                of,
                Evidence(name="devices", value=float(len(slots)), unit="{device}"),
            ),
            workload=workload,
            since_ns=max(0, tick.end_ns - round(since_s * NS_PER_S)),
        )

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {"hangs": self.hangs.state(), "standstills": self.standstills.state()}

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        self.hangs.load(state["hangs"], capacity)
        self.standstills.load(state["standstills"])


def _mean(x: NDArray[np.float32]) -> float:
    known = x[np.isfinite(x)]
    return float(known.mean()) if len(known) else 0.0
