"""Detects GPUs and hosts whose metrics depart from their own baselines and from their peers."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Anomaly, Evidence
from flyball_models.anomaly import departure, tail
from flyball_streams.engine.budget import BUDGET_S, score
from flyball_streams.engine.node.detector import CellTick, Detector
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.packing import arrays, like

GPU_WATCHED = {
    "hw.gpu.utilization{task=general}": 0.05,
    "hw.gpu.memory.utilization": 0.03,
    "hw.power": 20.0,
    "hw.temperature{sensor=gpu}": 3.0,
    "nvidia.gpu.clock.frequency{clock=sm}": 20e6,
    "nvidia.gpu.sm.activity": 0.05,
    "hw.gpu.io{direction=receive}": 1e9,
    "hw.errors{type=corrected}": 1.0,
}
HOST_WATCHED = {
    "system.cpu.utilization": 0.1,
    "system.memory.utilization": 0.03,
    "system.linux.psi.total_time{resource=cpu,stall=some}": 0.1,
    "system.linux.psi.total_time{resource=memory,stall=some}": 0.05,
    "system.linux.psi.total_time{resource=io,stall=some}": 0.1,
}
SHOWN = 3


class Departures(Detector[departure.State]):
    """Baselines of the subjects of one table.

    ``watched`` gives the smallest change of each metric that matters, in its unit. ``rate`` is the budget of false
    departures per subject and second.
    """

    def __init__(self, table: SubjectTable, watched: Mapping[str, float], rate: float) -> None:
        self.table = table
        columns = [table.layout.column(key) for key in watched]
        self.columns, self.watched = np.array(columns, np.int64), [table.layout.metrics[column] for column in columns]
        self.floors = np.array(list(watched.values()), np.float32)
        self.rate = rate / len(watched)
        self.budget = self.rate * len(watched) * BUDGET_S
        super().__init__(table.capacity, lambda capacity: departure.init(capacity, len(watched)))
        self.tail = tail.init(2 * len(watched), self.rate)

    def change_work(self, kinds: dict[int, str]) -> None:
        """Reset slots whose work has changed: a change of work is no anomaly."""
        self.reset(list(kinds))

    def step(self, seen: CellTick) -> Iterator[Anomaly]:
        """Anomalies at the end of a window, with the metrics that depart the furthest."""
        means = self.table.means
        if means is None:
            return
        has_peers = self.table is seen.gpus
        group = seen.tenancy.peer_group if has_peers else np.full(self.table.capacity, -1, np.int32)
        x = means.values.take(self.columns, axis=1)
        self.model, self.tail, found = departure.step(
            self.model, self.tail, x, means.mask, group, self.floors, means.elapsed_s, self.rate
        )
        if not found.ratio.any():  # never negative
            return
        metrics = np.arange(len(self.watched))
        for slot in np.flatnonzero(found.ratio.any(axis=0)).tolist():
            stratum = np.where(self.model.peered[:, slot], metrics, metrics + len(metrics))
            rate = tail.rates(self.tail, stratum, found.ratio[:, slot].astype(np.float64)) * len(metrics)
            rate = np.where(found.ratio[:, slot] > 0, rate, np.inf)
            rarest: list[int] = np.argsort(rate, kind="stable")[:SHOWN].tolist()
            evidence = tuple(
                Evidence(
                    name=self.watched[m].key,
                    value=float(x[slot, m]),
                    expected=float(found.expected[m, slot]),
                    unit=self.watched[m].unit,
                )
                for m in rarest
                if np.isfinite(rate[m])
            )
            expected_false = float(rate.min()) * BUDGET_S
            since_ns = seen.tick.end_ns - round(float(found.since_s[:, slot].max()) * NS_PER_S)
            grade = score(expected_false, self.budget)
            anomaly = seen.anomaly(self.table, slot, "departure", grade, evidence, since_ns)
            yield replace(anomaly, false_per_1000_gpu_days=expected_false)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {**super().state(), "tail": arrays(self.tail)}

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        super().load(state, capacity)
        self.tail = like(self.tail, state["tail"])
