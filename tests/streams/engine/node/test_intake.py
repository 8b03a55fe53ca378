"""Bad input at the node lane: refused with a reason or counted, and the good frames of the same batch are used."""

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.streams.engine.scene import (
    CELL,
    CONFIG,
    FIRST,
    PERIOD_NS,
    START_NS,
    Agent,
    Cell,
    Values,
    incoming,
    incoming_records,
    inventory,
    spec,
    telemetry,
)

from flyball_contracts.codec import frame_message
from flyball_contracts.frame import decode_frame, make_frame
from flyball_contracts.metrics import GPU, GPU_DETAIL
from flyball_contracts.records import Allocation, Anomaly, Demand, DemandTick, NodeEvent
from flyball_contracts.topics import EVENTS, INVENTORY
from flyball_streams.engine import Incoming

SERVE = Allocation(workload="serve", replica="serve-0", devices=(0,))


def pair() -> Cell:
    return Cell(inventory("node-1", allocations=[SERVE]), inventory("node-2"), records=[spec("serve")])


def closed(cell: Cell, first: int, count: int) -> list[int]:
    return sorted({t.tick.index - FIRST for t in cell.run(first, count).of(DemandTick) if t.source == "node/0"})


def test_good_frames_close_every_tick_and_nothing_is_refused() -> None:
    cell = pair()
    out = cell.run(0, 8)
    assert sorted({t.tick.index - FIRST for t in out.of(DemandTick)}) == list(range(8))
    assert out.refusals() == []
    assert (cell.stats.used, cell.stats.gaps, cell.stats.duplicates) == (8 * 6, 0, 0)


@pytest.mark.parametrize("value", [None, b"", b"\xc1", b"\x93\x01\x02", b"{}", bytes(range(256))])
def test_what_is_no_frame_is_refused_untouched(value: bytes | None) -> None:
    cell = pair()
    a, b = (agent.frames(0) for agent in cell.agents)
    out = cell.feed([*a, telemetry(value), *b])
    (reason,) = out.refusals()
    assert reason.startswith("not a telemetry frame")
    assert [m.value for m in out.messages if m.topic == "flyball.dlq.v1"] == [value or b""]
    assert (cell.stats.undecodable, cell.stats.used) == (1, 6)


def test_an_unknown_layout_is_refused_with_those_that_are_known() -> None:
    cell = pair()
    (good,) = cell.agents[0].frames(0, schemas=[1])
    other = msgspec.structs.replace(decode_frame(good.value or b""), schema=99)
    out = cell.feed([incoming(frame_message(other)), good])
    assert "frame schema 99 is not known here (known: 1 (gpu), 2 (host), 3 (workload), " in out.refusals()[0]
    assert cell.stats.used == 1


def test_a_frame_waits_for_its_inventory_and_is_used_when_it_comes() -> None:
    cell = Cell(inventory("node-1"))
    stranger = Agent(inventory("node-2"))
    cell.feed([*cell.agents[0].frames(0), *stranger.frames(0)])
    assert (cell.stats.used, cell.stats.waiting) == (3, 3)
    out = cell.feed([*incoming_records(stranger.inventory), *cell.agents[0].frames(1), *stranger.frames(1)])
    assert (cell.stats.used, cell.stats.waiting) == (12, 0)
    assert out.refusals() == []


def test_a_frame_whose_inventory_never_comes_is_refused() -> None:
    cell = Cell(inventory("node-1"))
    stranger = Agent(inventory("node-2", epoch=5))
    reasons = [
        reason
        for i in range(CONFIG.lateness_ticks + 2)
        for reason in cell.feed(stranger.frames(i, schemas=[1])).refusals()
    ]
    assert reasons == [
        "frame of node 'node-2' names inventory epoch 5 of boot 'boot-1', which never came; "
        "the agent must publish its inventory first"
    ]
    assert (cell.stats.unknown_inventory, cell.stats.waiting) == (1, CONFIG.lateness_ticks + 1)


def test_rows_that_the_inventory_does_not_have_are_refused() -> None:
    cell = pair()
    block = np.zeros((5, len(GPU)), np.float32)
    out = cell.feed([cell.agents[0].frame(0, block, 1, 0), *cell.agents[1].frames(0)])
    assert out.refusals() == [
        "frame of node 'node-1' has 5 device rows, but inventory epoch 1 lists 2; "
        "the agent must raise the epoch when its rows change"
    ]
    assert (cell.stats.unfit, cell.stats.used) == (1, 3)


def test_a_frame_from_the_future_is_refused_and_time_goes_on() -> None:
    cell = pair()
    cell.run(0, 6)
    liar, honest = cell.agents
    out = cell.feed([*liar.frames(6 + 3600, schemas=[1]), *liar.frames(6), *honest.frames(6)])
    assert out.refusals() == [
        f"frame of node 'node-1' is 3601 s ahead of the other nodes of cell '{CELL}'; "
        "check the node's clock (time synchronisation)"
    ]
    assert [t.tick.index - FIRST for t in out.of(DemandTick) if t.source == "node/0"] == [6]
    assert (cell.stats.early, cell.stats.late) == (1, 0)


def test_a_node_whose_clock_is_wrong_for_good_is_left_behind_and_named() -> None:
    cell = pair()
    cell.run(0, 6)
    liar, honest = cell.agents
    marks = [
        mark
        for i in range(6, 30)
        for mark in cell.feed([*liar.frames(i + 3600), *honest.frames(i)]).of(DemandTick)
        if mark.source == "node/0"
    ]
    assert [m.tick.index - FIRST for m in marks] == list(range(6, 30))
    assert {m.tick.missing for m in marks} == {("node-1|1", "node-1|2", "node-1|3")}
    assert cell.stats.early == 24 * 3


def test_a_node_whose_clock_was_wrong_and_is_right_again_counts_again() -> None:
    cell = pair()
    cell.run(0, 6)
    liar, honest = cell.agents
    for i in range(6, 12):
        cell.feed([*liar.frames(i + 3600), *honest.frames(i)])
    used = cell.stats.used
    assert closed(cell, 12, 5) == list(range(12, 17))
    assert cell.stats.used == used + 5 * 6


@pytest.mark.parametrize("jump", [3600, -3600])
def test_the_clock_of_a_lone_node_may_jump(jump: int) -> None:
    cell = Cell(inventory("node-1"))
    cell.run(0, 6)
    reached = closed(cell, 6 + jump, 40)
    assert reached[-3:] == [43 + jump, 44 + jump, 45 + jump]
    assert cell.stats.used > 3 * 30


def test_duplicates_are_counted_and_change_nothing() -> None:
    once, twice = pair(), pair()
    plain = once.run(0, 8).demands()
    found: list[Demand] = []
    for i in range(8):
        frames = [f for agent in twice.agents for f in agent.frames(i)]
        found += twice.feed([*frames, *frames]).demands()
    assert found == plain
    assert (twice.stats.duplicates, twice.stats.used) == (48, 48)


def test_frames_in_another_order_within_a_batch_change_nothing() -> None:
    one, other = pair(), pair()
    batches = [[f for i in range(8) for agent in cell.agents for f in agent.frames(i)] for cell in (one, other)]
    plain = one.feed(batches[0])
    order: list[int] = np.random.default_rng(1).permutation(len(batches[1])).tolist()
    mixed: list[Incoming] = [batches[1][i] for i in order]
    assert other.feed(mixed).demands() == plain.demands()
    assert other.stats.gaps == 0


def test_a_long_backlog_of_one_node_in_one_batch_is_used_in_whole() -> None:
    """Its three layouts are decoded one after the other, far further apart than the window of duplicates."""
    cell = Cell(inventory("node-1"))
    cell.feed([f for i in range(100) for f in cell.agents[0].frames(i)])
    assert (cell.stats.used, cell.stats.duplicates, cell.stats.gaps) == (300, 0, 0)


def test_lost_frames_are_counted() -> None:
    cell = Cell(inventory("node-1"))
    agent = cell.agents[0]
    for i in range(6):
        frames = agent.frames(i)
        cell.feed(frames if i != 3 else frames[:1])
    assert cell.stats.gaps == 2


def test_a_late_frame_is_counted_and_published_in_the_next_tick() -> None:
    cell = pair()
    cell.run(0, 6)
    agent = cell.agents[0]
    out = cell.feed([agent.frame(2, np.zeros((2, len(GPU)), np.float32), 1, agent.seq), *cell.agents[1].frames(6)])
    agent.seq += 1
    out = cell.feed([*agent.frames(6)])
    assert [m.tick.late for m in out.of(DemandTick) if m.source == "node/0"] == [1]
    assert cell.stats.late == 1


def test_a_tick_that_would_end_after_the_end_of_time_is_refused() -> None:
    cell = Cell(inventory("node-1"))
    (good,) = cell.agents[0].frames(0, schemas=[2])
    last = msgspec.structs.replace(decode_frame(good.value or b""), time_ns=2**63 - 1)
    assert "its tick never ends" in cell.feed([incoming(frame_message(last))]).refusals()[0]
    endless = msgspec.structs.replace(last, time_ns=0, period_ns=2**63, seq=1)
    assert "its tick never ends" in cell.feed([incoming(frame_message(endless))]).refusals()[0]
    assert closed(cell, 0, 6) == list(range(6))


def test_the_newer_of_two_inventories_within_a_tick_counts_and_the_frames_of_the_other_are_counted() -> None:
    old = inventory("node-1", allocations=[SERVE])
    new = inventory("node-1", 3, [SERVE, SERVE], epoch=2, time_ns=START_NS + 1)
    cell = Cell(old, new, records=[spec("serve")])
    before, after = cell.agents
    batch: list[Incoming] = []
    for i in range(6):
        agent = before if i < 3 else after
        if i == 3:
            after.seq = before.seq
            batch += before.frames(i, schemas=[1, 3])
            after.seq = before.seq
        batch += agent.frames(i)
    cell.feed(batch)
    assert (cell.stats.used, cell.stats.superseded) == (3 * 3 + 2 + 3 * 3, 2)


def test_an_epoch_that_names_other_rows_than_before_does_not_mix_them() -> None:
    """Two agents that call themselves alike, or one that forgot to count."""
    cell = Cell(inventory("node-1", 2))
    cell.run(0, 4)
    wrong = inventory("node-1", 5, time_ns=START_NS + 5)
    cell.feed(incoming_records(wrong))
    cell.agents[0].inventory = wrong
    out = cell.run(4, 4)
    assert out.refusals() == []
    assert {t.tick.index - FIRST for t in out.of(DemandTick) if t.source == "node/0"} == {4, 5, 6, 7}


infinite = Values(
    {key: float("inf") for key in GPU.columns}, {"system.cpu.utilization": -3e38}, {"flyball.workload.ready": 3e38}
)


def test_values_that_cannot_be_do_no_harm() -> None:
    cell = pair()
    cell.run(0, 4)
    out = cell.run(4, 4, infinite)
    assert out.refusals() == []
    assert {d.ready for d in out.demands()} == {1}
    assert {d.utilization_sum for d in out.demands()} == {None}


def event(**changes: object) -> NodeEvent:
    given = {"id": "e", "node": "node-1", "time_ns": START_NS, "kind": "xid", "device": "node-1/0", "code": 79}
    return msgspec.convert(given | {"remedy": "reset_gpu"} | changes, NodeEvent)


def test_an_event_counts_from_its_tick_on_however_early_it_is_read() -> None:
    cell = pair()
    cell.run(0, 5)
    cell.feed(incoming_records(event(time_ns=START_NS + 8 * PERIOD_NS)))
    found = cell.run(5, 8).of(Anomaly)
    assert [(a.subject, a.detector, a.time_ns // PERIOD_NS - FIRST) for a in found] == [("node-1/0", "failing", 9)]


def test_events_of_nobody_and_nothing_are_counted() -> None:
    cell = pair()
    cell.run(0, 4)
    cell.feed(incoming_records(event(node="node-9"), event(device="no-such-gpu")))
    assert cell.stats.ignored == 2
    assert cell.run(4, 4).of(Anomaly) == []


@given(st.binary(max_size=40), st.sampled_from([EVENTS.name, INVENTORY.name]))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_garbage_on_other_topics_is_refused_too(value: bytes, topic: str) -> None:
    cell = Cell(inventory("node-1"))
    headers: list[tuple[str, bytes | None]] = [("ce_type", b"io.flyball.NodeEvent")]
    out = cell.feed([Incoming(topic, 0, 3, b"k", value, headers), *cell.agents[0].frames(0)])
    (reason,) = out.refusals()
    assert topic in reason
    assert cell.stats.used == 3


def test_any_number_of_rows_makes_a_frame_that_is_used_or_refused() -> None:
    cell = pair()
    for rows in (0, 1, 2, 3, 4096):
        block = np.full((rows, len(GPU)), np.nan, np.float32)
        made = make_frame(
            block, schema=1, node="node-1", boot_id="boot-1", epoch=1, seq=rows, time_ns=START_NS,
            period_ns=PERIOD_NS, inventory_epoch=1,
        )  # fmt: skip
        cell.feed([incoming(frame_message(made))])
    assert (cell.stats.used, cell.stats.unfit) == (1, 4)


def test_a_layout_that_no_decision_rests_on_changes_nothing() -> None:
    cell = pair()
    good = cell.agents[0].frames(0, schemas=[1])[0]
    frame = decode_frame(good.value or b"")
    detail = np.zeros((frame.rows, len(GPU_DETAIL)), np.float32)
    more = msgspec.structs.replace(frame, schema=GPU_DETAIL.schema, seq=frame.seq + 1, block=detail.tobytes())
    out = cell.feed([good, incoming(frame_message(more))])
    assert out.refusals() == []
    assert (cell.stats.used, cell.stats.gaps) == (1, 0)
