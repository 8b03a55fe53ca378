"""Detects hosts whose series together leave the way in which they usually vary, even if none of them alone does.

A host may have more disk reads, more waits and less network traffic than usual at its CPU time, though each of these is
well within its range. Means of a minute are compared with the usual variation of the host itself
(:mod:`flyball_models.anomaly.subspace`); the largest scores of all hosts of the cell go into a tail, which sets the
limit. Of hosts that do the same work and depart together, only the one that departs furthest is reported.

A change of the workloads on a host changes the level of its series, seldom the way in which they vary together: as long
as the kinds of work stay, the means are learned again, in half an hour, and what is known of the variation is kept.
Only work of other kinds resets a host. Owners are not compared: on a shared host they change with every job, and the
host would never be scored.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import HOST
from flyball_contracts.records import Anomaly, Evidence
from flyball_models.anomaly import subspace, tail
from flyball_streams.engine.budget import BUDGET_S, SUBSPACE_SHARE, score
from flyball_streams.engine.node.detector import CellTick, Detector
from flyball_streams.engine.packing import arrays, like, wiped

DETECTOR = "subspace"
NOISE = {
    "system.cpu.utilization": 0.01,
    "system.cpu.time{mode=system}": 0.2,
    "system.cpu.time{mode=iowait}": 0.2,
    "system.memory.utilization": 0.003,
    "system.memory.usage{state=cached}": 1e9,
    "system.paging.faults{type=major}": 5.0,
    "system.linux.psi.total_time{resource=cpu,stall=some}": 0.01,
    "system.linux.psi.total_time{resource=memory,stall=some}": 0.01,
    "system.linux.psi.total_time{resource=io,stall=some}": 0.01,
    "system.disk.io{direction=read}": 1e7,
    "system.disk.io{direction=write}": 1e7,
    "system.disk.operation_time{direction=read}": 0.01,
    "system.disk.operation_time{direction=write}": 0.01,
    "system.network.io{direction=receive}": 1e7,
    "system.network.io{direction=transmit}": 1e7,
    "system.process.count": 10.0,
}
"""Standard deviations below which a change is irrelevant, in the unit of the metric, for counters per second."""
COLUMNS = np.array([HOST.column(key) for key in NOISE])
_METRICS = [HOST.metrics[int(column)] for column in COLUMNS]
_COUNTS = np.array([metric.instrument == "counter" for metric in _METRICS])
_NOISE = np.array(list(NOISE.values()), np.float32)
WINDOW_S = 60.0
AGAIN_NS = 6 * 3600 * NS_PER_S
"""A reported host is reported again within this time only if its score is larger."""
SCORES = tail.Config(
    least=1.0, prior_n=1.0, prior_s=86_400.0, prior_excess=(0.4, 0.4), excess_n=4.0, prior_shape=(0.05, 0.05)
)
"""Sizes are log10 of scores. By the prior, a healthy host exceeds a score of 10, five times its mean, once a day."""
SHOWN = 3


class Hosts(NamedTuple):
    """Usual variation of hosts; ``total`` and ``known`` [M, N] sum up a window.

    ``peak`` [N] is the largest size of a departure that has not ended.
    """

    usual: subspace.State
    total: NDArray[np.float64]
    known: NDArray[np.float64]
    peak: NDArray[np.float64]


def init(n: int) -> Hosts:
    """State of ``n`` hosts without observations."""
    return Hosts(subspace.init(n, len(NOISE)), np.zeros((len(NOISE), n)), np.zeros((len(NOISE), n)), np.zeros(n))


class Subspaces(Detector[Hosts]):
    """Monitors the hosts of one cell; ``elapsed_s`` is the time in the window so far.

    ``reported`` has the time, ns, and size of the last report, by host. ``kinds`` names the kinds of work that a host
    does or did last, by slot.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, init)
        self.elapsed_s = 0.0
        self.tail = tail.init(1, 1.0 / BUDGET_S, SCORES)
        self.reported: dict[str, tuple[int, float]] = {}
        self.kinds: dict[int, str] = {}

    def reset(self, slots: list[int]) -> None:
        """Reset slots that belong to other hosts now."""
        for slot in slots:
            self.kinds.pop(slot, None)
        super().reset(slots)

    def change_work(self, kinds: dict[int, str]) -> None:
        """Reset hosts with other kinds of work; those with other work of the same kinds learn only their means again.

        Hosts without work keep the kinds that they had.
        """
        new = [slot for slot, kind in kinds.items() if kind and self.kinds.get(slot, "") != kind]
        self.reset(new)
        self.kinds |= {slot: kind for slot, kind in kinds.items() if kind}
        same = [slot for slot in kinds if slot not in new]
        usual = subspace.settle(self.model.usual, same)
        self.model = wiped(self.model, init(self.capacity), same)._replace(usual=usual)

    def step(self, seen: CellTick) -> Iterator[Anomaly]:
        """Anomalies of hosts that left their usual variation, at the end of each minute."""
        means = seen.hosts.means
        if means is None:
            return
        tick, table, work = seen.tick, seen.hosts, seen.work_of_hosts
        rate = SUBSPACE_SHARE * seen.node_rate
        x = means.values.take(COLUMNS, axis=1).T / np.where(_COUNTS, tick.period_ns / NS_PER_S, 1.0)[:, None]
        known = np.isfinite(x)
        total, count, peak = self.model[1:]
        total += np.where(known, x, 0.0)
        count += known
        self.elapsed_s += means.elapsed_s
        if self.elapsed_s < WINDOW_S:
            return
        with np.errstate(invalid="ignore"):
            window: NDArray[np.float32] = (total / count).astype(np.float32)
        elapsed_s, self.elapsed_s = self.elapsed_s, 0.0
        usual, found = subspace.step(self.model.usual, window, _NOISE, elapsed_s)
        self.model = Hosts(usual, np.zeros_like(total), np.zeros_like(count), peak)
        size, limit = np.log10(np.maximum(found.score, 1.0)).astype(np.float64), float(self.tail.limit[0])
        self._learn(size, work, float((found.score > 0).sum()) * elapsed_s, elapsed_s, rate)
        self.reported = {name: at for name, at in self.reported.items() if 0 <= tick.end_ns - at[0] < AGAIN_NS}
        reported_work = set[int]()
        beyond: list[int] = np.flatnonzero(size >= limit).tolist()
        for slot in sorted(beyond, key=lambda one: (-float(size[one]), one)):
            name, group = table.names[slot], int(work[slot])
            if group not in reported_work and size[slot] > self.reported.get(name, (0, 0.0))[1]:
                self.reported[name] = tick.end_ns, float(size[slot])
                yield self._anomaly(seen, window[:, slot], found, slot, rate)
            reported_work |= {group} - {-1}

    def _learn(
        self, size: NDArray[np.float64], work: NDArray[np.int32], exposure_s: float, elapsed_s: float, rate: float
    ) -> None:
        """Add departures to the tail once they fell below half of their largest score; per work, only the largest."""
        peak = np.maximum(self.model.peak, size)
        slot = np.flatnonzero((size < peak - math.log10(2.0)) & (peak > SCORES.least))
        place = np.where(work[slot] >= 0, work[slot], len(work) + slot)
        order = np.lexsort((-peak[slot], place))
        first = np.append(True, np.diff(place[order]) != 0)[: len(slot)]
        value = peak[slot][order][first]
        self.model = self.model._replace(peak=np.where(size < peak - math.log10(2.0), size, peak))
        self.tail = tail.step(
            self.tail,
            np.zeros(len(value), np.int64),
            value,
            np.array([exposure_s]),
            elapsed_s,
            rate,
            len(value),
            SCORES,
        )

    def _anomaly(
        self, seen: CellTick, x: NDArray[np.float32], found: subspace.Found, slot: int, rate: float
    ) -> Anomaly:
        part = found.part[:, slot]
        most: list[int] = np.argsort(-part, kind="stable")[:SHOWN].tolist()
        size = np.array([math.log10(float(found.score[slot]))])
        expected_false = float(tail.rates(self.tail, np.zeros(1, np.int64), size, SCORES)[0])
        evidence = tuple(
            Evidence(
                name=_METRICS[k].key,
                value=float(x[k]),
                expected=float(found.expected[k, slot]),
                unit=_METRICS[k].unit + ("/s" if _COUNTS[k] else ""),
            )
            for k in most
            if part[k] > 0.0
        )
        since_ns = seen.tick.end_ns - round(WINDOW_S * NS_PER_S)
        anomaly = seen.anomaly(seen.hosts, slot, DETECTOR, score(expected_false, rate), evidence, since_ns)
        return replace(anomaly, false_per_1000_gpu_days=expected_false * BUDGET_S)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            **super().state(),
            "elapsed_s": self.elapsed_s,
            "tail": arrays(self.tail),
            "reported": {name: list(at) for name, at in self.reported.items()},
            "kinds": self.kinds,
        }

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        super().load(state, capacity)
        self.elapsed_s = state["elapsed_s"]
        self.tail = like(self.tail, state["tail"])
        self.reported = {name: (at_ns, size) for name, (at_ns, size) in state["reported"].items()}
        self.kinds = dict(state["kinds"])
