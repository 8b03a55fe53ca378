"""Detects GPUs and hosts that stay in one state for longer than comparable ones ever do.

A GPU that spins at full use, or one whose memory only grows, shows nothing that healthy GPUs never show: those that
idle and burst do the same daily, for a minute. Only the duration distinguishes them, and the normal duration is learned
from the devices of the same model that do the same work (:mod:`flyball_models.anomaly.sojourn`). A value that repeats
to the bit while that of the peers moves comes from a sensor that is stuck.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Anomaly, Evidence
from flyball_models.anomaly import sojourn, tail
from flyball_streams.engine.budget import BUDGET_S, score
from flyball_streams.engine.node.detector import CellTick, Detector
from flyball_streams.engine.node.detectors.stuck import SAMPLE_S, STUCK, StuckSensors
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import Tenancy
from flyball_streams.engine.packing import arrays, like

DETECTOR = "sojourn"
CONFIG = sojourn.DEFAULT


class Watch(NamedTuple):
    """A state of a metric: all of a sample is within ``least`` and ``most``, and rises or repeats if ``way`` says so.

    A sample rises if its least value is above that of the sample before, and repeats if all its values are equal to the
    least value of the sample before. Stays of less than ``least_s`` are by themselves no reason for a report.
    """

    key: str
    least_s: float
    least: float = -inf
    most: float = inf
    way: Literal["stays", "rises", "repeats"] = "stays"


GPU_STATES = (
    Watch("hw.gpu.utilization{task=general}", 90.0, least=0.95),
    Watch("hw.gpu.utilization{task=general}", 900.0, most=0.005),
    Watch("hw.gpu.utilization{task=general}", 60.0, 0.005, 0.98, "repeats"),
    Watch("hw.gpu.memory.utilization", 90.0, least=0.98),
    Watch("hw.gpu.memory.utilization", 300.0, way="rises"),
)
HOST_STATES = (
    Watch("system.memory.utilization", 120.0, 0.001, 0.999, "repeats"),
    Watch("system.cpu.utilization", 120.0, 0.001, 0.999, "repeats"),
)


class Watched(NamedTuple):
    """Stays of N subjects in K states.

    The other fields are [K, N]: the least and the largest value of the sample so far, NaN without one, and the least
    value of the sample before.
    """

    stays: sojourn.State
    low: NDArray[np.float32]
    high: NDArray[np.float32]
    before: NDArray[np.float32]


class Sojourns(Detector[Watched]):
    """Follows the subjects of one table in ``states``; ``elapsed_s`` is the time in the sample so far.

    ``rate`` is the budget of false reports per subject and second; a sensor that ``sensors`` knows to be stuck is not
    reported a second time. GPUs have peers by model and workload, and are reset when their work changes; hosts are all
    compared with each other.
    """

    def __init__(
        self, table: SubjectTable, states: Sequence[Watch], rate: float, sensors: StuckSensors | None = None
    ) -> None:
        self.table, self.states, self.sensors = table, tuple(states), sensors
        self.columns = np.array([table.layout.column(state.key) for state in states])
        self.least, self.most = (
            np.array([getattr(state, end) for state in states], np.float32)[:, None] for end in ("least", "most")
        )
        self.least_s = np.array([state.least_s for state in states], np.float32)
        self.rises, self.repeats = (np.array([s.way == way for s in states])[:, None] for way in ("rises", "repeats"))
        self.rate, self.budget = rate / len(states), rate * BUDGET_S
        self.tail = tail.init(2 * len(states), self.rate, CONFIG.sizes)
        self.elapsed_s = 0.0
        self._peers: tuple[Tenancy, sojourn.Peers] | None = None
        super().__init__(table.capacity, self._init)

    def _init(self, capacity: int) -> Watched:
        nothing = (np.full((len(self.states), capacity), np.nan, np.float32) for _ in range(3))
        return Watched(sojourn.init(capacity, len(self.states)), *nothing)

    def resize(self, capacity: int) -> None:
        """Make room for more subjects."""
        super().resize(capacity)
        self._peers = None

    def change_work(self, kinds: dict[int, str]) -> None:
        """Reset GPUs whose work has changed."""
        if self.table.layout is GPU:
            self.reset(list(kinds))

    def step(self, seen: CellTick) -> Iterator[Anomaly]:
        """Anomalies at the end of a sample."""
        means = self.table.means
        if means is None:
            return
        x = means.values.take(self.columns, axis=1).T
        self.elapsed_s += means.elapsed_s
        low, high = np.fmin(self.model.low, x), np.fmax(self.model.high, x)
        if self.elapsed_s < SAMPLE_S:
            self.model = self.model._replace(low=low, high=high)
            return
        stays, before = self.model.stays, self.model.before
        elapsed_s, self.elapsed_s = self.elapsed_s, 0.0
        known = ~np.isnan(low)
        inside = (low >= self.least) & (high <= self.most)
        inside &= ~self.rises | (low > before)
        inside &= ~self.repeats | ((low == high) & (low == before))
        stays, self.tail, found = sojourn.step(
            stays, self.tail, inside, known, self._arranged(seen), self.least_s, elapsed_s, self.rate, CONFIG
        )
        self.model = Watched(stays, np.full_like(low, np.nan), np.full_like(high, np.nan), np.where(known, low, before))
        if not found.ratio.any():
            return
        for state, slot in np.argwhere(found.ratio).tolist():
            if self.sensors is not None and self.repeats[state, 0] and self.sensors.knows(slot, self.states[state].key):
                continue
            yield self._anomaly(seen, state, slot, float(low[state, slot]), found)

    def _arranged(self, seen: CellTick) -> sojourn.Peers:
        """The peers of each subject, arranged again when the tenancy has changed."""
        kept = self._peers
        if kept is None or kept[0] is not seen.tenancy or len(kept[1].group) != self.capacity:
            kept = self._peers = seen.tenancy, self._arrange(seen)
        return kept[1]

    def _arrange(self, seen: CellTick) -> sojourn.Peers:
        group, unit = np.full(self.capacity, -1, np.int32), np.arange(self.capacity, dtype=np.int32)
        if self.table is seen.gpus:
            tenancy, numbers = seen.tenancy, dict[tuple[str, str], int]()
            held = tenancy.workload_of_slot >= 0
            group[: len(held)] = np.where(held, tenancy.peer_group, -1)
            for slot, replica in tenancy.replica_of_slot.items():
                unit[slot] = numbers.setdefault(replica, len(numbers))
        else:
            slots = self.table.slots
            group[[slots[node] for node in seen.inventories if node in slots]] = 0
        return sojourn.arrange(group, unit, CONFIG)

    def _anomaly(self, seen: CellTick, state: int, slot: int, value: float, found: sojourn.Found) -> Anomaly:
        watch, peered = self.states[state], bool(self._arranged(seen).peered[slot])
        since_s, limit_s = float(self.model.stays.stays_s[state, slot]), float(found.limit_s[state, slot])
        stratum = np.array([state if peered else state + len(self.states)])
        size = np.array([float(found.ratio[state, slot])])
        expected_false = float(tail.rates(self.tail, stratum, size, CONFIG.sizes)[0]) * len(self.states) * BUDGET_S
        detector = STUCK if watch.way == "repeats" else DETECTOR
        evidence = (
            Evidence(name=watch.key, value=value, unit=self.table.layout.metrics[int(self.columns[state])].unit),
            Evidence(name=f"{detector}.time", value=since_s, expected=limit_s, unit="s"),
        )
        since_ns = seen.tick.end_ns - round(since_s * NS_PER_S)
        anomaly = seen.anomaly(self.table, slot, detector, score(expected_false, self.budget), evidence, since_ns)
        return replace(
            anomaly,
            id=record_id("Anomaly", seen.cell, anomaly.subject, f"{detector} {state}", seen.tick.index),
            workload="" if detector == STUCK else anomaly.workload,
            false_per_1000_gpu_days=expected_false,
        )

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {**super().state(), "tail": arrays(self.tail), "elapsed_s": self.elapsed_s}

    def load(self, state: Mapping[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        super().load(dict(state), capacity)
        self.tail, self.elapsed_s, self._peers = like(self.tail, state["tail"]), state["elapsed_s"], None
