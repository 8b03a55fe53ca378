"""Machines that are bought and returned, and mixes of offers."""

import pytest
from msgspec.structs import replace
from tests.simulator.orders import CONFIG, START_NS, scale

from flyball_contracts.codec import decode_message
from flyball_contracts.config import FleetConfig
from flyball_contracts.frame import Frame
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Inventory, NodeEvent, Portion
from flyball_contracts.simulated import Operation, Submission
from flyball_simulator import Fleet
from flyball_simulator.operations import Refused

A, B, C = CONFIG.pools
GROWS = replace(
    CONFIG,
    failing=(),
    straggling=(),
    pools=(A, B, replace(C, max_nodes=6, provision_s=40.0, return_after_s=60.0)),
)


def submit(fleet: Fleet, mix: tuple[Portion, ...], replicas: int) -> Operation:
    return fleet.operations.submit(Submission(decision=scale("speech-api", replicas, id=f"{replicas}", mix=mix)))


def run(fleet: Fleet, ticks: int) -> list[object]:
    first = fleet.plant.index
    return [
        decode_message(m.topic, m.value, list(m.headers)) for i in range(first, first + ticks) for m in fleet.tick(i)
    ]


def pools(fleet: Fleet, workload: str) -> list[str]:
    return sorted(n.node[:5] for n in fleet.nodes for a in n.allocations if a.workload == workload)


def test_a_mix_moves_replicas_without_a_gap_and_buys_what_it_lacks() -> None:
    fleet = Fleet(GROWS, START_NS)
    run(fleet, 2)
    assert pools(fleet, "speech-api") == ["gpu-b"] * 8
    mix = (
        Portion(offer="gpu-c", replicas=9, replicas_before=0),
        Portion(offer="any", gpu_model="NVIDIA A100-SXM4-80GB", replicas=2, replicas_before=8),
    )
    began = submit(fleet, mix, 11)
    assert began.expected.mix == mix
    ready: list[int] = []
    sent: list[object] = []
    for _ in range(80):
        sent += run(fleet, 1)
        ready.append(fleet.workload("speech-api").ready or 0)
    done = fleet.operations.find("11")
    assert done is not None
    assert (done.status, [p.replicas for p in done.observed.mix]) == ("done", [9, 2])
    assert pools(fleet, "speech-api") == ["gpu-b"] * 2 + ["gpu-c"] * 9
    assert min(ready) >= 8
    assert len(fleet.nodes) == 26
    bought = {e.node for e in sent if isinstance(e, NodeEvent) and e.kind == "agent_started"}
    assert bought == {"gpu-c-005", "gpu-c-006"}
    frames = [f for f in sent if isinstance(f, Frame) and f.node == "gpu-c-005"]
    assert [f.seq for f in frames] == list(range(len(frames)))
    epochs = [i.epoch for i in sent if isinstance(i, Inventory) and i.node == "gpu-c-005"]
    assert next(f.inventory_epoch for f in frames if f.schema == GPU.schema) == epochs[0] == 1


def test_a_machine_that_is_empty_goes_back_and_is_paid_until_then() -> None:
    fleet = Fleet(GROWS, START_NS)
    submit(fleet, (Portion(offer="gpu-c", replicas=14), Portion(offer="gpu-b", replicas=0)), 14)
    run(fleet, 100)
    assert len(fleet.nodes) == 26
    submit(fleet, (Portion(offer="gpu-c", replicas=0), Portion(offer="gpu-b", replicas=8)), 8)
    sent = run(fleet, 120)
    assert len(fleet.nodes) == 24
    assert fleet.cell(1.0).nodes == 24
    last = [i for i in sent if isinstance(i, Inventory) and i.node == "gpu-c-006"][-1]
    assert (last.devices, last.allocations, last.schedulable) == ((), (), False)
    assert {e.node for e in sent if isinstance(e, NodeEvent) and e.kind == "agent_stopped"} == {
        "gpu-c-005",
        "gpu-c-006",
    }
    later = run(fleet, 1)
    assert not any(isinstance(r, Frame) and r.node == "gpu-c-006" for r in later)


def test_what_finds_no_room_buys_where_it_may() -> None:
    only_c = tuple(replace(s, pools=("gpu-c",), replicas=2) if s.name == "speech-api" else s for s in GROWS.services)
    fleet = Fleet(replace(GROWS, services=only_c), START_NS)
    fleet.apply(scale("speech-api", 14))
    run(fleet, 75)
    assert fleet.workload("speech-api").ready == 14


IMPOSSIBLE: list[tuple[FleetConfig, tuple[Portion, ...], int, str]] = [
    (GROWS, (Portion(offer="moon", replicas=8),), 8, "offer 'moon' is no pool .*gpu-b, gpu-c"),
    (GROWS, (Portion(offer="gpu-a", replicas=8),), 8, "offer 'gpu-a' is no pool"),
    (GROWS, (Portion(offer="x", gpu_model="NVIDIA A100-SXM4-80GB", market="reserved", replicas=8),), 8, "no pool"),
    (GROWS, (Portion(offer="gpu-c", replicas=4),), 4, "with this mix it has 12 replicas, not 4"),
]


@pytest.mark.parametrize(("config", "mix", "replicas", "message"), IMPOSSIBLE)
def test_a_mix_that_cannot_be_is_refused(
    config: FleetConfig, mix: tuple[Portion, ...], replicas: int, message: str
) -> None:
    fleet = Fleet(config, START_NS)
    with pytest.raises(Refused, match=message):
        submit(fleet, mix, replicas)
    assert pools(fleet, "speech-api") == ["gpu-b"] * 8
