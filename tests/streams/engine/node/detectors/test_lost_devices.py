"""A GPU whose values are missing while its node sends is lost; what is short, announced or expected is not."""

import numpy as np
import pytest
from tests.streams.engine.scene import cell_tick, inventory

from flyball_contracts.metrics import GPU, HOST
from flyball_contracts.records import Anomaly, Inventory, Tick
from flyball_streams.engine.budget import BUDGET_S
from flyball_streams.engine.node.detectors.lost_devices import LOST, LostDevices
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.window import Means
from flyball_streams.engine.packing import pack, unpack
from flyball_streams.engine.symptoms import symptom_of

PERIOD_S, FIRST, NODES, EACH = 30, 58_000_000, 16, 4
LEARNED = 600
USE = GPU.column("hw.gpu.utilization{task=general}")


class Fleet:
    """Sixteen nodes of four GPUs, each of which has no value in some samples."""

    def __init__(self) -> None:
        self.nodes: list[Inventory] = [inventory(f"node-{i:02}", EACH) for i in range(NODES)]
        self.gpus, self.hosts = SubjectTable(GPU), SubjectTable(HOST)
        for node in self.nodes:
            self.gpus.rows(tuple(d.id for d in node.devices), node.node)
            self.hosts.rows((node.node,), node.node)
        self.detector = LostDevices(self.gpus, 1.0 / BUDGET_S)
        self.gpus.models = (self.detector,)
        self.random, self.at = np.random.default_rng(4), 0

    def run(self, samples: int, lost: tuple[int, ...] = (), silent: tuple[int, ...] = ()) -> list[Anomaly]:
        """``lost`` GPUs have no values, ``silent`` ones not even a row."""
        found: list[Anomaly] = []
        n = NODES * EACH
        for _ in range(samples):
            values = np.full((self.gpus.capacity, len(GPU)), np.nan, np.float32)
            values[:n, USE] = np.where(self.random.random(n) < 0.01, np.nan, 0.5)
            values[[*lost, *silent], USE] = np.nan
            mask = np.arange(self.gpus.capacity) < n
            mask[list(silent)] = False
            self.gpus.means = Means(values, mask, float(PERIOD_S))
            here = {node.node for node in self.nodes}
            self.hosts.mask[:NODES] = [
                node in here and EACH * i not in silent for i, node in enumerate(self.hosts.names)
            ]
            at = Tick(index=FIRST + self.at, period_ns=PERIOD_S * 10**9)
            found += self.detector.step(cell_tick(at, self.gpus, self.hosts, *self.nodes))
            self.at += 1
        return found

    def again(self) -> "Fleet":
        """The same after a restart."""
        other = Fleet()
        other.detector.load(unpack(pack(self.detector.state())), self.gpus.capacity)
        other.random.bit_generator.state, other.at = self.random.bit_generator.state, self.at
        return other


@pytest.fixture(scope="module")
def learned() -> Fleet:
    fleet = Fleet()
    assert fleet.run(LEARNED) == []
    return fleet


def test_a_gpu_without_values_is_lost_though_its_node_sends(learned: Fleet) -> None:
    first, *more = learned.again().run(60, lost=(9,))
    assert {one.subject for one in (first, *more)} == {"node-02/1"}
    assert (first.detector, first.workload, first.node) == (LOST, "", "node-02")
    assert first.since_ns is not None
    assert 60 <= (first.time_ns - first.since_ns) / 1e9 <= 1500
    symptom = symptom_of(first)
    assert (symptom.cause, symptom.strength, symptom.device) == ("telemetry", "sign", "node-02/1")


def test_a_frame_of_the_host_says_that_its_node_sends_though_no_row_of_the_gpu_comes(learned: Fleet) -> None:
    assert {one.subject for one in learned.again().run(60, silent=(9,))} == {"node-02/1"}


def test_gpus_that_are_lost_at_a_time_do_not_hide_each_other(learned: Fleet) -> None:
    assert len({one.subject for one in learned.again().run(60, lost=(9, 20, 33, 40, 41))}) == 5


def test_short_gaps_silent_nodes_and_removed_gpus_are_none(learned: Fleet) -> None:
    fleet = learned.again()
    assert fleet.run(3, lost=(9,)) == [] == fleet.run(10)
    fleet = learned.again()
    assert fleet.run(60, silent=(8, 9, 10, 11)) == [], "the whole node is silent, which another detector says"
    fleet = learned.again()
    fleet.nodes[2] = inventory("node-02", 1)
    assert fleet.run(60, lost=(9, 10, 11)) == []


def test_a_gpu_that_never_had_a_value_or_whose_node_has_booted_is_none(learned: Fleet) -> None:
    fleet = Fleet()
    assert fleet.run(400, lost=(9,)) == []
    fleet = learned.again()
    fleet.run(2, lost=(9,))
    fleet.detector.boot(["node-02/1"])
    assert fleet.run(60, lost=(9,)) == []


def test_how_long_gaps_last_is_learned(learned: Fleet) -> None:
    def limit_s(fleet: Fleet) -> float:
        return 60.0 * float(fleet.detector.tail.limit[1])

    fleet = learned.again()
    before = limit_s(fleet)
    for i in range(40):
        fleet.run(4, lost=((7 * i) % (NODES * EACH),))
        fleet.run(2)
    assert limit_s(fleet) > before
