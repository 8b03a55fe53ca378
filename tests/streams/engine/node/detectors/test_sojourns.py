"""GPUs that stay too long in a state and sensors that are stuck are reported by their name, with how long it lasts."""

from typing import Any

import numpy as np
import pytest
from tests.streams.engine.scene import CELL, CONFIG, cell_tick, inventory

from flyball_contracts.metrics import GPU, HOST
from flyball_contracts.records import Allocation, Anomaly, Tick
from flyball_streams.engine import Directory
from flyball_streams.engine.budget import BUDGET_S, SOJOURNS_SHARE
from flyball_streams.engine.node.cell import NodeCell
from flyball_streams.engine.node.detectors.sojourns import DETECTOR, GPU_STATES, HOST_STATES, Sojourns
from flyball_streams.engine.node.detectors.stuck import STUCK, StuckSensors
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.window import Means
from flyball_streams.engine.packing import pack, unpack
from flyball_streams.engine.symptoms import symptom_of

PERIOD_S, FIRST, N = 60, 29_000_000, 24
LEARNED = 400
USE, MEMORY = GPU.column("hw.gpu.utilization{task=general}"), GPU.column("hw.gpu.memory.utilization")
HOST_MEMORY = HOST.column("system.memory.utilization")
NODES = [
    inventory(f"node-{i:02}", 1, [Allocation(workload="chat", replica=f"chat-{i}", devices=(0,))]) for i in range(N)
]


class Pods:
    """A service of N pods that idle for minutes and burst for one; memory goes up and down."""

    def __init__(self, kind: str) -> None:
        self.layout, states = (GPU, GPU_STATES) if kind == "gpu" else (HOST, HOST_STATES)
        self.table = SubjectTable(self.layout)
        self.detector = Sojourns(self.table, states, 1.0 / BUDGET_S)
        self.table.models = (self.detector,)
        for node in NODES:
            names = tuple(d.id for d in node.devices) if kind == "gpu" else (node.node,)
            self.table.rows(names, node.node)
        self.gpus = self.table if kind == "gpu" else SubjectTable(GPU)
        for node in NODES:
            self.gpus.rows(tuple(d.id for d in node.devices), node.node)
        self.random, self.at = np.random.default_rng(2), 0
        self.memory = np.full(N, 0.5)

    def run(self, samples: int, **fixed: tuple[int, float]) -> list[Anomaly]:
        """``fixed``: ``use`` or ``memory`` of one pod that is always the same, or ``leak`` that is added each time."""
        found: list[Anomaly] = []
        for _ in range(samples):
            use = np.where(self.random.random(N) < 0.5, 0.0, self.random.uniform(0.0, 1.0, N))
            self.memory = np.clip(self.memory + self.random.normal(0.0, 0.02, N), 0.3, 0.7)
            values = np.full((self.table.capacity, len(self.layout)), np.nan, np.float32)
            pairs = [(USE, use), (MEMORY, self.memory)] if self.layout is GPU else [(HOST_MEMORY, self.memory)]
            for (column, x), name in zip(pairs, ("use", "memory") if self.layout is GPU else ("memory",), strict=True):
                values[:N, column] = x
                if name in fixed:
                    values[fixed[name][0], column] = fixed[name][1]
            mask = np.arange(self.table.capacity) < N
            self.table.means = Means(values, mask, float(PERIOD_S))
            hosts = None if self.layout is GPU else self.table
            seen = cell_tick(Tick(index=FIRST + self.at, period_ns=PERIOD_S * 10**9), self.gpus, hosts, *NODES)
            found += self.detector.step(seen)
            self.at += 1
        return found

    def again(self) -> "Pods":
        """The same after a restart."""
        other = Pods("gpu" if self.layout is GPU else "host")
        other.detector.load(unpack(pack(self.detector.state())), self.table.capacity)
        other.random.bit_generator.state, other.at = self.random.bit_generator.state, self.at
        return other


@pytest.fixture(scope="module")
def gpus() -> Pods:
    pods = Pods("gpu")
    assert pods.run(LEARNED) == []
    return pods


@pytest.mark.parametrize(
    ("fixed", "detector", "cause"),
    [
        ({"use": (5, 1.0)}, DETECTOR, "unknown"),
        ({"memory": (5, 0.99)}, DETECTOR, "gpu_memory"),
        ({"use": (5, 0.37)}, STUCK, "telemetry"),
    ],
)
def test_a_gpu_that_stays_where_its_peers_do_not_is_named(gpus: Pods, fixed: Any, detector: str, cause: str) -> None:
    first, *more = gpus.again().run(45, **fixed)
    assert {one.subject for one in (first, *more)} == {"node-05/0"}
    assert (first.detector, first.workload) == (detector, "chat" if detector == DETECTOR else "")
    value, lasts = first.evidence
    assert value.value == pytest.approx(next(iter(fixed.values()))[1])
    assert lasts.name == f"{detector}.time"
    assert lasts.value >= (lasts.expected or np.inf)
    assert first.since_ns is not None
    assert (first.time_ns - first.since_ns) / 1e9 == lasts.value
    assert first.false_per_1000_gpu_days is not None
    assert first.false_per_1000_gpu_days <= 1.0
    assert symptom_of(first).cause == cause


def test_other_work_starts_a_gpu_again(gpus: Pods) -> None:
    pods = gpus.again()
    pods.run(5, use=(5, 1.0))
    pods.table.change_work({5: "batch"})
    assert pods.run(45, use=(5, 1.0)) == []


def test_a_host_whose_memory_repeats_to_the_bit_has_a_stuck_sensor() -> None:
    pods = Pods("host")
    assert pods.run(LEARNED) == []
    found = pods.again().run(60, memory=(7, 0.4375))
    assert {(one.subject, one.detector) for one in found} == {("node-07", STUCK)}
    assert symptom_of(found[0]).device == ""


def test_a_sensor_that_is_known_to_be_stuck_is_reported_by_one_detector() -> None:
    """Use that stands still differs from the use of the peers, and later from the power of the same GPU."""
    cell = NodeCell(CELL, 0, CONFIG, Directory(), 1)
    for node in NODES:
        cell.gpus.rows(tuple(d.id for d in node.devices), node.node)
    sensors, sojourns = (next(d for d in cell.detectors if isinstance(d, kind)) for kind in (StuckSensors, Sojourns))
    by_peers = Sojourns(cell.gpus, GPU_STATES, SOJOURNS_SHARE * cell.rate)  # as if the other did not exist
    by_peers.resize(cell.gpus.capacity)
    random, found = np.random.default_rng(2), dict[str, list[Anomaly]](own=[], cell=[], peers=[])
    for at in range(LEARNED + 60):
        use = np.where(random.random(N) < 0.5, 0.0, random.uniform(0.0, 1.0, N))
        values = np.full((cell.gpus.capacity, len(GPU)), np.nan, np.float32)
        values[:N, GPU.column("hw.power")] = 80.0 + 420.0 * np.repeat((at // 8) % 2, N) + random.random(N)
        values[:N, USE] = use
        if at >= LEARNED:
            values[5, USE] = 0.37
        cell.gpus.means = Means(values, np.arange(cell.gpus.capacity) < N, float(PERIOD_S))
        seen = cell_tick(Tick(index=FIRST + at, period_ns=PERIOD_S * 10**9), cell.gpus, None, *NODES)
        for name, detector in (("own", sensors), ("cell", sojourns), ("peers", by_peers)):
            found[name] += list(detector.step(seen))
    assert {(one.subject, one.detector) for one in found["own"] + found["peers"]} == {("node-05/0", STUCK)}
    known_ns = found["own"][0].time_ns
    assert found["cell"] == [one for one in found["peers"] if one.time_ns < known_ns] != []
    assert any(one.time_ns > known_ns for one in found["peers"])
