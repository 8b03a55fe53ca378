"""Racks and leaf switches of the simulated fleet that fail, in the closed loop: one incident, and nothing is moved."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.streams.engine.closed_loop import ClosedLoop
from tests.streams.engine.scene import Out

from flyball_contracts.codec import Message
from flyball_contracts.config import FleetConfig, LeafFault, RackFault, Service, load_config
from flyball_contracts.config.fleet import Burst
from flyball_contracts.records import Incident, Migrate, Scale
from flyball_streams.engine.parameters import Parameters

ROOT = Path(__file__).resolve().parents[4]
EXAMPLE = load_config(ROOT / "infra/examples/racks.yaml", FleetConfig)
TICK_S, FAILS_S, LASTS_S, SETTLES_S = 10.0, 100.0, 200.0, 400.0


@pytest.fixture(autouse=True)
def _is_over_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An incident is over after less time without symptoms than in production, but more than symptoms lie apart."""
    monkeypatch.setattr("flyball_streams.engine.cell.incidents.manager.QUIET_S", 250.0)
    monkeypatch.setattr("flyball_streams.engine.cell.incidents.manager.QUIET_TICKS", 25)


class Loop(ClosedLoop):
    """Keeps what is said of incidents."""

    def __init__(self, fleet: FleetConfig) -> None:
        self.said: dict[str, Incident] = {}
        super().__init__(fleet, Parameters())

    def published(self, sent: list[Message]) -> list[Message]:
        self.said.update({one.id: one for one in Out(sent).of(Incident)})
        return sent


FAULTS: dict[str, tuple[dict[str, Any], tuple[str, str, str]]] = {
    "a feed of a rack": (
        {"rack_faults": (RackFault(rack="gpu-a-rack-02", from_s=FAILS_S, lasts_s=LASTS_S),)},
        ("rack", "gpu-a-rack-02", "power"),
    ),
    "both feeds, one after the other": (
        {"rack_faults": (RackFault(rack="gpu-a-rack-02", from_s=FAILS_S, dark_after_s=60.0, lasts_s=LASTS_S),)},
        ("rack", "gpu-a-rack-02", "power"),
    ),
    "a leaf switch": (
        {"leaf_faults": (LeafFault(leaf="gpu-a-leaf-01", from_s=FAILS_S, lasts_s=LASTS_S),)},
        ("leaf", "gpu-a-leaf-01", "network"),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_it_is_one_incident_at_its_place_and_nobody_is_moved(fault: str) -> None:
    faults, expected = FAULTS[fault]
    loop = Loop(replace(EXAMPLE, tick_s=TICK_S, **({"rack_faults": (), "leaf_faults": ()} | faults)))
    loop.run(round(FAILS_S / TICK_S))
    assert loop.said == {}
    loop.run(round(LASTS_S / TICK_S))
    (one,) = (i for i in loop.said.values() if i.status == "open")
    assert (one.level, one.domain, one.cause) == expected
    assert one.onset_ns - loop.fleet.start_ns == pytest.approx(FAILS_S * 1e9, abs=2 * TICK_S * 1e9)
    struck = {n.node for n in loop.fleet.nodes if expected[1] in (n.rack, n.leaf)}
    assert struck <= set(one.nodes)
    assert one.gpus_affected >= 8 * len(struck)
    loop.run(round(SETTLES_S / TICK_S))
    assert {i.status for i in loop.said.values()} <= {"resolved", "merged"}, "it is over once nothing shows it"
    assert not [d for d in loop.decisions if isinstance(d, Migrate)]


def test_the_example_has_one_incident_of_a_rack_and_one_of_a_switch() -> None:
    """Its faults follow each other without the hours in which nothing happens."""
    (rack,), (leaf,) = EXAMPLE.rack_faults, EXAMPLE.leaf_faults
    rack = replace(rack, from_s=FAILS_S)
    leaf = replace(leaf, from_s=FAILS_S + rack.lasts_s + SETTLES_S)
    loop = Loop(replace(EXAMPLE, tick_s=TICK_S, rack_faults=(rack,), leaf_faults=(leaf,)))
    loop.run(round((leaf.from_s + leaf.lasts_s + SETTLES_S) / TICK_S))
    found = sorted((i.level, i.domain, i.cause, i.status) for i in loop.said.values() if i.status != "merged")
    assert found == [
        ("leaf", "gpu-a-leaf-01", "network", "resolved"), ("rack", "gpu-a-rack-02", "power", "resolved"),
    ]  # fmt: skip
    assert not [d for d in loop.decisions if isinstance(d, Migrate)]


def test_nothing_is_placed_on_nodes_that_send_nothing_until_they_do() -> None:
    """Two empty racks, one of them dark when a service grows: its inventories do not count as free capacity."""
    (pool,) = EXAMPLE.pools
    lasts_s = 600.0
    service = Service(
        name="chat", pools=(pool.name,), replicas=30, max_replicas=64, base_load=0.6, cold_start_s=5.0,
        random_bursts_per_hour=0.0, bursts=(Burst(from_s=300.0, rise_s=5.0, hold_s=3600.0, factor=2.5),),
    )  # fmt: skip
    dark = RackFault(rack="gpu-a-rack-02", from_s=120.0, dark_after_s=10.0, lasts_s=lasts_s)
    fleet = replace(
        EXAMPLE, pools=(replace(pool, nodes=8),), services=(service,), trainings=(), batches=(), leaf_faults=(),
        tick_s=TICK_S, rack_faults=(dark,),
    )  # fmt: skip
    loop = Loop(fleet)
    loop.run(round((dark.from_s + lasts_s) / TICK_S))
    grown = [d for d in loop.decisions if d.workload == "chat"]
    assert grown
    assert "room for 32 of" in grown[-1].reason, "a rack holds 32"
    loop.run(round(300.0 / TICK_S))
    last = [d for d in loop.decisions if d.workload == "chat"][-1]
    assert "room for" not in last.reason
    assert isinstance(last, Scale)
    assert last.replicas > 32, "they are back"
