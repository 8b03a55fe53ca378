"""The same messages give the same bytes: twice, in another process, and after a restart from snapshots."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from tests.streams.engine.recorded import (
    SMALL,
    TICKS,
    WORKER,
    Recorded,
    arrived,
    decisions,
    digest,
    kinds,
    record,
    replay,
    restored,
)
from tests.streams.engine.scene import ONE, START_NS, Cell, Out, incoming, incoming_records, inventory

from flyball_contracts.codec import Message
from flyball_contracts.config import FleetConfig
from flyball_contracts.errors import DecodeError
from flyball_contracts.records import Incident, Migrate, NodeCondition, Readmission, Silence
from flyball_contracts.topics import DECISIONS, DEMAND, EVENTS, INCIDENTS, PROPOSALS, TELEMETRY
from flyball_simulator import Fleet
from flyball_streams.engine import Engine, Incoming, Lane
from flyball_streams.engine.node import NodeLane
from flyball_streams.engine.parameters import Parameters

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = Path(__file__).parent / "golden" / "decisions.jsonl"
INCIDENTS_GOLDEN = GOLDEN.with_name("incidents.jsonl")
UPDATE = "FLYBALL_UPDATE_GOLDEN"
Batches = list[list[Incoming]]
CUTS = (2, 6, 17, 29, 41)


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return record(SMALL, TICKS)


@pytest.fixture(scope="module")
def batches(recorded: Recorded) -> Batches:
    return recorded.batches


@pytest.fixture(scope="module")
def sent(recorded: Recorded) -> list[list[Message]]:
    return recorded.sent


def test_the_small_cell_has_decisions_of_all_kinds_and_refuses_nothing(sent: list[list[Message]]) -> None:
    assert kinds(sent) == {"Scale", "Migrate", "Preempt"}
    assert Out([m for messages in sent for m in messages]).refusals() == []


def test_twice_the_same(batches: Batches, sent: list[list[Message]]) -> None:
    assert replay(batches) == sent


def test_the_same_in_another_process(sent: list[list[Message]]) -> None:
    """With another hash seed: no order of a set or of a hash may show. It compiles for itself, and in threads.

    How tests compile is `XLA_FLAGS` of tests/conftest.py; the other process has none, as a user's.
    """
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    other = {
        "PYTHONHASHSEED": seed,
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "JAX_CPU_ENABLE_ASYNC_DISPATCH": "true",
        "XLA_FLAGS": "",
    }
    run = subprocess.run(
        [sys.executable, "-m", "tests.streams.engine.recorded"],
        cwd=ROOT,
        env={**os.environ, **other, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.strip() == digest(sent)


def test_the_order_of_events_and_of_tables_within_a_tick_changes_nothing(
    batches: Batches, sent: list[list[Message]]
) -> None:
    """Partitions arrive in no fixed order."""
    random = np.random.default_rng(3)

    def mixed(batch: list[Incoming]) -> list[Incoming]:
        by_key: dict[bytes | None, list[Incoming]] = {}
        for message in batch:
            by_key.setdefault(message.key, []).append(message)
        groups = list(by_key.values())
        order: list[int] = random.permutation(len(groups)).tolist()
        return [message for i in order for message in groups[i]]

    shuffled = replay([mixed(batch) for batch in batches])
    assert decisions(shuffled) == decisions(sent)


@pytest.fixture(scope="module")
def halves(batches: Batches) -> tuple[dict[int, Engine], dict[str, Any]]:
    """Engines restored in the middle of a replay, by batches before, and the counters of the one that went on."""
    engine, found, before = Engine(WORKER), dict[int, Engine](), 0
    for cut in CUTS:
        replay(batches[before:cut], engine)
        found[cut], before = restored(engine), cut
    replay(batches[before:], engine)
    return found, engine.stats()


@pytest.mark.parametrize("cut", CUTS)
def test_restored_from_snapshots_it_goes_on_to_the_byte(
    batches: Batches, sent: list[list[Message]], halves: tuple[dict[int, Engine], dict[str, Any]], cut: int
) -> None:
    engines, expected = halves
    other = engines[cut]
    assert replay(batches[cut:], other) == sent[cut:]
    assert {name: stats for name, stats in other.stats().items() if stats.ticks} == {
        name: stats for name, stats in expected.items() if stats.ticks
    }


def test_lanes_that_read_a_backlog_one_after_the_other_decide_the_same(
    batches: Batches, sent: list[list[Message]]
) -> None:
    """As after an outage: each lane says all it has to say at once, and another one only then."""
    config = msgspec.structs.replace(WORKER, lane_lateness_s=10.0)
    engine = Engine(config)
    reported = [m for batch in batches for m in batch if m.topic not in (TELEMETRY.name, EVENTS.name)]
    engine.feed(reported)
    now_ms = 0

    def logged(messages: list[Message], topic: str, partition: int) -> list[Incoming]:
        nonlocal now_ms
        mine = [m for m in messages if m.topic == topic and arrived([m])[0].partition == partition]
        now_ms += len(mine)
        return [arrived([m])[0]._replace(log_ms=now_ms - len(mine) + i) for i, m in enumerate(mine)]

    published: list[Message] = []
    partitions = sorted({m.partition for batch in batches for m in batch if m.topic == TELEMETRY.name})
    assert len(partitions) > 1
    for partition in partitions:
        lane = NodeLane(partition, config, engine.directory, len(engine.workloads))
        for batch in batches:
            published += lane.step(
                [m for m in batch if m.topic in (TELEMETRY.name, EVENTS.name) and m.partition == partition]
            )
    proposed = [m for m in published if m.topic == PROPOSALS.name]
    for workloads in engine.workloads:
        proposed += workloads.step(logged(published, DEMAND.name, workloads.partition))
    decided = [m for p, cell in enumerate(engine.cells) for m in cell.step(logged(proposed, PROPOSALS.name, p))]
    assert [m.value for m in decided if m.topic == DECISIONS.name] == decisions(sent)


def test_restored_after_every_tick_it_goes_on_to_the_byte(batches: Batches) -> None:
    """In one partition: each kind of lane is restored, and none of them is empty."""
    alone = [[m._replace(partition=0, offset=0) for m in batch] for batch in batches]
    sent = replay(alone, Engine(WORKER, ONE))
    assert kinds(sent) == {"Scale", "Migrate", "Preempt"}
    engine = Engine(WORKER, ONE)
    for batch, messages in zip(alone, sent, strict=True):
        assert engine.feed(batch) == messages
        engine = restored(engine)


def test_a_snapshot_of_a_snapshot_is_the_same(batches: Batches) -> None:
    engine = Engine(WORKER)
    replay(batches[:30], engine)
    other = restored(engine)
    assert [lane.snapshot() for lane in lanes(other)] == [lane.snapshot() for lane in lanes(engine)]


def lanes(engine: Engine) -> list[Lane]:
    return [*(engine.nodes[p] for p in sorted(engine.nodes)), *engine.workloads, *engine.cells]


def test_frames_that_wait_for_their_inventory_survive_a_restart() -> None:
    cell = Cell(inventory("node-1"))
    stranger = inventory("node-2", 3, epoch=4)
    waiting = Cell(stranger).agents[0].frames(0)
    cell.feed([*cell.agents[0].frames(0), *waiting])
    state = cell.engine.nodes[0].snapshot()
    after = Cell(inventory("node-1"))
    after.run(0, 1)
    after.engine.nodes[0].restore(state)
    assert after.stats.waiting == 3
    after.feed([*incoming_records(stranger), *cell.agents[0].frames(1)])
    assert (after.stats.waiting, after.stats.used) == (0, 9)


@pytest.mark.parametrize("name", ["node/0", "workload/0", "cell/0"])
def test_a_state_that_is_none_is_refused_with_one_error(name: str) -> None:
    cell = Cell(inventory("node-1"))
    cell.run(0, 8)
    by_name = {lane.source: lane for lane in lanes(cell.engine)}
    lane = by_name[name]
    others = [by_name[other].snapshot() for other in by_name if other != name]
    for state in (b"", b"\x80", b"\xc1", b"\x93\x01\x02\x03", msgspec.msgpack.encode({"stats": 1}), *others):
        with pytest.raises(DecodeError):
            lane.restore(state)


def test_a_state_from_other_settings_is_refused(batches: Batches) -> None:
    engine = Engine(WORKER)
    replay(batches[:20], engine)
    forecast = msgspec.structs.replace(WORKER.forecast, horizon_ticks=6)
    other = Engine(msgspec.structs.replace(WORKER, forecast=forecast))
    states = [(mine, theirs.snapshot()) for mine, theirs in zip(other.workloads, engine.workloads, strict=True)]
    held = [(lane, state) for lane, state in states if b"forecaster" in state]
    assert held
    for lane, state in held:
        with pytest.raises(DecodeError, match="where these settings need"):
            lane.restore(state)


def test_the_default_fleet_shows_all_kinds_within_ninety_ticks() -> None:
    fleet, engine = Fleet(FleetConfig(), START_NS), Engine(Parameters(), ONE)
    engine.feed([incoming(m) for m in fleet.messages_at_start()])
    made = [engine.feed([incoming(m) for m in fleet.tick(i)]) for i in range(90)]
    assert kinds(made) == {"Scale", "Migrate", "Preempt"}
    out = Out([m for messages in made for m in messages])
    assert out.refusals() == []
    assert {d.workload for d in out.demands()} >= {"chat-api", "llm-pretrain", "synth-data"}


def test_decisions_are_the_golden_ones(sent: list[list[Message]]) -> None:
    """Numbers may differ in their last digits between processors; what is decided, when and why may not."""
    found = [json.loads(raw) for raw in decisions(sent)]
    if os.environ.get(UPDATE):
        GOLDEN.write_text("".join(json.dumps(d, sort_keys=True) + "\n" for d in found))
    golden = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    remedy = f"where the change is meant, run this test with {UPDATE}=1 and read the difference"
    assert [brief(d) for d in found] == [brief(d) for d in golden], remedy
    for mine, theirs in zip(found, golden, strict=True):
        assert close(mine, theirs), f"{mine}\n{theirs}\n{remedy}"


def test_incidents_are_the_golden_ones(sent: list[list[Message]]) -> None:
    """Which there are, why and when; the numbers in their evidence are those of decisions."""
    keys = ("time_ns", "id", "revision", "status", "severity", "cause", "level", "device", "workload", "summary",
            "node", "condition", "reason")  # fmt: skip
    found = [json.loads(m.value) for messages in sent for m in messages if m.topic == INCIDENTS.name]
    shown = [{key: one[key] for key in keys if key in one} for one in found]
    if os.environ.get(UPDATE):
        INCIDENTS_GOLDEN.write_text("".join(json.dumps(one, sort_keys=True) + "\n" for one in shown))
    assert shown == [json.loads(line) for line in INCIDENTS_GOLDEN.read_text().splitlines()], UPDATE


def test_a_silence_lists_the_incident_and_moves_nothing_and_replays_to_the_byte(batches: Batches) -> None:
    quiet = Silence(
        cell=SMALL.cell, time_ns=0, by="ann", name="hands off", starts_ns=0, ends_ns=2**62, cause="gpu"
    )  # fmt: skip
    silenced = [incoming_records(quiet) + batches[0], *batches[1:35]]
    sent = goes_on(silenced, 25)
    out = Out([m for messages in sent for m in messages])
    assert [(i.cause, i.silence) for i in out.of(Incident) if i.cause == "gpu"][-1] == ("gpu", "hands off")
    assert out.of(Migrate) == []


def test_a_node_goes_out_and_comes_back_by_evidence_and_is_not_left_for_the_same_again(batches: Batches) -> None:
    node = "gpu-b-001"
    published = Readmission(
        cell=SMALL.cell, time_ns=START_NS + 38 * 10**9, by="ann", node=node, evidence="burn-in passed"
    )
    readmitted = [*batches[:40], incoming_records(published) + batches[40], *batches[41:]]
    sent = goes_on(readmitted, 41)
    out = Out([m for messages in sent for m in messages])
    conditions = [c.condition for c in out.of(NodeCondition) if c.node == node]
    assert list(dict.fromkeys(conditions)) == ["suspect", "cordoned", "checked", "back"]
    assert len([m for m in out.of(Migrate) if "XID 48" in m.reason]) == 1


def goes_on(batches: Batches, cut: int) -> list[list[Message]]:
    """What the lanes send; an engine restored in the middle sends the same from there on."""
    engine = Engine(WORKER)
    before = replay(batches[:cut], engine)
    other = restored(engine)
    after = replay(batches[cut:], engine)
    assert replay(batches[cut:], other) == after
    return before + after


def brief(decision: dict[str, Any]) -> str:
    return (
        f"{decision['time_ns']} {decision['type']} {decision['workload']} {decision.get('replicas')} {decision['id']}"
    )


def close(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        return bool(a == pytest.approx(b, rel=1e-3, abs=1e-6))
    if isinstance(a, dict):
        items: dict[str, Any] = cast("Any", a)
        return items.keys() == b.keys() and all(close(v, b[k]) for k, v in items.items())
    if isinstance(a, list):
        members: list[Any] = cast("Any", a)
        return len(members) == len(b) and all(map(close, members, b))
    return bool(a == b)
