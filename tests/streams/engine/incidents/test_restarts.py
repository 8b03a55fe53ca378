"""Work that hangs for a reason that nothing shows is stopped and started again where its owner allows it."""

from typing import Any

import pytest
from msgspec.structs import replace
from numpy.random import Generator
from tests.streams.engine.cell.arbiter_harness import ArbiterHarness, node
from tests.streams.engine.cell.platform import proposal
from tests.streams.engine.closed_loop import ClosedLoop
from tests.streams.engine.incident_harness import IncidentHarness, moved, silence, symptom
from tests.streams.engine.scene import CELL, START_NS, Out, incoming_records, spec, tick

from flyball_contracts.config.fleet import Batch, FleetConfig, GridZone, NodePool, Training
from flyball_contracts.records import (
    AnyDecision,
    Check,
    Incident,
    Migrate,
    Preempt,
    Proposal,
    Record,
    Scale,
    Symptom,
    WorkloadSpec,
)
from flyball_simulator.cell.plant import Plant
from flyball_simulator.hardware.faults import Faults, FaultyGpu
from flyball_simulator.loads import Moment
from flyball_streams.engine.parameters import Parameters

AFTER_S = 120.0
TRAIN = spec("train", kind="training", max_replicas=64, restart_hung_after_s=AFTER_S, time_ns=START_NS + 1)


def hang(index: int, lasts_s: int, **changes: Any) -> Symptom:
    found = symptom("node-0", None, index, "unknown", "effect", workload="train", gang=True, detector="hang")
    return replace(found, since_ns=found.time_ns - lasts_s * 10**9, **changes)


def proposed(harness: IncidentHarness, index: int) -> list[Proposal]:
    return [p for p in harness.manager.proposals(tick(index)) if p.action == "restart"]


def test_a_hang_that_lasts_is_a_reason_to_restart_its_workload_if_the_owner_says_so() -> None:
    harness = IncidentHarness()
    harness.at(200, hang(200, 150))
    assert proposed(harness, 200) == [], "its owner has not allowed it"
    harness.know(TRAIN)
    harness.at(210, hang(210, 119))
    assert proposed(harness, 210) == []
    harness.at(220, hang(220, 120))
    (incident,) = harness.open()
    (found,) = proposed(harness, 220)
    assert found.workload == "train"
    assert found.reason == "it has stood still for 120 s, and nothing shows where that comes from"
    assert [(e.name, e.record) for e in found.evidence] == [("hang", "node-0/None/220"), ("incident", incident.id)]
    assert harness.manager.permits(found)
    harness.at(221)
    assert proposed(harness, 221) == [], "it is proposed when the hang is reported, as it may be over later"


WHY = ["a GPU is dead", "its program has crashed", "an operator has silenced it", "a decision explains it"]


@pytest.mark.parametrize("why", WHY)
def test_nothing_is_restarted_where(why: str) -> None:
    harness = IncidentHarness()
    harness.know(TRAIN)
    if why == "a GPU is dead":
        harness.at(100, symptom("node-1", 3, 100, "gpu", "fault", workload="train", detector="xid 79"))
    elif why == "its program has crashed":
        crash = symptom("node-1", 3, 70, "application", "effect", workload="train", gang=True, detector="xid 31")
        harness.at(70, crash)
    elif why == "an operator has silenced it":
        harness.know(silence(4, 10_000, workload="train"))
    else:
        harness.manager.note(moved(60, "node-1", 3))
    harness.at(200, hang(200, 130))
    assert proposed(harness, 200) == []


def restart(harness: ArbiterHarness, index: int) -> list[AnyDecision]:
    return harness.at(index, proposal("train", tick(index), 0, kind="restart"))


def gang(epoch: int, *held: str) -> Any:
    return node("n", 4, {name: (i,) for i, name in enumerate(held) if name}, epoch=epoch)


def test_all_replicas_stop_and_as_many_start_once_none_is_left() -> None:
    train = replace(TRAIN, gang_size=2, min_replicas=2, max_replicas=2)
    harness = ArbiterHarness(gang(1, "train/0", "train/1"), train, spec("other", priority=9))
    (stop,) = restart(harness, 0)
    assert isinstance(stop, Preempt)
    assert (stop.replicas_before, stop.replicas, stop.victims, stop.checkpoint) == (2, 0, (), False)
    assert stop.restarts
    assert stop.invalid(train) == "", "the minimum is for running replicas, and a restart is no loan of room"
    assert stop.change() == "2 → 0 replicas, then 2 again: it hangs"
    harness.report(stop, "running")
    assert restart(harness, 10) == [], "it is under way"
    harness.know(gang(2, "train/1"))
    assert harness.at(20) == [], "one rank still stops"
    harness.know(gang(3))
    harness.report(stop, "done")
    (start, *others) = harness.at(21, proposal("other", tick(21), 4))
    assert isinstance(start, Scale)
    assert (start.workload, start.replicas_before, start.replicas) == ("train", 0, 2)
    assert [(d.workload, d.replicas) for d in others if isinstance(d, Scale)] == [("other", 2)], "its room is its own"
    harness.know(gang(4, "train/2", "train/3", "other/0", "other/1"))
    harness.report(start, "done")
    assert harness.at(99) == []
    assert len(restart(harness, 100)) == 1


def test_what_has_stopped_waits_for_checks_of_its_nodes_and_others_do_not_get_its_room() -> None:
    harness = ArbiterHarness(gang(1, "train/0", "train/1"), replace(TRAIN, gang_size=2, max_replicas=2), spec("other"))
    (stop,) = restart(harness, 0)
    harness.know(gang(2))
    harness.report(stop, "done")

    def decided(index: int, *, checked: bool) -> list[tuple[str, int]]:
        others = [proposal("other", tick(index), 4)]
        made = list(harness.arbiter.decide(tick(index), others, is_checked=lambda name: checked and name == "train"))
        assert all(isinstance(one, Scale) for one in made)
        return [(one.workload, one.replicas) for one in made if isinstance(one, Scale)]

    assert decided(10, checked=True) == [("other", 2)]
    assert decided(20, checked=False) == [("train", 2)]


def stopped_without_room(train: WorkloadSpec, *others: Record) -> ArbiterHarness:
    """It has stopped, and two of its four GPUs are out."""
    harness = ArbiterHarness(gang(1, "train/0", "train/1", "train/2", "train/3"), train, *others)
    (stop,) = restart(harness, 0)
    harness.know(gang(2))
    harness.report(stop, "done")
    harness.arbiter.memory.unhealthy.update({"n/0": 10**30, "n/1": 10**30})
    return harness


def test_a_gang_that_lacks_room_after_its_node_has_failed_waits_and_that_is_known() -> None:
    train = replace(TRAIN, gang_size=4, min_replicas=4, max_replicas=4)
    harness = stopped_without_room(train)
    assert harness.at(10) == []
    assert harness.arbiter.memory.wants["train"].replicas == 4
    harness.arbiter.memory.unhealthy.clear()
    (start,) = harness.at(11)
    assert isinstance(start, Scale)
    assert start.replicas == 4


def test_less_important_work_gives_way_to_a_gang_that_starts_again() -> None:
    train = replace(TRAIN, gang_size=4, min_replicas=4, max_replicas=4, priority=9)
    low = spec("low", interruptible=True, priority=1)
    harness = stopped_without_room(train, low, node("m", 2, {"low/0": (0,), "low/1": (1,)}))
    (victim, start) = harness.at(10)
    assert isinstance(victim, Preempt)
    assert isinstance(start, Scale)
    assert (victim.workload, victim.beneficiary, start.workload, start.replicas) == ("low", "train", "train", 4)


def test_an_elastic_gang_starts_with_fewer_and_the_others_follow() -> None:
    train = replace(TRAIN, gang_size=1, min_replicas=2, max_replicas=4)
    harness = stopped_without_room(train)
    (start,) = harness.at(10)
    assert isinstance(start, Scale)
    assert start.replicas == 2
    assert "room for 2 of 4 only" in start.reason
    harness.know(gang(3, "", "", "train/4", "train/5"))
    harness.report(start, "done")
    assert harness.at(100) == []
    harness.arbiter.memory.unhealthy.clear()
    later = [d for i in range(101, 2000, 10) for d in harness.at(i)]
    assert [(d.workload, d.replicas) for d in later if isinstance(d, Scale)][:1] == [("train", 4)]


def test_what_is_stopped_to_be_restarted_is_not_started_by_a_proposal_of_its_own() -> None:
    train = replace(TRAIN, gang_size=1, min_replicas=0, max_replicas=4)
    harness = ArbiterHarness(gang(1, "train/0", "train/1"), train)
    (stop,) = restart(harness, 0)
    harness.know(gang(2))
    harness.report(stop, "done")
    own = proposal("train", tick(100), 1)
    assert list(harness.arbiter.decide(tick(100), [own], is_checked=lambda _: True)) == []


def test_a_rank_that_only_a_dead_node_still_lists_holds_nothing_up() -> None:
    """The actuator reports that all have stopped; nothing is moved meanwhile, as there is nothing to move."""
    dead = node("m", 4, {"train/1": (0,)})
    train = replace(TRAIN, gang_size=2, min_replicas=2, max_replicas=2)
    harness = ArbiterHarness(gang(1, "train/0"), dead, train)
    (stop,) = restart(harness, 0)
    harness.know(gang(2))
    move = proposal("train", tick(5), 0, 1, "migrate", replica="1", node="m", device="m/0", confidence=0.95)
    assert harness.at(5, move) == []
    harness.report(stop, "done")
    harness.arbiter.memory.unhealthy.update({d.id: 10**30 for d in dead.devices})
    (start,) = harness.at(6)
    assert isinstance(start, Scale)
    assert (start.replicas_before, start.replicas) == (0, 2)


@pytest.mark.parametrize("status", ["refused", "failed", "planned"])
def test_a_restart_that_is_not_carried_out_starts_nothing_and_is_tried_again(status: Any) -> None:
    harness = ArbiterHarness(gang(1, "train/0", "train/1"), replace(TRAIN, gang_size=2, max_replicas=2))
    (stop,) = restart(harness, 0)
    harness.report(stop, status)
    assert [harness.at(i) for i in range(1, 200)] == [[]] * 199
    assert len(restart(harness, 700)) == 1


def test_a_workload_of_which_other_work_has_taken_replicas_is_not_restarted() -> None:
    """It would come back with those that are left, and the others would be forgotten."""
    low = replace(TRAIN, interruptible=True, priority=1, max_replicas=4)
    harness = ArbiterHarness(gang(1, *(f"train/{i}" for i in range(4))), low, spec("other", priority=9))
    stop, _ = harness.at(0, proposal("other", tick(0), 2))
    assert isinstance(stop, Preempt)
    assert not stop.restarts
    harness.know(gang(2, "train/0", "train/1", "other/0", "other/1"))
    assert restart(harness, 100) == []


def test_a_workload_of_which_a_rank_is_moved_is_not_stopped() -> None:
    harness = ArbiterHarness(gang(1, "train/0", "train/1"), node("m", 2), replace(TRAIN, gang_size=2, max_replicas=2))
    at_ = tick(0)
    move = proposal(
        "train", at_, 0, 1, "migrate", replica="0", node="n", device="n/0", confidence=0.95, observed_replicas=None
    )
    assert [type(d) for d in harness.at(0, move, proposal("train", at_, 0, kind="restart"))] == [Migrate]
    assert restart(harness, 1) == []


class Hung(Faults):
    """From a time on, the ranks of a gang wait for one of them: for its processes, or for its GPU."""

    def __init__(self, plant: Plant, from_s: float, *, stays: bool) -> None:
        super().__init__(plant.config, plant.site, plant.placement, plant.start_ns)
        self.from_s, self.stays, self.placed = from_s, stays, plant.placement.placed[plant.workload("train")]
        self.rank = self.placed[0]
        self.row = int(self.rank.rows[0])

    def faulty(self, moment: Moment, random: Generator) -> list[FaultyGpu]:
        holds = self.stays or self.rank in self.placed
        hung = [FaultyGpu(self.row, 1.0, link_pace=0.0)] if holds and moment.t_s >= self.from_s else []
        return [*super().faulty(moment, random), *hung]


class Loop(ClosedLoop):
    """The loop, and the incidents."""

    def __init__(self, *, stays: bool) -> None:
        pool = NodePool(name="pool", sku="h100", nodes=4, zone="z", gpus_per_node=4)
        fleet = FleetConfig(
            cell=CELL, tick_s=10.0, zones=(GridZone(name="z"),), pools=(pool,), services=(), notebooks=(),
            trainings=(Training(name="train", pools=("pool",), replicas=4, gpus_per_replica=2, cold_start_s=60.0),),
            batches=(Batch(name="sort", pools=("pool",), replicas=2, nominal_replicas=8, duration_s=1e6),),
            failing=(), straggling=(),
        )  # fmt: skip
        self.incidents: dict[str, Incident] = {}
        super().__init__(fleet, Parameters())
        plant = self.fleet.plant
        plant.faults = Hung(plant, 600.0, stays=stays)
        owned = replace(plant.specs[plant.workload("train")], restart_hung_after_s=AFTER_S, time_ns=START_NS + 1)
        self.engine.feed(incoming_records(owned))

    def published(self, sent: list[Any]) -> list[Any]:
        self.incidents.update({one.id: one for one in Out(sent).of(Incident)})
        return sent


def test_a_gang_whose_hang_ends_with_its_processes_trains_on_within_minutes() -> None:
    loop = Loop(stays=False)
    loop.run(100)
    assert [type(d) for d in loop.decisions] == [Preempt, Scale]
    stop, start = loop.decisions
    after_s = (stop.time_ns - loop.fleet.start_ns) / 1e9 - 600.0
    assert AFTER_S <= after_s <= AFTER_S + 60.0
    assert start.time_ns - stop.time_ns <= 60 * 10**9, "it need not wait for the rate limit of its target"
    assert {o.status for o in loop.outcomes} == {"accepted", "done"}
    plant = loop.fleet.plant
    w = plant.workload("train")
    assert (plant.ready(w), plant.hung(w)) == (4, False)
    (incident,) = loop.incidents.values()
    assert [(a.type, a.status) for a in incident.actions] == [("Preempt", "done")]


def test_a_gang_whose_hang_stays_with_a_gpu_trains_on_without_its_node() -> None:
    """It is reported again though the gang has not worked on its GPUs since, and a check finds the node."""
    loop = Loop(stays=True)
    loop.run(130)
    assert [type(d) for d in loop.decisions] == [Preempt, Scale, Preempt, Check, Scale]
    second, check = loop.decisions[2:4]
    assert isinstance(check, Check)
    assert (second.time_ns - loop.fleet.start_ns) / 1e9 <= 1200.0
    assert "its nodes are checked before it starts" in second.reason
    plant = loop.fleet.plant
    w = plant.workload("train")
    assert (plant.ready(w), plant.hung(w)) == (4, False)
    bad = plant.site.nodes[int(plant.site.node_of[0])].name
    assert check.node == bad
    assert bad not in {plant.site.nodes[rank.node].name for rank in plant.placement.placed[w]}
    failed = [o for o in loop.outcomes if o.status == "failed"]
    assert [o.decision for o in failed] == [check.id]
    (incident,) = (i for i in loop.incidents.values() if any(a.type == "Check" for a in i.actions))
    assert incident.workload == "train"
