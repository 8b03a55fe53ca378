"""Operations: what the platform does about a decision, until its effect is there or it is given up."""

from itertools import pairwise

import pytest
from msgspec.structs import replace
from tests.simulator.orders import CONFIG, START_NS, migrate, preempt, scale

from flyball_contracts.config import FleetConfig
from flyball_contracts.records import AnyDecision, Resources
from flyball_contracts.simulated import Operation, Submission
from flyball_simulator import Fleet
from flyball_simulator.operations import Refused

CALM = replace(CONFIG, failing=(), straggling=(), services=tuple(replace(s, bursts=()) for s in CONFIG.services))


def submit(fleet: Fleet, decision: AnyDecision, version: str = "", *, dry_run: bool = False) -> Operation:
    return fleet.operations.submit(Submission(decision=decision, version=version, dry_run=dry_run))


def run(fleet: Fleet, ticks: int) -> None:
    for i in range(fleet.plant.index, fleet.plant.index + ticks):
        fleet.tick(i)


def until_over(fleet: Fleet, decision: AnyDecision, most: int = 400) -> Operation:
    for _ in range(most):
        found = fleet.operations.find(decision.id)
        assert found is not None
        if found.status != "running":
            return found
        run(fleet, 1)
    raise AssertionError(f"{decision.id} still runs after {most} ticks")


def seconds(operation: Operation) -> float:
    assert operation.ended_ns is not None
    return (operation.ended_ns - operation.submitted_ns) / 1e9


def test_scaling_out_is_done_when_all_are_ready() -> None:
    fleet, out = Fleet(CALM, START_NS), scale("embed-api", 9)
    run(fleet, 5)
    began = submit(fleet, out)
    assert (began.status, began.effects, began.before.replicas, began.expected.replicas) == ("running", 1, 6, 9)
    assert began.observed.ready == 6
    ended = until_over(fleet, out)
    assert (ended.status, ended.observed.replicas, ended.observed.ready) == ("done", 9, 9)
    assert seconds(ended) == 30.0


def test_scaling_in_is_done_when_the_others_are_gone() -> None:
    fleet, less = Fleet(CALM, START_NS), scale("embed-api", 4)
    run(fleet, 5)
    submit(fleet, less)
    ended = until_over(fleet, less)
    assert (ended.status, ended.observed.ready, seconds(ended)) == ("done", 4, 5.0)


def test_without_room_it_fails_and_leaves_nothing_behind() -> None:
    fleet, out = Fleet(replace(CALM, room_wait_s=60.0), START_NS), scale("chat-api", 40)
    submit(fleet, out)
    ended = until_over(fleet, out)
    assert (ended.status, seconds(ended)) == ("failed", 60.0)
    assert "22 of 40 replicas have a place" in ended.detail
    assert ended.observed.replicas == ended.observed.ready == 22
    submit(fleet, preempt("synth-data", 0))
    run(fleet, 30)
    assert fleet.workload("chat-api").replicas == 22


def test_a_newer_operation_supersedes_the_older_one() -> None:
    fleet, first, second = Fleet(CALM, START_NS), scale("embed-api", 12), scale("embed-api", 8)
    submit(fleet, first)
    run(fleet, 3)
    submit(fleet, second)
    found = fleet.operations.find(first.id)
    assert found is not None
    assert found.status == "superseded"
    assert second.id in found.detail
    assert until_over(fleet, second).observed.ready == 8
    assert fleet.operations.all()[0].status == "superseded"


def test_a_decision_has_one_effect_however_often_it_is_submitted() -> None:
    fleet, out = Fleet(CALM, START_NS), scale("embed-api", 9)
    submit(fleet, out)
    version = fleet.workload("embed-api").version
    run(fleet, 2)
    again = submit(fleet, out)
    assert (again.submissions, again.effects) == (2, 1)
    assert fleet.workload("embed-api").version == version
    until_over(fleet, out)
    assert submit(fleet, out).status == "done"
    submit(fleet, scale("embed-api", 5))
    assert submit(fleet, out).submissions == 4
    assert fleet.workload("embed-api").replicas == 5


def test_a_stale_version_is_a_conflict() -> None:
    fleet = Fleet(CALM, START_NS)
    seen = [fleet.workload("embed-api").version]
    for replicas in (7, 8):
        submit(fleet, scale("embed-api", replicas), seen[-1])
        seen.append(fleet.workload("embed-api").version)
    assert all(a != b for a, b in pairwise(seen))
    with pytest.raises(Refused, match="look again") as refused:
        submit(fleet, scale("embed-api", 3), seen[0])
    assert refused.value.code == "conflict"
    assert fleet.workload("embed-api").replicas == 8


def test_a_dry_run_changes_nothing() -> None:
    fleet, twin = Fleet(CALM, START_NS), Fleet(CALM, START_NS)
    for decision in (scale("embed-api", 9), preempt("synth-data", 0), migrate("chat-api", "chat-api-0")):
        planned = submit(fleet, decision, dry_run=True)
        assert planned.effects == 0
        assert planned.expected != planned.before
    assert fleet.operations.all() == []
    with pytest.raises(Refused):
        submit(fleet, scale("embed-api", 99), dry_run=True)
    assert [fleet.tick(i) for i in range(5)] == [twin.tick(i) for i in range(5)]


def test_exactly_the_victims_stop_and_nothing_takes_their_place() -> None:
    fleet = Fleet(CALM, START_NS)
    stop = preempt("synth-data", 22, victims=("synth-data-3", "synth-data-11"), until_ns=START_NS + 10**12)
    run(fleet, 1)
    submit(fleet, stop)
    ended = until_over(fleet, stop)
    assert (ended.status, ended.observed.nodes) == ("done", {"synth-data-3": "", "synth-data-11": ""})
    assert seconds(ended) == 10.0  # the checkpoint
    assert str(START_NS + 10**12) in ended.detail
    run(fleet, 100)
    left = fleet.workload("synth-data")
    assert (left.replicas, left.ready, left.suspended) == (22, 22, False)
    assert not {"synth-data-3", "synth-data-11"} & set(left.nodes)


def test_what_is_preempted_comes_back_by_a_scale() -> None:
    fleet, back = Fleet(CALM, START_NS), scale("protein-fold", 16)
    submit(fleet, preempt("protein-fold", 0))
    run(fleet, 60)
    rests = fleet.workload("protein-fold")
    assert (rests.replicas, rests.ready, rests.suspended) == (0, 0, True)
    submit(fleet, back)
    ended = until_over(fleet, back)
    assert (ended.status, ended.observed.ready, ended.observed.suspended) == ("done", 16, False)


@pytest.mark.parametrize(("checkpoint", "stops_s"), [(True, 10.0), (False, 5.0)])
def test_a_checkpoint_takes_time_and_loses_nothing(checkpoint: bool, stops_s: float) -> None:
    fleet, stop = Fleet(CALM, START_NS), preempt("protein-fold", 0, checkpoint=checkpoint)
    run(fleet, 241)
    fold = [s.workload for s in fleet.workloads].index("protein-fold")
    before = float(fleet.plant.batches.progress[1])
    submit(fleet, stop)
    assert seconds(until_over(fleet, stop)) == stops_s
    run(fleet, 20)
    after, lost_gpu_s = float(fleet.plant.batches.progress[1]), fleet.plant.lost_gpu_s[fold]
    if checkpoint:
        assert (after, lost_gpu_s) == (before, 0.0)
    else:
        assert lost_gpu_s == pytest.approx(16 * 241)  # a period of 600 s was 40 % over when the fleet started
        assert before - after == pytest.approx(241 / 10_800)


def test_a_replica_moves_without_a_gap() -> None:
    fleet = Fleet(CALM, START_NS)
    run(fleet, 1)
    node = fleet.workload("chat-api").nodes["chat-api-4"]
    move = migrate("chat-api", "chat-api-4", from_node=node)
    submit(fleet, move)
    ready: list[int | None] = []
    for _ in range(30):
        ready.append(fleet.workload("chat-api").ready)
        run(fleet, 1)
    ended = until_over(fleet, move)
    assert min(r for r in ready if r is not None) == 12
    assert (ended.status, ended.observed.ready, seconds(ended)) == ("done", 12, 35.0)
    moved = dict(ended.observed.nodes)
    assert moved.pop("chat-api-4") == ""
    assert list(moved) == ["chat-api-12"]
    assert moved["chat-api-12"] != node
    assert not fleet.node(node).schedulable


def test_a_rank_leaves_a_dead_gpu_and_its_gang_goes_on_from_the_last_checkpoint() -> None:
    fleet = Fleet(CONFIG, START_NS)
    run(fleet, 60)  # dead since second 28
    node = next(n for n in fleet.nodes if any(a.replica == "vision-train-3" for a in n.allocations))
    device = node.devices[next(a for a in node.allocations if a.replica == "vision-train-3").devices[0]].id
    move = migrate("vision-train", "vision-train-3", from_node=node.node, from_device=device)
    submit(fleet, move)
    ended = until_over(fleet, move)
    assert (ended.status, ended.observed.ready, seconds(ended)) == ("done", 8, 30.0)
    assert ended.observed.nodes["vision-train-3"] != node.node
    planned = fleet.node(node.node)
    assert (planned.schedulable, planned.cordoned) == (True, (device,))
    shown = next(n for n in fleet.nodes if n.node == node.node)
    assert [d.id for d in shown.devices if not d.schedulable] == [device]
    gang = [s.workload for s in fleet.workloads].index("vision-train")
    # What it did in 28 s since its last checkpoint, and 32 s in which it hung.
    assert fleet.plant.lost_gpu_s[gang] == pytest.approx(8 * 4 * 60, rel=0.05)
    submit(fleet, scale("speech-api", 14))
    run(fleet, 60)
    row = next(n.first for n in fleet.site.nodes if n.name == node.node) + [d.id for d in node.devices].index(device)
    assert fleet.placement.owner[row] == -1


def test_a_gang_that_can_saves_its_work_before_it_moves() -> None:
    fleet, move = Fleet(CALM, START_NS), migrate("vision-train", "vision-train-3")
    run(fleet, 100)
    submit(fleet, move)
    assert seconds(until_over(fleet, move)) == 35.0  # a checkpoint of 5 s and a cold start of 30 s
    assert fleet.plant.lost_gpu_s.sum() == 0


def test_a_low_power_limit_saves_power_and_slows() -> None:
    fleet, limit = Fleet(CALM, START_NS), scale("protein-fold", 16, power_limit_w=200.0)
    run(fleet, 60)

    def measured(ticks: int) -> tuple[float, float]:
        before, power = float(fleet.plant.batches.progress[1]), 0.0
        held = fleet.placement.owner == [s.workload for s in fleet.workloads].index("protein-fold")
        for _ in range(ticks):
            run(fleet, 1)
            drawn_w = fleet.plant.gpus.power_w
            assert drawn_w is not None
            power = float(drawn_w[held].max())
        return float(fleet.plant.batches.progress[1]) - before, power

    free = measured(30)
    submit(fleet, limit)
    assert until_over(fleet, limit).observed.power_limit_w == 200.0
    run(fleet, 30)
    low = measured(30)
    assert low[1] <= 200.0 < free[1]
    assert 0.3 * free[0] < low[0] < 0.95 * free[0]
    with pytest.raises(Refused, match="power_limit_w"):
        submit(fleet, scale("protein-fold", 16, power_limit_w=401.0))


def test_resources_are_changed_in_place() -> None:
    fleet = Fleet(CALM, START_NS)
    run(fleet, 1)
    submit(fleet, scale("chat-api", 12, resources=Resources(cpu=8.0, memory_bytes=2**36)))
    bigger = scale("chat-api", 12, resources=Resources(memory_bytes=2**37))
    submit(fleet, bigger)
    assert until_over(fleet, bigger).observed.resources == Resources(cpu=8.0, memory_bytes=2**37)
    assert fleet.workload("chat-api").ready == 12
    batches = [
        scale("chat-api", 12, resources=Resources(cpu=4.0), batch_size=size, id=f"batch-{size}") for size in (7, 5)
    ]
    shown = [(submit(fleet, one), until_over(fleet, one).observed.resources)[1] for one in batches]
    assert shown == [None, Resources(cpu=4.0, memory_bytes=2**37)], "what not all of them have is nobody's size"
    with pytest.raises(Refused, match="whole GPUs only"):
        submit(fleet, scale("chat-api", 12, resources=Resources(gpu_profile="1g.10gb")))


def test_a_service_replica_on_a_dead_gpu_is_not_ready() -> None:
    failing = (replace(CONFIG.failing[0], workload="embed-api", replica=2, from_s=2.0, dies_after_s=2.0),)
    fleet = Fleet(replace(CALM, failing=failing), START_NS)
    run(fleet, 10)
    assert fleet.workload("embed-api").ready == 5


def test_nothing_is_placed_on_a_gpu_that_died_while_it_was_free() -> None:
    failing = (replace(CONFIG.failing[0], workload="embed-api", replica=5, from_s=10.0),)
    fleet = Fleet(replace(CALM, failing=failing), START_NS)
    row, _ = fleet.plant.faults.failing[0]
    submit(fleet, scale("embed-api", 5))
    run(fleet, 25)
    submit(fleet, scale("chat-api", 22))  # as many as there were free GPUs
    run(fleet, 5)
    assert fleet.placement.owner[row] == -1
    assert len(fleet.workload("chat-api").nodes) == 22
    submit(fleet, scale("embed-api", 6))
    run(fleet, 5)
    assert fleet.placement.owner[row] == -1
    assert sum(not d.schedulable for n in fleet.nodes for d in n.devices) == 1


def test_the_same_orders_at_the_same_ticks_give_the_same_bytes() -> None:
    def sent(config: FleetConfig) -> list[bytes]:
        fleet = Fleet(config, START_NS)
        found: list[bytes] = []
        for i in range(50):
            if i == 10:
                submit(fleet, scale("chat-api", 20, id="a"))
            if i == 12:
                submit(fleet, migrate("vision-train", "vision-train-3", id="b"))
            if i == 30:
                submit(fleet, preempt("synth-data", 5, id="c"))
            found += [m.value for m in fleet.tick(i)]
        return found

    assert sent(CONFIG) == sent(CONFIG)
