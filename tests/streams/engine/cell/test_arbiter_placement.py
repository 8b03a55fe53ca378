"""Nothing is granted that fits on no node, and nobody stops in vain."""

from random import Random
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from tests.actuators.samples import migrate, scale
from tests.streams.engine.cell.arbiter_harness import ArbiterHarness, move, node
from tests.streams.engine.cell.platform import proposal
from tests.streams.engine.scene import CELL, spec, tick

from flyball_actuators.guard import GuardState
from flyball_actuators.guard.grants import GrantIndex
from flyball_actuators.guard.state import Context
from flyball_actuators.guard.tenants import tenant_mixed
from flyball_actuators.parameters import ActuatorParameters
from flyball_actuators.world import WorldTables
from flyball_contracts.records import AnyDecision, Inventory, Migrate, Preempt, Scale, WorkloadSpec
from flyball_streams.engine import Directory
from flyball_streams.engine.cell.placement import Placement
from flyball_streams.engine.cell.tenancy import Tenancy


def replicas(decisions: list[AnyDecision]) -> dict[str, int]:
    return {d.workload: d.replicas for d in decisions if isinstance(d, Scale)}


def victims(decisions: list[AnyDecision]) -> dict[str, tuple[str, ...]]:
    return {d.workload: d.victims for d in decisions if isinstance(d, Preempt)}


def test_eight_single_gpus_on_eight_nodes_are_no_room_for_a_replica_of_eight() -> None:
    nodes = [node(f"n{i}", 8, {f"low{i}/{row}": (row,) for row in range(7)}) for i in range(8)]
    harness = ArbiterHarness(*nodes, spec("big", gpus_per_replica=8.0), spec("small"))
    assert harness.want(0, "big", 1) == []
    assert replicas(harness.want(1, "small", 8)) == {"small": 8}


def test_nobody_stops_for_a_gang_that_still_does_not_fit() -> None:
    """Seven GPUs of eight could be freed on most nodes, but too few nodes have one free beside them."""
    nodes = [
        node(f"n{i}", 8, {f"low/{i}-{row}": (row,) for row in range(7)} | ({f"keep/{i}": (7,)} if i >= 3 else {}))
        for i in range(8)
    ]
    low = spec("low", priority=1, interruptible=True, max_replicas=80)
    harness = ArbiterHarness(*nodes, low, spec("keep"), spec("gang", priority=9, gpus_per_replica=8.0, gang_size=4))
    assert harness.want(0, "gang", 4) == []
    harness.know(node("n3", 8, {f"low/3-{row}": (row,) for row in range(7)}, epoch=2))
    found = harness.want(1, "gang", 4)
    assert replicas(found) == {"gang": 4}
    assert sorted(victims(found)["low"]) == sorted(f"{i}-{row}" for i in range(4) for row in range(7))


def test_victims_are_those_that_make_room_on_one_node_and_the_cheapest_of_them() -> None:
    """The cheapest replicas of all are scattered: to stop them would make no room for a replica of four."""
    nodes = [node(f"n{i}", 4, {f"cheap/{i}": (0,), f"hold/{i}": (1,)}) for i in range(4)]
    harness = ArbiterHarness(
        *nodes, node("m1", 4, {"job/0": (0, 1, 2)}), node("m2", 4, {"dear/0": (0, 1, 2)}),
        spec("cheap", priority=0, interruptible=True), spec("hold", priority=9),
        spec("job", priority=1, interruptible=True, gpus_per_replica=3.0),
        spec("dear", priority=1, interruptible=True, gpus_per_replica=3.0, checkpoint_s=600.0),
        spec("high", priority=5, gpus_per_replica=4.0),
    )  # fmt: skip
    found = harness.want(0, "high", 1)
    assert victims(found) == {"job": ("0",)}
    assert replicas(found) == {"high": 1}
    assert "room for 1 more of high (priority 5)" in found[0].reason


def test_a_grant_takes_the_fullest_node_that_it_fits() -> None:
    """So that the empty one stays whole for who needs it."""
    harness = ArbiterHarness(node("a", 8), node("b", 8, {"x/0": (0, 1, 2, 3, 4, 5)}), spec("two", gpus_per_replica=2.0))
    big = spec("big", gpus_per_replica=8.0)
    harness.know(big)
    assert replicas(harness.at(0, proposal("two", tick(0), 1), proposal("big", tick(0), 1, 1))) == {"two": 1, "big": 1}


@pytest.mark.parametrize("silent_s", [30, 59])
def test_room_that_was_granted_is_kept_until_the_order_is_over(silent_s: int) -> None:
    harness = ArbiterHarness(
        node("a", 4), node("b", 4, {"x/0": (0, 1)}), spec("one", gpus_per_replica=4.0), spec("two")
    )
    (first,) = harness.want(0, "one", 1)
    found = harness.want(silent_s, "two", 6)
    assert replicas(found) == {"two": 2}
    harness.refuse(first)
    harness.refuse(found[0])
    assert replicas(harness.want(silent_s + 10, "two", 6)) == {"two": 6}


def test_what_is_taken_elsewhere_than_was_thought_is_counted_once() -> None:
    harness = ArbiterHarness(node("a", 2), node("b", 4), spec("one", gpus_per_replica=2.0), spec("two"))
    harness.want(0, "one", 2)
    harness.know(node("b", 4, {"one/0": (0, 1)}, epoch=2))  # the first was to go to the other node
    assert replicas(harness.want(1, "two", 9)) == {"two": 2}


def test_an_order_that_expires_frees_no_victim_that_still_runs() -> None:
    low = spec("low", priority=1, interruptible=True)
    harness = ArbiterHarness(
        node("n", 2, {"low/0": (0,), "low/1": (1,)}), low, spec("b", priority=5), spec("c", priority=4)
    )
    assert victims(harness.want(0, "b", 2)) == {"low": ("0", "1")}
    assert replicas(harness.want(61, "c", 2)) == {"c": 2}  # it may stop them again, but finds none free
    assert harness.want(62, "b", 2) == []


def test_a_replica_larger_than_any_node_spans_several() -> None:
    harness = ArbiterHarness(
        node("a", 4), node("b", 4), node("c", 4, {"x/0": (0,)}), spec("wide", gpus_per_replica=8.0)
    )
    assert replicas(harness.want(0, "wide", 2)) == {"wide": 1}
    low = spec("low", priority=0, interruptible=True)
    harness = ArbiterHarness(
        node("a", 4, {"low/0": (0,)}), node("b", 4, {"low/1": (0,), "low/2": (1,)}), low,
        spec("wide", gpus_per_replica=6.0, priority=1),
    )  # fmt: skip
    found = harness.want(0, "wide", 1)
    assert replicas(found) == {"wide": 1}
    assert len(victims(found)["low"]) == 1


@pytest.mark.parametrize(("share", "granted"), [(0.5, 4), (0.4, 4), (0.25, 8), (0.6, 2), (1.5, 1)])
def test_shares_of_a_gpu_share_it_with_each_other_alone(share: float, granted: int) -> None:
    harness = ArbiterHarness(node("n", 2), spec("a", gpus_per_replica=share, max_replicas=20))
    assert replicas(harness.want(0, "a", 20)) == {"a": granted}


def test_work_without_gpus_needs_no_room() -> None:
    assert replicas(ArbiterHarness(node("n", 0), spec("a", gpus_per_replica=0.0)).want(0, "a", 8)) == {"a": 8}


def test_what_was_still_to_start_of_a_victim_does_not_start() -> None:
    low = spec("low", priority=1, interruptible=True)
    harness = ArbiterHarness(node("n", 4, {"low/0": (0,), "low/1": (1,)}), low, spec("high", priority=5))
    assert replicas(harness.want(0, "low", 4)) == {"low": 4}
    found = harness.want(1, "high", 3)
    assert victims(found) == {"low": ("0",)}
    assert replicas(found) == {"high": 3}


def inventories(random: Random) -> list[Inventory]:
    made: list[Inventory] = []
    for _ in range(12):
        name = f"n{random.randint(0, 3)}"
        rows = random.randint(0, 6)
        held = {f"a/{name}-{i}": tuple(random.sample(range(8), random.randint(0, 2))) for i in range(3)}
        one = node(name, rows, held, epoch=random.randint(1, 99), schedulable=random.random() < 0.8)
        devices = tuple(
            msgspec.structs.replace(d, model=random.choice(["h100", "a100"]), mig_enabled=random.random() < 0.1)
            for d in one.devices
        )
        cell = CELL if random.random() < 0.8 else "another"
        made.append(msgspec.structs.replace(one, devices=devices, cell=cell, zone=random.choice(["", "DE"])))
    return made


def seen(placement: Placement) -> dict[str, Any]:
    """All that a copy knows, without what is empty."""
    found: dict[str, Any] = {}
    for name, value in vars(placement).items():
        if isinstance(value, dict):
            items: dict[Any, Any] = cast("Any", value)
            found[name] = {key: one for key, one in items.items() if one}
        elif name not in {"directory", "tenancy", "_version", "_journal"}:
            found[name] = value
    return found


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_copy_that_followed_is_one_that_was_made_anew(seed: int) -> None:
    """Whatever was tried on it meanwhile."""
    random, directory = Random(seed), Directory()
    kept = Placement(directory, CELL)
    specs: list[WorkloadSpec] = [spec("a", gpus_per_replica=random.choice([0.3, 1.0, 2.0, 9.0])) for _ in range(3)]
    for record in inventories(random):
        directory.apply(record)
        sick = {f"n{random.randint(0, 3)}/{random.randint(0, 5)}" for _ in range(random.randint(0, 2))}
        kept.refresh(sick)
        fresh = Placement(directory, CELL)
        fresh.refresh(sick)
        assert seen(kept) == seen(fresh)
        mark = kept.mark()
        places = [kept.place(one) for one in specs]
        kept.stop(r for r in directory.replicas("a") if random.random() < 0.5)
        assert all(place is None or kept.take(place) in (place, None) for place in places)
        assert all(n >= 0 for n in kept.free.values())
        kept.rollback(mark)
        assert seen(kept) == seen(fresh)


@given(st.integers(0, 2**32), st.integers(1, 4))
@settings(deadline=None, max_examples=50)
def test_as_many_fit_as_can_be_placed(seed: int, gpus: int) -> None:
    directory = Directory()
    for record in (*inventories(Random(seed)), spec("a")):
        directory.apply(record)
    placement, job = Placement(directory, CELL), spec("job", gpus_per_replica=float(gpus))
    placement.refresh([])
    if placement.spans(job):
        return
    expected, placed = placement.fitting(job), 0
    while placement.place(job) is not None:
        placed += 1
    assert placed == expected
    assert placement.fitting(job) == 0


def test_a_part_of_a_gpu_is_not_proposed_where_another_tenant_has_one() -> None:
    def wanted(tenant: str, *, divided: bool = False) -> dict[str, int]:
        there = node("n", 4, {"other/0": (0,)})
        if divided:
            first = msgspec.structs.replace(there.devices[0], mig_enabled=True)
            there = msgspec.structs.replace(there, devices=(first, *there.devices[1:]))
        mine, other = (spec(w, gpus_per_replica=0.5, tenant=t) for w, t in (("mine", "a"), ("other", tenant)))
        harness = ArbiterHarness(there, mine, other)
        found = replicas(harness.want(0, "mine", 2))
        assert found or not harness.arbiter.memory.wants, "machines that are bought would not help"
        return found

    assert wanted("a") == {"mine": 2}
    assert wanted("b") == {}
    assert wanted("b", divided=True) == {"mine": 2}


def test_two_tenants_get_no_parts_of_gpus_in_one_tick() -> None:
    one, two = (spec(w, gpus_per_replica=0.5, tenant=w) for w in ("a", "b"))
    harness = ArbiterHarness(node("n", 4), one, two)
    found = harness.at(0, proposal("a", tick(0), 2), proposal("b", tick(0), 2))
    assert replicas(found) == {"a": 2}
    harness.know(node("n", 4, {"a/0": (0,), "a/1": (0,)}, epoch=2))
    assert harness.want(1, "b", 2) == []


def test_a_replica_does_not_move_beside_another_tenant() -> None:
    mine, other = spec("mine", tenant="a"), spec("other", tenant="b", gpus_per_replica=0.5)
    full, shared = node("home", 1, {"mine/0": (0,)}), node("shared", 2, {"other/0": (0,), "other/1": (0,)})
    harness = ArbiterHarness(full, shared, node("wide", 8), mine, other)
    (found,) = harness.at(0, move(0, "mine", "0", "home", 0))
    assert isinstance(found, Migrate)
    assert found.to_node == "wide", "the fullest would be the shared one"


PARTS = st.sampled_from([0.5, 1.0, 1.5, 2.0])
ON_GPU = st.lists(st.sampled_from(["w0", "w1", "w2", "nobody"]), max_size=3, unique=True)


@given(
    st.lists(PARTS, min_size=3, max_size=3), st.lists(ON_GPU, max_size=4), st.integers(0, 3), st.booleans(),
    st.sets(st.integers(0, 3)), st.sampled_from(["kubernetes", "process", ""]),
)  # fmt: skip
@settings(deadline=None)
def test_no_room_is_named_that_the_guard_refuses_to_a_tenant(
    parts: list[float], on: list[list[str]], divided: int, drained: bool, shared: set[int], runtime: Any
) -> None:
    """Two of three workloads are of one tenant; each GPU of a node has some of their replicas, one may be divided."""
    names = ("w0", "w1", "w2")
    specs = {n: spec(n, gpus_per_replica=p, tenant=t) for n, p, t in zip(names, parts, "aab", strict=True)}
    held = {f"{name}/{name}-{row}": (row,) for row, of in enumerate(on) for name in of}
    there = node("n", len(on), held, schedulable=not drained)
    change = msgspec.structs.replace
    rows = tuple(change(d, mig_enabled=n == divided, shared=n in shared) for n, d in enumerate(there.devices))
    there = change(there, devices=rows, allocations=tuple(change(a, runtime=runtime) for a in there.allocations))
    directory, tables = Directory(), WorldTables()
    for record in (there, *specs.values()):
        directory.apply(record)
        tables.take(record)
    tenancy = Tenancy(directory, CELL)
    for name, of in specs.items():
        for decision, mixed in (
            (scale(workload=name, cell=CELL, before=1, after=2), tenancy.bars(of)),
            (migrate(workload=name, cell=CELL, to_node="n"), "n" in tenancy.closed(of)),
            (migrate(workload=name, cell=CELL), tenancy.bars(of)),
        ):
            guard_state, world = GuardState(), tables.view("")
            context = Context(ActuatorParameters(), guard_state, decision, 0, world, GrantIndex(), keeps_to_node=True)
            assert (tenant_mixed(context) is not None) == mixed, (name, decision)
