"""A silence is reported where the node's frames should come, and for a week at most."""

from tests.streams.engine.scene import CONFIG, FIRST, ONE, PERIOD_NS, Agent, Out, incoming, inventory

from flyball_contracts.codec import record_message
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Allocation, Inventory, ProposalTick, Symptom, Tick
from flyball_contracts.records.events import node_event
from flyball_contracts.topics import TELEMETRY
from flyball_streams.engine import Engine, Lane
from flyball_streams.engine.node.detectors.absences import LONGEST_S, NOT_BACK, RETURN_S, Absences
from flyball_streams.engine.packing import pack, unpack
from flyball_streams.engine.workload.silent_lanes import SilentLanes

HOUR_NS = 3600 * NS_PER_S
WEEK = round(LONGEST_S / 3600)
NAMES = [f"node-{n}" for n in range(8)]
HERE, MOVED = ([name for name in NAMES if partition_of(name.encode(), 2) == p] for p in (0, 1))


def hours(first: int, last: int) -> list[Tick]:
    return [Tick(index=FIRST + i, period_ns=HOUR_NS) for i in range(first, last)]


def named(symptoms: list[Symptom]) -> set[str]:
    return {symptom.node for symptom in symptoms}


def test_nodes_whose_frames_go_to_another_partition_since_some_were_added_are_not_missed_in_the_old_one() -> None:
    """One partition becomes two: the lane goes on from its snapshot, and the nodes of the other stay away from it."""
    agents = {name: Agent(inventory(name)) for name in NAMES}
    start = [incoming(record_message(agent.inventory, "/test")) for agent in agents.values()]
    before, after = Engine(CONFIG, ONE), Engine(CONFIG, ONE | {TELEMETRY.name: 2})
    for engine in (before, after):
        engine.feed(start)
    frames = [[f for name in NAMES for f in agents[name].frames(i, schemas=(1,))] for i in range(20)]
    for batch in frames[:10]:
        before.feed(batch)
    after.feed(frames[0])
    lanes: list[tuple[Lane, Lane]] = [(after.nodes[0], before.nodes[0])]
    for mine, theirs in lanes:
        mine.restore(theirs.snapshot())
    alive, dead = HERE[:-1], HERE[-1]
    found: list[Symptom] = []
    for i in range(10, 800):
        sent = after.nodes[0].step([f for name in alive for f in agents[name].frames(i, schemas=(1,))])
        found += [s for one in Out(sent).of(ProposalTick) for s in one.symptoms]
    assert MOVED
    assert named(found) == {dead}
    assert found[-1].time_ns > (FIRST + 700) * PERIOD_NS, "it is remembered though the lane has dropped it"


def test_a_node_that_was_dropped_is_reported_for_a_week() -> None:
    absences = Absences()
    absences.observe(["dead"], FIRST)
    first = list(absences.silent(hours(0, 1)[0], ["dead", "alive"], 1e-6))
    assert first == []
    absences.drop("dead")
    seen: list[list[Symptom]] = []
    for tick in hours(1, WEEK + 10):
        absences.observe(["alive"], tick.index)
        seen.append(list(absences.silent(tick, ["alive"], 1e-6)))
    assert [named(found) for found in seen] == [{"dead"}] * WEEK + [set()] * 9
    assert absences.gone == {}
    assert "dead" not in absences.last_seen


def test_the_nodes_of_a_lane_that_is_silent_are_reported_for_a_week() -> None:
    node: list[Inventory] = [inventory(HERE[0])]
    lanes = SilentLanes(2)
    assert list(lanes.step(hours(0, 1)[0], ["node/0", "node/1"], node)) == []
    seen = [named(list(lanes.step(tick, ["node/1"], node))) for tick in hours(1, WEEK + 10)]
    assert seen == [{HERE[0]}] * WEEK + [set()] * 9


HELD = (Allocation(workload="train", replica="0", devices=(0,)),)
TEN_MINUTES_NS = 600 * NS_PER_S


def ten_minutes(first: int, last: int) -> list[Tick]:
    return [Tick(index=FIRST + i, period_ns=TEN_MINUTES_NS) for i in range(first, last)]


def test_a_node_that_held_work_when_its_agent_stopped_is_missed_once_a_reboot_is_over() -> None:
    """By the lane that reads it, over a restart and after it was dropped; without work it is not missed."""
    back = round(RETURN_S / 600)
    absences, names = Absences(), ["busy", "idle", "alive"]
    for name in names:
        absences.observe([name], FIRST)
    assert list(absences.silent(ten_minutes(0, 1)[0], names, 1e-6)) == []
    for name in names[:2]:
        absences.note(
            node_event(name, FIRST * TEN_MINUTES_NS, "agent_stopped"), TEN_MINUTES_NS, holds_work=name == "busy"
        )
        absences.drop(name)
    seen: list[list[Symptom]] = []
    for tick in ten_minutes(1, back + 4):
        before, absences = absences, Absences()
        absences.load(unpack(pack(before.state())))
        absences.observe(["alive"], tick.index)
        seen.append(list(absences.silent(tick, ["alive"], 1e-6)))
    assert [named(found) for found in seen] == [set()] * (back - 1) + [{"busy"}] * 4
    assert seen[-1][0].text.endswith(NOT_BACK)


def test_a_silent_lane_misses_a_stopped_node_that_held_work_once_a_reboot_is_over() -> None:
    back = round(RETURN_S / 600)
    names = [f"node-{n}" for n in range(40) if not partition_of(f"node-{n}".encode(), 2)]
    busy, idle = (inventory(name, 1, held, agent="stopped") for name, held in zip(names, (HELD, ()), strict=False))
    never_had_one = inventory(names[2], 1, HELD, agent="none")
    lanes = SilentLanes(2)
    assert list(lanes.step(ten_minutes(0, 1)[0], ["node/0", "node/1"], [busy])) == []
    found = [list(lanes.step(tick, ["node/1"], [busy, idle, never_had_one])) for tick in ten_minutes(1, back + 4)]
    assert [named(one) for one in found] == [set()] * (back - 1) + [{busy.node}] * 4
    assert found[-1][0].text.endswith(NOT_BACK)
