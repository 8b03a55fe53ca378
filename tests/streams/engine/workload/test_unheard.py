"""Nodes whose whole telemetry partition is silent are reported, too."""

from collections.abc import Sequence

from msgspec.structs import replace
from tests.streams.engine.scene import FIRST, ONE, PERIOD_NS, Agent, Out, incoming, inventory, spec

from flyball_contracts.codec import Message, record_message
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Allocation, Incident, Record
from flyball_contracts.records.events import node_event
from flyball_contracts.topics import TELEMETRY
from flyball_streams.engine import Engine, Incoming, Lane
from flyball_streams.engine.parameters import Parameters

PARTITIONS = ONE | {TELEMETRY.name: 2}
LAPSE = 60.0
"""How long a cell waits for a lane, in s."""


def home(node: str) -> int:
    return partition_of(node.encode(), 2)


NAMES = [f"node-{n}" for n in range(8)]
ALONE = [name for name in NAMES if home(name)]
OTHERS = [name for name in NAMES if not home(name)]


class Scene:
    """Nodes in two telemetry partitions, what they send in ticks of ``period_s`` seconds, and the incidents."""

    def __init__(self, rack: str = "", idle: Sequence[str] = (), period_s: int = 1) -> None:
        held = [Allocation(workload="train", replica="0", devices=(0,))]
        nodes = [inventory(n, 1, () if n in idle else held, rack=rack if home(n) else "") for n in NAMES]
        self.period_s = period_s
        self.agents = {node.node: Agent(node, period_s=period_s) for node in nodes}
        self.start = [
            incoming(record_message(r, "/test"), PARTITIONS)
            for r in (*nodes, spec("train", kind="training", max_replicas=len(nodes)))
        ]
        self.engine = self.made()
        self.found: dict[str, Incident] = {}

    def made(self) -> Engine:
        engine = Engine(Parameters(lateness_ticks=2, lane_lateness_s=LAPSE), PARTITIONS)
        engine.feed(self.start)
        return engine

    def run(self, first: int, last: int, *names: str) -> dict[str, Incident]:
        """Let these nodes speak from one second to another."""
        for index in range(first, last, self.period_s):
            batch = [f for name in names for f in self.agents[name].frames(index, schemas=(1,))]
            out = Out(self.engine.feed([incoming(as_message(f), PARTITIONS) for f in batch]))
            self.found.update({one.id: one for one in out.of(Incident)})
        return self.found

    def stop(self, index: int, *names: str) -> None:
        """Let the agents of these nodes stop in order."""
        time_ns = (FIRST + index) * PERIOD_NS
        for name in names:
            before = self.agents[name].inventory
            last = replace(before, epoch=before.epoch + 1, time_ns=time_ns, agent="stopped")
            self.take(node_event(name, time_ns, "agent_stopped"), last)

    def start_again(self, index: int, *names: str) -> None:
        """Let new agents of these nodes start."""
        time_ns = (FIRST + index) * PERIOD_NS
        for name in names:
            now = replace(self.agents[name].inventory, epoch=time_ns, time_ns=time_ns)
            self.agents[name] = Agent(now, epoch=time_ns, period_s=self.period_s)
            self.take(now, node_event(name, time_ns, "agent_started"))

    def take(self, *records: Record) -> None:
        self.engine.feed([incoming(record_message(record, "/test"), PARTITIONS) for record in records])

    def restart(self) -> None:
        """Go on from snapshots."""
        before, self.engine = self.engine, self.made()
        for index in (0, self.period_s):
            agents = [Agent(self.agents[name].inventory, period_s=self.period_s) for name in NAMES]
            frames = [f for agent in agents for f in agent.frames(index, schemas=(1,))]
            self.engine.feed([incoming(as_message(f), PARTITIONS) for f in frames])
        for mine, theirs in zip(lanes(self.engine), lanes(before), strict=True):
            mine.restore(theirs.snapshot())


def as_message(frame: Incoming) -> Message:
    return Message(frame.topic, frame.key or b"", frame.value or b"", [])


def lanes(engine: Engine) -> list[Lane]:
    return [*(engine.nodes[p] for p in sorted(engine.nodes)), *engine.workloads, *engine.cells]


def named(found: dict[str, Incident]) -> set[str]:
    return {node for one in found.values() for node in one.nodes}


def test_nodes_of_a_lane_that_is_silent_are_missed_after_two_minutes_and_a_restart_changes_nothing() -> None:
    scene = Scene()
    scene.run(0, 20, *NAMES)
    assert scene.run(20, 130, *OTHERS) == {}
    scene.restart()
    assert scene.run(130, 139, *OTHERS) == {}
    found = scene.run(139, 145, *OTHERS)
    assert named(found) == set(ALONE)
    (symptom,) = {s.text for one in found.values() for s in one.symptoms}
    assert symptom == "nothing was heard of it for 120 s, nor of any other node of its partition"
    assert {one.onset_ns for one in found.values()} == {(FIRST + 20) * PERIOD_NS}
    before = {one.id: one.seen_ns for one in found.values() if one.status == "open"}
    scene.run(145, 160, *NAMES)
    assert {one.id: one.seen_ns for one in scene.found.values() if one.status == "open"} == before, "they are back"


def test_of_a_silent_lane_those_are_missed_that_did_not_stop_on_purpose_and_they_are_missed_once_they_are_back() -> (
    None
):
    crashed, *ended = ALONE
    assert ended
    scene = Scene(idle=ended, period_s=5)
    scene.run(0, 20, *NAMES)
    scene.stop(19, *ended)
    found = scene.run(20, 200, *OTHERS)
    assert named(found) == {crashed}
    before = set(found)
    scene.start_again(200, *ended)
    scene.run(200, 220, *OTHERS, *ended)
    assert set(scene.run(220, 400, *OTHERS)) > before
    assert named(scene.found) == set(ALONE)


def test_an_upgrade_of_the_agents_of_a_lane_is_no_incident_and_its_crash_is() -> None:
    scene = Scene(period_s=5)
    scene.run(0, 20, *NAMES)
    scene.stop(19, *ALONE)
    scene.run(20, 200, *OTHERS)
    scene.start_again(200, *ALONE)
    assert scene.run(200, 220, *NAMES) == {}
    assert named(scene.run(220, 400, *OTHERS)) == set(ALONE)


def test_a_node_that_comes_back_from_a_stop_may_send_its_first_frame_late() -> None:
    scene = Scene()
    scene.run(0, 20, *NAMES)
    scene.stop(19, OTHERS[0])
    there = (*OTHERS[1:], *ALONE)
    scene.run(20, 320, *there)
    scene.start_again(320, OTHERS[0])
    scene.run(320, 323, *there)
    assert scene.run(323, 340, *NAMES) == {}


def test_a_rack_in_one_partition_that_is_silent_is_one_incident() -> None:
    scene = Scene(rack="r1")
    scene.run(0, 20, *NAMES)
    found = [one for one in scene.run(20, 145, *OTHERS).values() if one.status == "open"]
    assert [(one.level, one.domain, one.cause) for one in found] == [("rack", "r1", "network")]


def test_lanes_that_are_back_in_time_or_never_spoke_or_stop_with_all_others_are_not_missed() -> None:
    scene = Scene(period_s=5)
    scene.run(0, 20, *NAMES)
    assert scene.run(20, 110, *OTHERS) == {}
    assert scene.run(110, 250, *NAMES) == {}
    assert scene.run(900, 920, *NAMES) == {}, "nobody was heard for ten minutes"
    assert Scene(period_s=5).run(0, 200, *OTHERS) == {}, "who never spoke may be long gone"
