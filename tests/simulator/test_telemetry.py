"""What agents would send of servers' answers and of links that fail."""

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray
from tests.simulator.orders import CONFIG, START_NS, migrate
from tests.simulator.test_fleet import decoded

from flyball_contracts.config.fleet import FailingLink
from flyball_contracts.frame import Frame
from flyball_contracts.metrics import GPU, SERVING
from flyball_contracts.records import Check, NodeEvent
from flyball_contracts.simulated import Submission
from flyball_simulator import Fleet
from flyball_simulator.operations import Refused

FIRST, FIRST_P99, NEXT, NEXT_P99, CACHE = range(5)
CALM = replace(CONFIG, failing=(), straggling=())


def answers(fleet: Fleet, index: int) -> dict[str, NDArray[np.float32]]:
    """Rows of the serving frames of a tick by workload [replicas, metrics]."""
    found: dict[str, list[NDArray[np.float32]]] = {}
    inventories = {n.node: n for n in fleet.nodes}
    for record in decoded(fleet.tick(index)):
        if isinstance(record, Frame) and record.schema == SERVING.schema:
            for held, row in zip(inventories[record.node].allocations, record.values, strict=True):
                found.setdefault(held.workload, []).append(row)
    return {name: np.stack(rows) for name, rows in found.items()}


def test_servers_of_language_models_say_how_they_answer() -> None:
    models = {service.name for service in CALM.services if service.model is not None}
    fleet = Fleet(CALM, START_NS)
    calm = [answers(fleet, index) for index in range(15)][-1]
    for name, rows in calm.items():
        assert np.isfinite(rows).all() == (name in models), name
        assert not np.isfinite(rows).any() or (rows[:, FIRST_P99] > rows[:, FIRST]).all()
    busy = [answers(fleet, index) for index in range(15, 60)][-1]  # in a burst
    rows, before = busy["chat-api"], calm["chat-api"]
    assert (rows[:, FIRST] > 3 * before[0, FIRST]).all(), "requests wait for their first token"
    assert (rows[:, NEXT] > before[0, NEXT]).all()
    assert (rows[:, NEXT] < 2 * before[0, NEXT]).all(), "who is served is served"
    assert (before[:, CACHE] < rows[:, CACHE]).all()
    assert (rows[:, CACHE] <= 1.0).all()
    service = next(s for s in CALM.services if s.name == "chat-api")
    assert service.model is not None
    whole = before[0, FIRST] + service.model.answer_tokens * before[0, NEXT]
    assert whole == pytest.approx(service.service_s, rel=0.3)


@pytest.mark.parametrize(("link", "column"), [(3, "nvidia.gpu.nvlink.errors"), (None, "nvidia.gpu.pcie.replays")])
def test_a_link_that_fails_is_told_as_agents_do(link: int | None, column: str) -> None:
    faulty = FailingLink(workload="vision-train", replica=0, from_s=5.0, link=link, lasts_s=100.0)
    fleet = Fleet(replace(CALM, links=(faulty,)), START_NS)
    node, held = next((n, a) for n in fleet.nodes for a in n.allocations if a.replica == "vision-train-0")
    device = node.devices[held.devices[0]].id
    events: list[NodeEvent] = []
    counts = np.zeros(len(node.devices))
    for index in range(120):
        for record in decoded(fleet.tick(index)):
            if isinstance(record, NodeEvent):
                events.append(record)
            elif isinstance(record, Frame) and record.schema == GPU.schema and record.node == node.node:
                counts += record.values[:, GPU.column(column)]
    assert {(e.node, e.device) for e in events} == {(node.node, device)}
    sent = [(e.kind, e.severity, e.remedy, e.link, round((e.time_ns - START_NS) / 1e9)) for e in events]
    if link is None:
        assert sent == [("pcie_error", "warning", "notify", None, 5), ("pcie_error", "critical", "drain", None, 35)]
    else:
        assert sent == [
            ("nvlink_error", "warning", "notify", 3, 5),
            ("xid", "critical", "drain", None, 35),
            ("nvlink_error", "warning", "notify", 3, 65),
        ]
        assert [e.code for e in events] == [None, 74, None]
        assert sum(e.count or 0 for e in events) < counts.sum()
    assert counts[held.devices[0]] == counts.sum() > 300


def test_what_a_check_finds_is_the_truth() -> None:
    faulty = FailingLink(workload="synth-data", replica=0, from_s=0.0, link=1, lasts_s=200.0)
    fleet = Fleet(replace(CALM, links=(faulty,)), START_NS)
    node, held = next((n, a) for n in fleet.nodes for a in n.allocations if a.replica == "synth-data-0")
    device = node.devices[held.devices[0]].id

    def check(id_: str) -> str:
        decision = Check(
            id=id_, target=f"fleet/node:{node.node}", cell="fleet", workload=f"node:{node.node}", time_ns=START_NS,
            expires_ns=START_NS + 10**12, reason="", confidence=1.0, policy="test", node=node.node, devices=(device,),
        )  # fmt: skip
        fleet.operations.submit(Submission(decision=decision))
        for _ in range(40):
            fleet.tick(fleet.plant.index)
        found = fleet.operations.find(id_)
        assert found is not None
        return f"{found.status}: {found.detail}"

    fleet.tick(0)
    with pytest.raises(Refused, match="is in use"):
        check("early")
    fleet.apply(migrate("synth-data", "synth-data-0", from_node=node.node, from_device=device))
    with pytest.raises(Refused, match="is in use"):
        check("held")
    for _ in range(60):
        fleet.tick(fleet.plant.index)
    assert "has errors of a link" in check("sick")
    assert fleet.node(node.node).cordoned == (device,)
    for _ in range(100):
        fleet.tick(fleet.plant.index)
    assert check("well").startswith("done: ")
    assert fleet.node(node.node).cordoned == ()
