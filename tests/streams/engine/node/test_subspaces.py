"""A host that leaves the way in which its series vary together is reported once, with what does not fit."""

import copy

import numpy as np
import pytest
from tests.streams.engine.scene import CELL, cell_tick, inventory

from flyball_contracts.metrics import HOST
from flyball_contracts.records import Allocation, Anomaly, Evidence, Tick
from flyball_streams.engine.budget import BUDGET_S
from flyball_streams.engine.causes import of_anomaly
from flyball_streams.engine.node.detectors.subspaces import DETECTOR, NOISE, Subspaces
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.window import Means
from flyball_streams.engine.packing import pack, unpack

N, PERIOD_S, FIRST = 4, 60, 29_000_000
CPU, READ, RECEIVE = (
    HOST.column(key)
    for key in ("system.cpu.utilization", "system.disk.io{direction=read}", "system.network.io{direction=receive}")
)
LEARNT, DAY = 10 * 60, 24 * 60


class Hosts:
    """What a lane learns of four hosts: CPU, disk and network follow their load."""

    def __init__(self) -> None:
        self.table = SubjectTable(HOST, N)
        self.table.rows(tuple(f"node-{i}" for i in range(N)), "")
        work = ("first", "second", "second", "second")
        self.nodes = [inventory(f"node-{i}", 0, (Allocation(workload=w, replica=f"{i}"),)) for i, w in enumerate(work)]
        self.detector = Subspaces(N)
        self.random = np.random.default_rng(7)
        self.at = 0

    def run(self, ticks: int, reads: float | tuple[float, ...] = 1.0, hosts: tuple[int, ...] = (1,)) -> list[Anomaly]:
        """``reads`` is how many times as much as usual those hosts read."""
        found: list[Anomaly] = []
        for _ in range(ticks):
            noise = 1.0 + 0.03 * self.random.standard_normal((3, N))
            load = 0.4 + 0.3 * np.sin(self.at / 60.0) * np.ones(N)
            values = np.full((N, len(HOST)), np.nan, np.float32)
            values[:, CPU] = load * noise[0]
            values[:, READ] = 2e8 * PERIOD_S * load * noise[1]
            values[:, RECEIVE] = 1e9 * PERIOD_S * load * noise[2]
            values[list(hosts), READ] *= reads
            tick = Tick(index=FIRST + self.at, period_ns=PERIOD_S * 10**9)
            self.table.means = Means(values, np.ones(N, bool), float(PERIOD_S))
            found += self.detector.step(cell_tick(tick, None, self.table, *self.nodes, rate=200.0 / BUDGET_S))
            self.at += 1
        return found

    def again(self) -> "Hosts":
        """The same after a restart."""
        other = Hosts()
        other.detector.load(unpack(pack(self.detector.state())), N)
        other.random.bit_generator.state, other.at = self.random.bit_generator.state, self.at
        return other


@pytest.fixture(scope="module")
def learnt() -> Hosts:
    """What is learnt in some hours; tests go on from a copy."""
    hosts = Hosts()
    assert hosts.run(LEARNT) == []
    return hosts


@pytest.fixture(scope="module")
def day(learnt: Hosts) -> Hosts:
    """What is learnt in a day; tests go on from a copy."""
    hosts = learnt.again()
    hosts.run(DAY - LEARNT)
    return hosts


def test_a_host_that_reads_what_its_load_does_not_explain_is_reported_once(learnt: Hosts) -> None:
    other, together, new = learnt.again(), learnt.again(), learnt.again()
    found = copy.deepcopy(learnt).run(30, reads=25.0)
    assert {(a.detector, a.subject, a.evidence[0].name) for a in found} == {
        (DETECTOR, "node-1", "system.disk.io{direction=read}")
    }
    assert found[0].time_ns <= (FIRST + LEARNT + 10) * PERIOD_S * 10**9
    assert found[0].evidence[0].unit == "By/s"
    assert found[0].evidence[0].value > 5.0 * (found[0].evidence[0].expected or 0.0) > 0.0
    assert 0.5 <= found[0].score < 1.0
    assert other.run(30, reads=25.0) == found, "a restart changes nothing"
    several = together.run(30, reads=25.0, hosts=(1, 2, 3))
    assert len({a.time_ns for a in several}) == len(several), "of hosts of one work the one that goes furthest"
    new.detector.reset([1])
    assert new.run(30, reads=25.0) == [], "a host with other work starts again"


def test_room_for_more_hosts_changes_nothing() -> None:
    hosts, more = Hosts(), Hosts()
    hosts.run(100)
    more.run(100)
    more.detector.resize(2 * N)
    assert len(more.detector.model.peak) == 2 * N
    np.testing.assert_array_equal(more.detector.model.usual.form[..., :N], hosts.detector.model.usual.form)


def test_other_work_of_the_same_kind_settles_within_the_hour_and_other_kinds_start_again() -> None:
    hosts = Hosts()
    hosts.detector.change_work({1: "training", 2: "training"})
    hosts.run(DAY)
    hosts.detector.change_work({1: ""})
    hosts.detector.change_work({1: "training", 2: "serving"})
    assert hosts.run(20, reads=25.0) == [], "the means are not known yet"
    hosts.run(20)
    assert (hosts.detector.model.usual.seen_s[1], hosts.detector.model.usual.seen_s[2]) == (
        60.0 * (DAY + 40),
        60.0 * 40,
    )
    found = hosts.again().run(60, reads=25.0, hosts=(1, 2))
    assert {a.subject for a in found} == {"node-1"}


def test_the_first_work_of_a_host_that_idled_starts_it_again(day: Hosts) -> None:
    hosts = day.again()
    hosts.detector.change_work({1: "training"})
    assert hosts.run(60, reads=200.0, hosts=(1,)) == []
    assert hosts.detector.model.usual.seen_s[1] == 60.0 * 60


def test_who_was_silent_behind_another_of_its_work_is_reported_when_that_one_is_well(day: Hosts) -> None:
    hosts = day.again()
    both = hosts.run(60, reads=(200.0, 30.0), hosts=(1, 2))
    assert {a.subject for a in both} == {"node-1"}
    later = hosts.run(200, reads=30.0, hosts=(2,))
    assert {a.subject for a in later} == {"node-2"}


def test_the_cause_of_each_series_is_known() -> None:
    def cause(metric: str) -> str:
        evidence = (Evidence(name=metric, value=1.0),)
        return of_anomaly(
            Anomaly(
                id="a", subject="n", cell=CELL, node="n", time_ns=1, detector=DETECTOR, score=0.6, evidence=evidence
            )
        )[0]

    causes = {metric: cause(metric) for metric in NOISE}
    assert set(causes.values()) == {"host", "storage", "network"}
    assert causes["system.disk.io{direction=read}"] == "storage"
