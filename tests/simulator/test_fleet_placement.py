"""The simulated platform obeys without ever putting two replicas on one GPU."""

from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from tests.simulator.orders import CONFIG, START_NS, migrate, preempt, scale

from flyball_contracts.codec import decode_message
from flyball_contracts.errors import RecordError
from flyball_contracts.frame import Frame
from flyball_contracts.metrics import WORKLOAD
from flyball_contracts.records import AnyDecision, Migrate
from flyball_simulator import Fleet

NAMES = [s.workload for s in Fleet(CONFIG, START_NS).workloads]
NODES = [n.node for n in Fleet(CONFIG, START_NS).nodes]
READY = WORKLOAD.column("flyball.workload.ready")


def move(name: str, number: int, node: str) -> Migrate:
    return migrate(name, f"{name}-{number}", to_node=node)


decisions = st.one_of(
    st.builds(scale, st.sampled_from(NAMES), st.integers(0, 41)),
    st.builds(preempt, st.sampled_from(NAMES), st.integers(0, 10), checkpoint=st.booleans()),
    st.builds(move, st.sampled_from(NAMES), st.integers(0, 24), st.sampled_from(["", *NODES])),
)


def obey(fleet: Fleet, decision: AnyDecision) -> None:
    wanted, owner = list(fleet.placement.wanted), fleet.placement.owner.copy()
    try:
        fleet.apply(decision)
    except RecordError:  # a number or a name that cannot be: nothing has changed
        assert fleet.placement.wanted == wanted
        assert np.array_equal(owner, fleet.placement.owner)


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
        live = len(fleet.placement.live(w))
        assert live <= fleet.placement.wanted[w] <= specs[name].max_replicas
        assert live <= counts[name]
        if specs[name].gang_size > 1:
            assert live in (0, specs[name].gang_size)
    total = sum(len(n.devices) for n in fleet.nodes)
    assert int(fleet.placement.free.sum()) == total - len(held)


@settings(max_examples=60, deadline=None)
@given(st.lists(decisions, max_size=25))
def test_no_gpu_is_ever_held_twice_and_no_replica_is_lost(todo: list[AnyDecision]) -> None:
    fleet = Fleet(CONFIG, START_NS)
    tick = 0
    for index, decision in enumerate(todo):
        obey(fleet, decision)
        if index % 4 == 3:
            fleet.tick(tick)
            tick += 1
            check(fleet)
    for i in range(tick, tick + 6):
        fleet.tick(i)
    check(fleet)


def test_what_does_not_fit_waits_for_room() -> None:
    fleet = Fleet(CONFIG, START_NS)
    fleet.apply(scale("chat-api", 34))
    fleet.tick(0)
    assert held(fleet, "chat-api") == 22  # 10 H100s are free
    fleet.apply(preempt("synth-data", 12))
    for i in range(1, 12):
        fleet.tick(i)
    assert held(fleet, "chat-api") == 34
    check(fleet)


def held(fleet: Fleet, workload: str) -> int:
    return sum(a.workload == workload for n in fleet.nodes for a in n.allocations)


def test_a_queue_grows_while_replicas_are_too_few_and_shrinks_after_scaling() -> None:
    fleet = Fleet(CONFIG, START_NS)
    for i in range(20):
        fleet.tick(i)
    assert fleet.queued("chat-api") == 0
    for i in range(20, 45):
        fleet.tick(i)
    grown = fleet.queued("chat-api")
    assert grown > 0
    fleet.apply(preempt("synth-data", 0))
    fleet.apply(scale("chat-api", 40))
    for i in range(45, 76):
        fleet.tick(i)
    peak = fleet.queued("chat-api")
    assert peak > grown  # the new replicas start cold
    for i in range(76, 100):
        fleet.tick(i)
    assert fleet.queued("chat-api") < 0.9 * peak


def test_a_new_replica_is_ready_after_its_cold_start() -> None:
    fleet = Fleet(CONFIG, START_NS)
    fleet.apply(scale("embed-api", 7))
    ready: list[float] = []
    for i in range(40):
        sent = [decode_message(m.topic, m.value, list(m.headers)) for m in fleet.tick(i)]
        node = next(n for n in fleet.nodes if any(a.replica == "embed-api-6" for a in n.allocations))
        row = [a.replica for a in node.allocations].index("embed-api-6")
        (frame,) = [r for r in sent if isinstance(r, Frame) and r.schema == WORKLOAD.schema and r.node == node.node]
        ready.append(float(frame.values[row, READY]))
    assert ready == [0.0] * 30 + [1.0] * 10


Act = Callable[[Fleet], object]
IMPOSSIBLE: list[tuple[AnyDecision, str]] = [
    (scale("nobody", 1), "'nobody' does not run"),
    (scale("chat-api", 41), "takes 0 to 40"),
    (scale("llm-pretrain", 7), "takes 0 or 8"),
    (scale("chat-api", 12, power_limit_w=20.0), "20 W; its GPUs take more than 72"),
    (scale("chat-api", 12, cell="elsewhere"), "this is cell fleet"),
    (preempt("protein-fold", 8), "takes 0 or 16"),
    (preempt("synth-data", 20, victims=("synth-data-3",)), "24 replicas run, so 23 are left"),
    (preempt("synth-data", 23, victims=("synth-data-99",)), "no replica 'synth-data-99'"),
    (migrate("chat-api", "chat-api-99"), "no replica 'chat-api-99'"),
    (migrate("chat-api", "chat-api-0", to_node="nowhere"), "no node 'nowhere'"),
    (migrate("chat-api", "chat-api-0", to_node="gpu-b-001"), "may not run on gpu-b-001"),
    (migrate("chat-api", "chat-api-0", from_device="GPU-0"), "no device 'GPU-0'"),
]


@pytest.mark.parametrize(("decision", "message"), IMPOSSIBLE)
def test_what_cannot_be_obeyed_is_said(decision: AnyDecision, message: str) -> None:
    fleet = Fleet(CONFIG, START_NS)
    owner, usable = fleet.placement.owner.copy(), fleet.placement.usable.copy()
    with pytest.raises(RecordError, match=message):
        fleet.apply(decision)
    assert np.array_equal(owner, fleet.placement.owner)
    assert np.array_equal(usable, fleet.placement.usable)


def test_only_services_have_a_queue() -> None:
    with pytest.raises(RecordError, match="no queue"):
        Fleet(CONFIG, START_NS).queued("llm-pretrain")
