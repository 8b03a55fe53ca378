"""A tick that is decided again after a crash is decided on the tables that it was decided on first."""

from collections.abc import Sequence

import msgspec
import pytest
from tests.streams.engine.recorded import PARTITIONS, SMALL, WORKER, Recorded, decisions, record
from tests.streams.engine.scene import CONFIG, Cell, Out, Values, incoming, inventory, spec

from flyball_contracts.codec import Message, decode_record, record_message
from flyball_contracts.records import Allocation, Demand, DemandTick, ProposalTick
from flyball_contracts.topics import DECISIONS, DEMAND, INVENTORY, OUTCOMES, PROPOSALS, SIGNALS, WORKLOADS
from flyball_streams.engine import Directory, Engine, Incoming, Lane
from flyball_streams.engine.cell import CellLane
from flyball_streams.engine.cell.memory import Memory
from flyball_streams.engine.node import NodeLane
from flyball_streams.engine.workload import WorkloadLane

TABLES = {INVENTORY.name, WORKLOADS.name, SIGNALS.name, OUTCOMES.name}
SAVED, CRASHED, LATE = 14, 40, 8
"""Batches before the snapshots and before the crash; ticks by which outcomes come later than their time."""


def tables(batch: Sequence[Incoming]) -> list[Incoming]:
    return [m for m in batch if m.topic in TABLES]


def delayed(recorded: Recorded) -> list[list[Incoming]]:
    """The batches, with the outcomes some ticks later."""
    late: list[list[Incoming]] = [[] for _ in range(LATE)]
    late += [[m for m in batch if m.topic == OUTCOMES.name] for batch in recorded.batches]
    others = [[m for m in batch if m.topic != OUTCOMES.name] for batch in recorded.batches]
    return [[*now, *rest] for now, rest in zip(late, others, strict=False)]


class Crash:
    """An engine whose lanes left their snapshots after ``saved`` batches and crashed after ``crashed``."""

    def __init__(self, batches: list[list[Incoming]], saved: int, crashed: int) -> None:
        self.batches, self.crashed = batches, crashed
        engine = self.engine = Engine(WORKER)
        for batch in batches[:saved]:
            engine.feed(batch)
        self.lanes: list[Lane] = [*engine.workloads, *engine.cells]
        self.states = [lane.snapshot() for lane in self.lanes]
        self.log = [m for batch in batches[saved:crashed] for m in engine.feed(batch)]

    def again(self, log: Sequence[Message]) -> tuple[list[Message], list[Lane]]:
        """What the lanes say when they come back and read the log again, and the lanes: late tables have come."""
        directory, demand = Directory(), PARTITIONS[DEMAND.name]
        for m in (m for batch in self.batches[: self.crashed + LATE] for m in tables(batch)):
            directory.apply(decode_record(m.topic, m.value, m.headers), m.partition, m.offset)
        workloads = [WorkloadLane(p, WORKER, directory, demand, None, 8) for p in range(demand)]
        cells = [CellLane(p, WORKER, directory, demand) for p in range(PARTITIONS[PROPOSALS.name])]
        lanes: list[Lane] = [*workloads, *cells]
        for lane, state in zip(lanes, self.states, strict=True):
            lane.restore(state)
        by_topic: dict[str, list[Lane]] = {DEMAND.name: [*workloads], PROPOSALS.name: [*cells]}
        return [
            out
            for m in log
            if m.topic in by_topic
            for read in [incoming(m, PARTITIONS)]
            for out in by_topic[m.topic][read.partition].step([read])
        ], lanes


@pytest.fixture(scope="module")
def crash() -> Crash:
    return Crash(delayed(record(SMALL, CRASHED + LATE, refuse_every=2)), SAVED, CRASHED)


def of_lanes(log: Sequence[Message]) -> list[tuple[bytes | None, bytes]]:
    """Id and content of what workload and cell lanes said."""
    return sorted(
        (dict(m.headers)["ce_id"], m.value) for m in log if not dict(m.headers)["ce_source"].startswith(b"/node/")
    )


def memories(lanes: Sequence[Lane]) -> list[Memory]:
    """What arbiters believe."""
    return [arbiter.memory for lane in lanes if isinstance(lane, CellLane) for arbiter in lane.arbiters.values()]


def without_offsets(log: Sequence[Message]) -> list[Message]:
    """What lanes of before would have sent."""
    found: list[Message] = []
    for m in log:
        one = decode_record(m.topic, m.value, m.headers)
        plain = msgspec.structs.replace(one, table_offsets={}) if isinstance(one, DemandTick | ProposalTick) else one
        source = dict(m.headers)["ce_source"].decode()
        found.append(m._replace(value=record_message(plain, source).value))
    return found


def test_what_came_late_before_a_crash_is_as_late_after_it(crash: Crash) -> None:
    published, lanes = crash.again(crash.log)
    assert decisions([crash.log])
    assert of_lanes(published) == of_lanes(crash.log)
    assert memories(lanes) == memories(crash.lanes), "what was ordered is known to be ordered"


def test_without_the_offsets_one_id_has_two_contents_and_decisions_are_lost(crash: Crash) -> None:
    """What this guards against: the tables that the ticks of before do not name are the newest ones."""
    published, _ = crash.again(without_offsets(crash.log))
    then, now = (dict(of_lanes([m for m in log if m.topic == DECISIONS.name])) for log in (crash.log, published))
    assert any(then[identity] != value for identity, value in now.items() if identity in then)
    assert then.keys() - now.keys()


def test_what_node_lanes_say_again_changes_nothing(crash: Crash) -> None:
    """After a crash they say ticks again with newer tables; what was heard first counts, and is what counts again."""
    newest = crash.engine.directory.offsets
    later: list[Message] = []
    for m in crash.log:
        one = decode_record(m.topic, m.value, m.headers)
        if isinstance(one, DemandTick):
            newer = record_message(msgspec.structs.replace(one, table_offsets=newest), f"/{one.source}")
            later.append(m._replace(value=newer.value))
    published, _ = crash.again([*crash.log, *later])
    assert dict(of_lanes(published)) == dict(of_lanes(crash.log))


def test_a_node_lane_that_comes_back_knows_the_workloads_that_it_knew() -> None:
    held = [Allocation(workload="gang", replica=f"{i}", devices=(i,)) for i in range(2)]
    here = Cell(inventory("node-1", 2, held))
    values = Values({"nvidia.gpu.clock.frequency{clock=sm}": 1e9, "hw.gpu.utilization{task=general}": 0.5})
    here.run(0, 4, values)
    (lane,) = here.engine.nodes.values()
    state = lane.snapshot()
    late = spec("gang", kind="training", max_replicas=4, gpus_per_replica=1.0)
    directory = Directory()
    for one in (here.agents[0].inventory, late):
        directory.apply(one)
    back = NodeLane(lane.partition, CONFIG, directory, 1)
    back.restore(state)
    frames = [frame for i in range(4, 9) for frame in here.agents[0].frames(i, values)]
    first, again = ([d.demands for d in Out(one.step(frames)).of(DemandTick)] for one in (lane, back))
    assert first == again != []
    back.snapshot()
    clocks = [d.clocks for out in back.step(here.agents[0].frames(9, values)) for d in demands(out)]
    assert clocks
    assert all(clocks), "from its next snapshot on it knows the newer ones"


def demands(m: Message) -> tuple[Demand, ...]:
    one = decode_record(m.topic, m.value, m.headers)
    return one.demands if isinstance(one, DemandTick) else ()
