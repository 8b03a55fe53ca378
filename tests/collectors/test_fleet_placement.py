"""The simulated platform obeys without ever putting two replicas on one GPU."""

from collections.abc import Callable
from typing import Literal

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from flyball_collectors.fleet import Fleet
from flyball_contracts.codec import decode_message
from flyball_contracts.config import FleetConfig
from flyball_contracts.errors import RecordError
from flyball_contracts.frame import Frame
from flyball_contracts.metrics import WORKLOAD
from flyball_contracts.records import Inventory, Migrate, Preempt, Scale

START_NS = 1_750_000_000_000_000_000
CONFIG = FleetConfig()
NAMES = [s.workload for s in Fleet(CONFIG, START_NS).workloads]
NODES = [n.node for n in Fleet(CONFIG, START_NS).nodes]
READY = WORKLOAD.column("flyball.workload.ready")

Action = tuple[Literal["scale", "pause", "migrate"], str, int, str]
actions = st.lists(
    st.tuples(
        st.sampled_from(["scale", "pause", "migrate"]),
        st.sampled_from(NAMES),
        st.integers(0, 40),
        st.sampled_from(["", *NODES]),
    ),
    max_size=25,
)


def obey(fleet: Fleet, action: Action) -> None:
    kind, name, number, node = action
    try:
        if kind == "scale":
            fleet.scale(name, number)
        elif kind == "pause":
            fleet.pause(name, number)
        else:
            fleet.migrate(name, f"{name}-{number}", node)
    except RecordError:
        pass  # a number or a name that cannot be: nothing may have changed, which `check` sees


def check(fleet: Fleet) -> None:
    held: dict[tuple[str, int], str] = {}
    counts = dict.fromkeys(NAMES, 0)
    names: set[str] = set()
    specs = {s.workload: s for s in fleet.workloads}
    for node in fleet.nodes:
        models = {d.model for d in node.devices}
        for allocation in node.allocations:
            spec = specs[allocation.workload]
            assert len(allocation.devices) == spec.gpus_per_replica
            assert models <= set(spec.gpu_models)
            assert allocation.replica not in names
            names.add(allocation.replica)
            counts[allocation.workload] += 1
            for device in allocation.devices:
                assert 0 <= device < len(node.devices)
                assert (node.node, device) not in held
                held[node.node, device] = allocation.replica
    for w, name in enumerate(NAMES):
        wanted = fleet.placement.wanted[w]
        assert counts[name] == fleet.replicas(name) <= wanted <= specs[name].max_replicas
        if specs[name].gang_size > 1:
            assert counts[name] in (0, specs[name].gang_size)
    total = sum(len(n.devices) for n in fleet.nodes)
    assert int(fleet.placement.free.sum()) == total - len(held)


@settings(max_examples=60, deadline=None)
@given(actions)
def test_no_gpu_is_ever_held_twice_and_no_replica_is_lost(todo: list[Action]) -> None:
    fleet = Fleet(CONFIG, START_NS)
    tick = 0
    for index, action in enumerate(todo):
        wanted, placed = list(fleet.placement.wanted), sum(len(p) for p in fleet.placement.placed)
        obey(fleet, action)
        if action[0] == "migrate":
            assert fleet.placement.wanted == wanted
            assert sum(len(p) for p in fleet.placement.placed) == placed
        if index % 4 == 3:
            fleet.tick(tick)
            tick += 1
            check(fleet)
    fleet.tick(tick)
    check(fleet)


def test_what_does_not_fit_waits_for_room() -> None:
    fleet = Fleet(CONFIG, START_NS)
    assert fleet.scale("chat-api", 34) == 22  # 10 H100s are free
    fleet.tick(0)
    assert fleet.replicas("chat-api") == 22
    assert fleet.pause("synth-data", 12) == 12
    fleet.tick(1)
    assert fleet.replicas("chat-api") == 34
    check(fleet)


def test_a_queue_grows_while_replicas_are_too_few_and_shrinks_after_scaling() -> None:
    fleet = Fleet(CONFIG, START_NS)
    for i in range(20):
        fleet.tick(i)
    assert fleet.queued("chat-api") == 0
    for i in range(20, 45):
        fleet.tick(i)
    grown = fleet.queued("chat-api")
    assert grown > 0
    fleet.pause("synth-data", 0)
    assert fleet.scale("chat-api", 40) == 40
    for i in range(45, 76):
        fleet.tick(i)
    peak = fleet.queued("chat-api")
    assert peak > grown  # the new replicas start cold
    for i in range(76, 90):
        fleet.tick(i)
    assert fleet.queued("chat-api") < 0.9 * peak


def test_a_new_replica_is_ready_after_its_cold_start() -> None:
    fleet = Fleet(CONFIG, START_NS)
    fleet.scale("embed-api", 7)
    ready: list[float] = []
    for i in range(40):
        told = [decode_message(m.topic, m.value, list(m.headers)) for m in fleet.tick(i)]
        node = next(n for n in fleet.nodes if any(a.replica == "embed-api-6" for a in n.allocations))
        row = [a.replica for a in node.allocations].index("embed-api-6")
        (frame,) = [r for r in told if isinstance(r, Frame) and r.schema == WORKLOAD.schema and r.node == node.node]
        ready.append(float(frame.values[row, READY]))
    assert ready == [0.0] * 30 + [1.0] * 10


def test_migration_cordons_the_device_and_restarts_the_gang() -> None:
    fleet = Fleet(CONFIG, START_NS)
    before = {a.replica: (n, a) for n in fleet.nodes for a in n.allocations}
    node, allocation = before["vision-train-3"]
    sick = node.devices[allocation.devices[0]].id
    fleet.tick(0)
    answer = fleet.apply(
        Migrate(
            id="a",
            cell="fleet",
            time_ns=0,
            expires_ns=1,
            reason="",
            confidence=1.0,
            policy="test",
            target="vision-train",
            workload="vision-train",
            replica="vision-train-3",
            from_node=node.node,
            from_device=sick,
        )
    )
    assert "moved to" in answer
    changed = [decode_message(m.topic, m.value, list(m.headers)) for m in fleet.tick(1)]
    assert len([r for r in changed if isinstance(r, Inventory)]) == 2
    after = {a.replica: n.node for n in fleet.nodes for a in n.allocations}
    assert after["vision-train-3"] != node.node
    fleet.apply(
        Scale(
            id="b",
            cell="fleet",
            time_ns=0,
            expires_ns=1,
            reason="",
            confidence=1.0,
            policy="test",
            target="speech-api",
            workload="speech-api",
            replicas=14,
            replicas_before=8,
        )
    )
    fleet.tick(2)
    row = next(n.first + allocation.devices[0] for n in fleet.site.nodes if n.name == node.node)
    assert fleet.placement.owner[row] == -1
    kept = fleet.apply(
        Preempt(
            id="c",
            cell="fleet",
            time_ns=0,
            expires_ns=1,
            reason="",
            confidence=1.0,
            policy="test",
            target="asr-batch",
            workload="asr-batch",
            replicas=2,
            replicas_before=8,
        )
    )
    assert "2 replicas" in kept


Act = Callable[[Fleet], object]
IMPOSSIBLE: list[tuple[Act, str]] = [
    (lambda f: f.scale("nobody", 1), "'nobody' does not run"),
    (lambda f: f.scale("chat-api", 41), "takes 0 to 40"),
    (lambda f: f.scale("llm-pretrain", 7), "takes 0 or 8"),
    (lambda f: f.migrate("chat-api", "chat-api-99"), "no replica 'chat-api-99'"),
    (lambda f: f.migrate("chat-api", "chat-api-0", "nowhere"), "no node 'nowhere'"),
    (lambda f: f.migrate("chat-api", "chat-api-0", "gpu-b-001"), "may not run on gpu-b-001"),
    (lambda f: f.migrate("chat-api", "chat-api-0", from_device="GPU-0"), "no device 'GPU-0'"),
    (lambda f: f.queued("llm-pretrain"), "no queue"),
]


@pytest.mark.parametrize(("act", "message"), IMPOSSIBLE)
def test_what_cannot_be_obeyed_is_said(act: Act, message: str) -> None:
    fleet = Fleet(CONFIG, START_NS)
    owner = fleet.placement.owner.copy()
    with pytest.raises(RecordError, match=message):
        act(fleet)
    assert np.array_equal(owner, fleet.placement.owner)
