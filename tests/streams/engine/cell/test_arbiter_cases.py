"""What the arbiter does in the cases that people ask about."""

from typing import Any

import msgspec
import pytest
from tests.streams.engine.cell.arbiter_harness import ArbiterHarness, move, node
from tests.streams.engine.cell.platform import proposal
from tests.streams.engine.scene import FIRST, PERIOD_NS, START_NS, spec, tick

from flyball_contracts.records import (
    Migrate,
    Preempt,
    Scale,
    WorkloadSpec,
)
from flyball_streams.engine.cell.arbiter import QUARANTINE_S


def test_it_grants_what_there_is_and_says_so() -> None:
    harness = ArbiterHarness(node("n", 3), spec("a", max_replicas=9))
    (scale,) = harness.want(0, "a", 9)
    assert isinstance(scale, Scale)
    assert (scale.replicas_before, scale.replicas) == (0, 3)
    assert scale.reason == "Scale a out from 0 to 3: the test says so; room for 3 of 9 only."
    assert scale.evidence[-1].record == f"{FIRST}-a-0"
    assert scale.expires_ns == scale.time_ns + 60 * PERIOD_NS


def test_an_order_is_believed_until_it_is_seen_or_expires_and_then_decided_anew() -> None:
    harness = ArbiterHarness(node("n", 8), spec("a"))
    (first,) = harness.want(0, "a", 2)
    assert harness.want(20, "a", 2) == []
    (again,) = harness.want(61, "a", 2)  # nobody obeyed
    assert (again.id != first.id, again.workload) == (True, "a")
    harness.know(node("n", 8, {"a/0": (0,), "a/1": (1,)}, epoch=2))
    assert harness.want(90, "a", 2) == []


def test_a_refused_order_is_not_believed() -> None:
    harness = ArbiterHarness(node("n", 8), spec("a"))
    (first,) = harness.want(0, "a", 6)
    harness.refuse(first)
    assert harness.want(1, "a", 6) == []  # not at once
    (second,) = harness.want(6, "a", 6)
    assert isinstance(second, Scale)
    assert second.replicas_before == 0


def test_it_turns_back_only_after_a_while() -> None:
    harness = ArbiterHarness(node("n", 8, {"a/0": (0,), "a/1": (1,)}), spec("a"))
    (out,) = harness.want(0, "a", 4)
    harness.know(node("n", 8, {f"a/{i}": (i,) for i in range(4)}, epoch=2))
    assert harness.want(29, "a", 2) == []
    assert harness.want(4, "a", 5) == []
    (back,) = harness.want(30, "a", 2)
    assert [d.replicas for d in (out, back) if isinstance(d, Scale)] == [4, 2]


@pytest.mark.parametrize(("requested", "granted"), [(1, 4), (4, 4), (5, 8), (99, 8)])
def test_gangs_run_whole_or_not_at_all(requested: int, granted: int) -> None:
    gang = spec("g", gang_size=4, max_replicas=8)
    (scale,) = ArbiterHarness(node("n", 9), gang).want(0, "g", requested)
    assert isinstance(scale, Scale)
    assert scale.replicas == granted
    assert ArbiterHarness(node("n", 3), gang).want(0, "g", requested) == []


def test_it_does_not_preempt_in_vain() -> None:
    """Two GPUs could be had, but the gang needs four."""
    harness = ArbiterHarness(
        node("n", 2, {"low/0": (0,), "low/1": (1,)}),
        spec("low", priority=1, interruptible=True),
        spec("gang", priority=5, gang_size=4),
    )
    assert harness.want(0, "gang", 4) == []


def test_it_preempts_no_more_than_helps_and_names_it() -> None:
    h, a = node("h", 2, {"low/0": (0,), "low/1": (1,)}), node("a", 2, {"low/2": (0,), "low/3": (1,)})
    a = msgspec.structs.replace(a, devices=tuple(msgspec.structs.replace(d, model="a100") for d in a.devices))
    harness = ArbiterHarness(
        h, a, spec("low", priority=1, interruptible=True, checkpoint_s=9.0),
        spec("high", priority=5, gpu_models=("a100",)),
    )  # fmt: skip
    preempt, scale = harness.want(0, "high", 3)
    assert isinstance(preempt, Preempt)
    assert (preempt.victims, preempt.replicas_before, preempt.replicas) == (("2", "3"), 4, 2)
    assert (preempt.beneficiary, preempt.checkpoint) == ("high", True)
    assert preempt.reason == (
        "Preempt 2 of 4 replicas of low (priority 1): without them there is room for 2 more of high (priority 5)."
    )
    assert isinstance(scale, Scale)
    assert scale.replicas == 2


def test_a_gang_that_spans_nodes_gives_way_as_a_whole_and_counts_once() -> None:
    harness = ArbiterHarness(
        node("n1", 4, {"gang/0": (0, 1), "gang/1": (2, 3)}),
        node("n2", 4, {"gang/0": (0, 1), "gang/1": (2, 3)}),
        spec("gang", priority=1, gang_size=2, interruptible=True, gpus_per_replica=4.0),
        spec("high", priority=5),
    )
    preempt, scale = harness.want(0, "high", 8)
    assert isinstance(preempt, Preempt)
    assert (preempt.replicas_before, preempt.replicas, preempt.victims) == (2, 0, ("0", "1"))
    assert isinstance(scale, Scale)
    assert scale.replicas == 8


def test_the_same_replicas_are_not_preempted_twice() -> None:
    harness = ArbiterHarness(
        node("n", 4, {f"low/{i}": (i,) for i in range(4)}),
        spec("low", priority=1, interruptible=True), spec("b", priority=5), spec("c", priority=4),
    )  # fmt: skip
    first, *_ = harness.want(0, "b", 2)
    second, *_ = harness.want(1, "c", 2)
    assert isinstance(first, Preempt)
    assert isinstance(second, Preempt)
    assert (first.victims, second.victims) == (("0", "1"), ("2", "3"))
    assert (second.replicas_before, second.replicas) == (2, 0)


def test_what_was_preempted_comes_back_when_there_is_room_for_a_while() -> None:
    low = spec("low", priority=1, interruptible=True)
    harness = ArbiterHarness(node("n", 2, {"low/0": (0,), "low/1": (1,)}), low, spec("high", priority=5))
    harness.want(0, "high", 2)
    harness.know(node("n", 2, {"high/0": (0,), "high/1": (1,)}, epoch=2))
    assert harness.at(40) == []  # no room
    harness.know(node("n", 2, {}, epoch=3))
    (back,) = harness.at(41)
    assert isinstance(back, Scale)
    assert (back.workload, back.replicas_before, back.replicas) == ("low", 0, 2)
    assert harness.at(42) == []


def test_a_job_that_pauses_of_its_own_will_is_not_brought_back() -> None:
    low = spec("low", priority=1, interruptible=True)
    harness = ArbiterHarness(node("n", 2, {"low/0": (0,), "low/1": (1,)}), low, spec("high", priority=5))
    harness.want(0, "high", 1)
    harness.know(node("n", 2, {"low/1": (1,), "high/0": (0,)}, epoch=2))
    (pause,) = harness.want(1, "low", 0, kind="pause", until_ns=START_NS + 10**12)
    assert isinstance(pause, Preempt)
    assert (pause.replicas, pause.until_ns, pause.victims) == (0, START_NS + 10**12, ())
    harness.know(node("n", 2, {}, epoch=3))
    assert harness.at(100) == []


def test_two_faulty_replicas_are_not_sent_to_the_same_free_gpu() -> None:
    harness = ArbiterHarness(node("n1", 2, {"a/0": (0,), "a/1": (1,)}), node("n2", 1), node("n3", 1), spec("a"))
    moves = harness.at(0, move(0, "a", "0", "n1", 0), move(0, "a", "1", "n1", 1))
    assert [m.to_node for m in moves if isinstance(m, Migrate)] == ["n2", "n3"]
    assert harness.want(1, "a", 4) == []  # both are taken, and what they leave is sick


def test_a_replica_is_moved_once_however_many_of_its_gpus_are_sick() -> None:
    harness = ArbiterHarness(node("n1", 2, {"a/0": (0, 1)}), node("n2", 2), spec("a", gpus_per_replica=2.0))
    (first,) = harness.at(0, move(0, "a", "0", "n1", 0), move(0, "a", "0", "n1", 1))
    assert isinstance(first, Migrate)
    assert first.to_node == "n2"
    assert harness.at(30, move(30, "a", "0", "n1", 1)) == []


def test_a_move_that_was_refused_gives_its_room_back() -> None:
    harness = ArbiterHarness(node("n1", 1, {"a/0": (0,)}), node("n2", 1), spec("a"), spec("b"))
    (first,) = harness.at(0, move(0, "a", "0", "n1", 0))
    assert harness.want(1, "b", 1) == []
    harness.refuse(first)
    assert len(harness.want(2, "b", 1)) == 1


def test_nothing_is_put_on_a_faulty_gpu_for_a_good_while_even_if_nothing_runs_there() -> None:
    harness = ArbiterHarness(node("n1", 1), spec("a"))
    nobody = proposal("", tick(0), 0, 0, "migrate", node="n1", device="n1/0")
    assert harness.at(0, nobody) == []
    assert harness.want(10, "a", 1) == []
    assert harness.want(int(QUARANTINE_S) - 1, "a", 1) == []
    assert len(harness.want(int(QUARANTINE_S) + 1, "a", 1)) == 1


def test_a_proposal_about_a_replica_that_has_moved_is_void() -> None:
    harness = ArbiterHarness(node("n1", 1), node("n2", 1, {"a/0": (0,)}), spec("a"))
    assert harness.at(0, move(0, "a", "0", "n1", 0)) == []


def test_a_proposal_made_on_another_number_does_not_do_the_opposite() -> None:
    """A lane that has not heard of any replica wants the first one; eight run."""
    harness = ArbiterHarness(node("n", 8, {f"a/{i}": (i,) for i in range(8)}), spec("a"))
    assert harness.want(0, "a", 1, observed_replicas=0) == []
    assert len(harness.want(0, "a", 1, observed_replicas=8)) == 1


def test_drained_nodes_and_those_whose_agent_has_stopped_have_no_room() -> None:
    for closed in (node("n", 4, schedulable=False), node("n", 4, agent="stopped")):
        assert ArbiterHarness(closed, spec("a")).want(0, "a", 1) == []
    assert ArbiterHarness(node("n", 4, agent="none"), spec("a")).want(0, "a", 1) != []


def test_cordoned_devices_have_no_room() -> None:
    whole = node("n", 4)
    first, *others = whole.devices
    cordoned = msgspec.structs.replace(whole, devices=(msgspec.structs.replace(first, schedulable=False), *others))
    (scale,) = ArbiterHarness(cordoned, spec("a")).want(0, "a", 4)
    assert isinstance(scale, Scale)
    assert scale.replicas == 3


def test_one_node_may_have_two_models() -> None:
    mixed = node("n", 2)
    first, second = mixed.devices
    mixed = msgspec.structs.replace(mixed, devices=(first, msgspec.structs.replace(second, model="a100")))
    (scale,) = ArbiterHarness(mixed, spec("a", gpu_models=("a100",))).want(0, "a", 2)
    assert isinstance(scale, Scale)
    assert scale.replicas == 1


@pytest.mark.parametrize("changes", [{"removed": True}, {"cell": "another"}])
def test_workloads_that_are_gone_or_anothers_are_left_alone(changes: dict[str, Any]) -> None:
    gone: WorkloadSpec = spec("a", time_ns=START_NS + 1, **changes)
    harness = ArbiterHarness(node("n", 4, {"a/0": (0,)}), spec("a"))
    harness.want(0, "a", 2)
    harness.know(gone)
    assert harness.want(70, "a", 4) == []
    assert harness.want(71, "a", 0, kind="pause") == []
    assert harness.at(72, move(72, "a", "0", "n", 0)) == []


def test_a_clock_that_is_set_back_does_not_bind_the_arbiter() -> None:
    harness = ArbiterHarness(node("n", 8), spec("a"))
    harness.want(1000, "a", 2)
    (scale,) = harness.want(0, "a", 2)
    assert scale.time_ns == (FIRST + 1) * PERIOD_NS


def test_what_was_preempted_comes_back_after_the_clock_was_set_back() -> None:
    low = spec("low", priority=1, interruptible=True)
    harness = ArbiterHarness(node("n", 2, {"low/0": (0,), "low/1": (1,)}), low, spec("high", priority=5))
    harness.want(100_000, "high", 2)
    harness.know(node("n", 2, {}, epoch=2))
    assert harness.at(0) == []
    (back,) = harness.at(100)
    assert isinstance(back, Scale)
    assert (back.workload, back.replicas) == ("low", 2)


def test_a_device_heals_after_the_clock_was_set_back() -> None:
    harness = ArbiterHarness(node("n", 1, {"a/0": (0,)}), node("m", 1), spec("a"), spec("b"))
    harness.at(100_000, move(100_000, "a", "0", "n", 0))
    harness.know(node("n", 1, {}, epoch=2), node("m", 1, {"a/0": (0,)}, epoch=2))
    assert harness.want(0, "b", 1) == []
    assert harness.want(599, "b", 1) == []
    (scale,) = harness.want(601, "b", 1)
    assert scale.workload == "b"


def test_what_is_owed_to_others_comes_before_a_new_grant() -> None:
    """Somebody took two of the four GPUs that were promised: two more that could be freed are not to be had."""
    low = spec("low", priority=1, interruptible=True)
    harness = ArbiterHarness(
        node("n", 6, {"low/0": (0,), "low/1": (1,)}), low, spec("b", priority=5), spec("c", priority=9)
    )
    (first,) = harness.want(0, "b", 4)
    harness.know(node("n", 6, {"low/0": (0,), "low/1": (1,), "x/0": (2,), "x/1": (3,)}, epoch=2))
    assert harness.want(1, "c", 2) == []
    harness.refuse(first)
    (scale,) = harness.want(2, "c", 2)
    assert scale.workload == "c"
