"""Silent nodes in `bench/anomaly.py`: what arrives is what agents would send, and each incident counts once."""

from bench import anomaly
from bench.anomalies.absences import Agents, Spell, schedule, silent_nodes
from msgspec.structs import replace
from tests.streams.engine.scene import ONE, incoming

from flyball_contracts.codec import Message, decode_message
from flyball_contracts.config import FleetConfig, GridZone, NodePool
from flyball_contracts.frame import Frame
from flyball_contracts.records import NodeEvent
from flyball_simulator import Fleet

SMALL = FleetConfig(
    tick_s=10.0, zones=(GridZone(name="z"),), pools=(NodePool(name="n", sku="h100", nodes=4, zone="z"),),
    trainings=(), services=(), notebooks=(), batches=(), failing=(), straggling=(),
)  # fmt: skip


def said(messages: list[Message], node: str) -> list[tuple[str, int, int, int]]:
    """Frames and events of a node: kind, epoch, number, and second."""
    found: list[tuple[str, int, int, int]] = []
    for m in messages:
        record = decode_message(m.topic, m.value, list(m.headers))
        if isinstance(record, Frame) and record.node == node and record.schema == 1:
            found.append(("frame", record.epoch, record.seq, (record.time_ns - anomaly.START_NS) // 10**9))
        elif isinstance(record, NodeEvent) and record.node == node:
            found.append((record.kind, 0, 0, (record.time_ns - anomaly.START_NS) // 10**9))
    return found


def test_agents_that_restart_count_anew_and_those_that_are_late_lose_nothing() -> None:
    fleet = Fleet(SMALL, anomaly.START_NS)
    spells = [[Spell(15.0, 35.0, kind)] for kind in ("restart", "kill", "late")]
    agents = Agents(fleet, [*spells, []])
    arrived = [agents.arrived(tick * 10.0, fleet.tick(tick)) for tick in range(6)]
    whole = [m for messages in arrived for m in messages]
    restarted = said(whole, "n-001")
    assert [one[0] for one in restarted] == ["frame"] * 2 + ["agent_stopped", "agent_started"] + ["frame"] * 2
    assert [one[1:] for one in restarted if one[0] == "frame"] == [(1, 0, 0), (1, 3, 10), (2, 0, 40), (2, 3, 50)]
    assert [one[0] for one in said(whole, "n-002")] == ["frame"] * 2 + ["agent_started"] + ["frame"] * 2
    late = said(whole, "n-003")
    assert [one[1:] for one in late] == [(1, 3 * i, 10 * i) for i in range(6)] == [o[1:] for o in said(whole, "n-004")]
    assert said(arrived[3], "n-003") == []


def test_only_nodes_that_die_are_silent() -> None:
    # With this seed an hour has a death, and more restarts than kills.
    found = silent_nodes(replace(SMALL, seed=1469), anomaly.START_NS, incoming, 1.0, ONE)
    dead = sum(s.kind == "death" for mine in schedule(4, 3600.0, 1469) for s in mine)
    assert found["deaths"] == found["deaths_found"] == dead > 0
    assert found["restarts"] > found["kills"] > 0
    assert found["got"] == 0
    assert 50.0 <= found["delay_s"] <= 120.0
