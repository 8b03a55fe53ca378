"""Whatever a client writes into a specification, a curve, a demand or a proposal: the lanes go on, and what they send
can be read."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from tests.contracts.strategies import strategy
from tests.streams.engine.scene import (
    CELL,
    CONFIG,
    START_NS,
    Cell,
    Out,
    incoming,
    incoming_records,
    inventory,
    spec,
    tick,
)

from flyball_contracts.codec import Message, decode_message, record_message
from flyball_contracts.config import Offer
from flyball_contracts.records import (
    Allocation,
    Alternatives,
    Demand,
    DemandTick,
    NodeEvent,
    Outcome,
    Proposal,
    ProposalTick,
    Scale,
    Signal,
    WorkloadSpec,
)
from flyball_contracts.topics import DEAD_LETTERS, DEMAND, EVENTS, PROPOSALS
from flyball_streams.engine import Directory, Incoming, Lane
from flyball_streams.engine.cell import CellLane
from flyball_streams.engine.node import NodeLane
from flyball_streams.engine.parameters import ChoiceParameters
from flyball_streams.engine.workload import WorkloadLane

SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
HELD = [Allocation(workload="w", replica="0", devices=(0,)), Allocation(workload="w", replica="1", devices=(1, -3, 99))]
NODE = inventory("node-1", 4, HELD, zone="z", price_usd_per_hour=8.0)
replace = msgspec.structs.replace
OFFERS = (
    Offer(name="own", gpu_model="h100", market="reserved", price_usd_per_hour=1.0),
    Offer(name="spot", gpu_model="h100", market="spot", price_usd_per_hour=0.5, loss_per_hour=0.1),
)
CHOOSES = replace(CONFIG, choice=ChoiceParameters(mode="act", offers=OFFERS, every_s=2.0))


def garbage(of: type[Any], /, **fixed: Any) -> st.SearchStrategy[Any]:
    return strategy(of).map(lambda record: replace(record, **fixed))


specs = garbage(WorkloadSpec, workload="w", cell=CELL, removed=False)
signals = garbage(Signal, zone="z", kind="carbon_intensity")


def readable(messages: list[Message]) -> Out:
    for m in messages:
        if m.topic != DEAD_LETTERS.name:
            decode_message(m.topic, m.value, m.headers)
    return Out(messages)


def lanes(directory: Directory) -> dict[str, Lane]:
    return {
        EVENTS.name: NodeLane(0, CONFIG, directory, 1),
        DEMAND.name: WorkloadLane(0, CONFIG, directory, 1),
        PROPOSALS.name: CellLane(0, CONFIG, directory),
    }


def mark(source: str, index: int) -> Incoming:
    return incoming(record_message(ProposalTick(cell=CELL, source=source, tick=tick(index)), f"/{source}"))


def requested(index: int, demand: Demand) -> DemandTick:
    return DemandTick(cell=CELL, source="node/0", tick=tick(index), partition=0, demands=(demand,))


def world(*records: Any) -> Directory:
    directory = Directory()
    for record in (NODE, *records):
        directory.apply(record)
    return directory


TINY = WorkloadSpec(workload="w", cell=CELL, time_ns=0, kind="inference", capacity_per_replica=2.2e-311)


JOB = WorkloadSpec(workload="w", cell=CELL, time_ns=0, kind="batch", interruptible=True, deadline_ns=0, duration_s=1.0)
CURVE = Signal(zone="z", kind="carbon_intensity", published_ns=0, start_ns=0, step_s=1.0, p50=(0.0,))


@given(specs, st.lists(signals, max_size=1), st.lists(strategy(Demand), min_size=1, max_size=4))
@example(replace(JOB, checkpoint_s=-4e11), [CURVE], [Demand(workload="w", replicas=0, ready=0, devices=0)])
@example(replace(JOB, cold_start_s=-7.5e9), [CURVE], [Demand(workload="w", replicas=0, ready=0, devices=0)])
@example(
    replace(JOB, cold_start_s=1e308, checkpoint_s=1e308),
    [CURVE],
    [Demand(workload="w", replicas=0, ready=0, devices=0)],
)
@example(TINY, [], [Demand(workload="w", replicas=1, ready=1, devices=1, work_rate=1.0)])
@SETTINGS
def test_workload_lane(workload: WorkloadSpec, curves: list[Signal], demands: list[Demand]) -> None:
    directory = world(workload, *curves)
    lane, cell = WorkloadLane(0, CONFIG, directory, 1), CellLane(0, CONFIG, directory)
    for i in range(12):
        sent = lane.step(incoming_records(requested(i, replace(demands[i % len(demands)], workload="w"))))
        readable(sent)
        proposals = [incoming(m) for m in sent if m.topic == PROPOSALS.name]
        assert readable(cell.step(proposals)).refusals() == []
    assert lane.stats.ticks >= 6


@given(specs, st.lists(st.tuples(strategy(Proposal), strategy(Alternatives)), min_size=1, max_size=4))
@SETTINGS
def test_a_cell_lane_that_chooses_machines(
    workload: WorkloadSpec, asked_for: list[tuple[Proposal, Alternatives]]
) -> None:
    cell = CellLane(0, CHOOSES, world(replace(workload, max_replicas=min(workload.max_replicas, 64))))
    for i in range(12):
        proposal, there = asked_for[i % len(asked_for)]
        work = dict(zip(("own", "spot"), [*there.work.values(), 1.0], strict=False))
        named = replace(proposal, workload="w", action="choose", alternatives=replace(there, work=work))
        said = ProposalTick(cell=CELL, source="workload/0", tick=tick(i), proposals=(named,))
        assert readable(cell.step(incoming_records(said))).refusals() == []
        cell.restore(cell.snapshot())
    assert cell.stats.ticks >= 6


def test_replicas_that_take_next_to_nothing_fill_a_cell() -> None:
    """Found by fuzzing: replicas without number, each with its 1e-20 of a GPU, were placed one by one."""
    endless = spec("w", gpus_per_replica=2.5e-21, min_replicas=3 * 10**10, max_replicas=64)
    proposal = Proposal(id="p", workload="w", action="scale", replicas=3 * 10**10, reason="a burst")
    cell, sent = CellLane(0, CONFIG, world(endless)), list[Message]()
    for i in range(12):
        said = ProposalTick(cell=CELL, source="workload/0", tick=tick(i), proposals=(proposal,))
        sent += cell.step(incoming_records(said))
    (decision,) = Out(sent).of(Scale)
    assert decision.replicas == 2 + 2 * 100  # two run, and two of the four GPUs are free


@given(st.lists(specs, max_size=1), st.lists(strategy(Proposal), min_size=1, max_size=6))
@SETTINGS
def test_cell_lane(workloads: list[WorkloadSpec], proposals: list[Proposal]) -> None:
    cell = CellLane(0, CONFIG, world(*workloads, spec("other", priority=-5, interruptible=True)))
    for i in range(20):
        proposal = proposals[i % len(proposals)]
        named = replace(proposal, workload="w" if i % 3 else proposal.workload)
        at = replace(named, node="node-1", replica="0", device="node-1/0") if i % 2 else named
        published = ProposalTick(cell=CELL, source="node/0", tick=tick(i), proposals=(at,), closes=False)
        readable(cell.step([*incoming_records(published), mark("workload/0", i)]))
    assert cell.stats.ticks >= 6


@given(st.lists(st.one_of([strategy(k) for k in (DemandTick, ProposalTick, NodeEvent, Outcome)]), max_size=8))
@SETTINGS
def test_records_of_any_client_on_any_topic(records: list[Any]) -> None:
    directory = world()
    for topic, lane in lanes(directory).items():
        batch = [Incoming(topic, 0, i, m.key, m.value, m.headers) for i, m in enumerate(map(message, records))]
        out = readable(lane.step(batch))
        s = lane.stats
        counted = s.used + s.late + s.early + s.undecodable + s.unfit + s.ignored
        assert counted == len(batch)
        assert len(out.refusals()) == s.undecodable + s.unfit


def message(record: Any) -> Message:
    return record_message(record, "/somebody")


@pytest.mark.parametrize("topic", [EVENTS.name, DEMAND.name, PROPOSALS.name])
@given(st.binary(max_size=30), st.sampled_from([None, b"io.flyball.DemandTick", b"io.flyball.Nothing", b"\xff"]))
@settings(max_examples=30, deadline=None)
def test_bytes_of_anything(topic: str, value: bytes, kind: bytes | None) -> None:
    directory = world()
    lane = lanes(directory)[topic]
    out = Out(lane.step([Incoming(topic, 0, 1, None, value, [("ce_type", kind)])]))
    (reason,) = out.refusals()
    assert topic in reason
    assert lane.stats.undecodable == 1


def test_an_enormous_curve_does_not_stop_the_clock() -> None:
    huge = Signal(
        zone="z", kind="carbon_intensity", published_ns=START_NS, start_ns=START_NS, step_s=900.0,
        p50=(1e308, -1e308, 0.0, float(np.float32(3e38))) * 30,
    )  # fmt: skip
    job = spec("w", kind="batch", interruptible=True, deadline_ns=START_NS + 10**14, duration_s=1e300)
    cell = Cell(NODE, records=[job, huge])
    assert cell.run(0, 8).refusals() == []


def test_a_number_of_replicas_that_no_cell_has() -> None:
    lane = WorkloadLane(0, CONFIG, world(spec("w", capacity_per_replica=1.0)), 1)
    for i in range(12):
        many = Demand(workload="w", replicas=2**40, ready=2**40, devices=0, work_rate=0.0)
        readable(lane.step(incoming_records(requested(i, many))))
    assert lane.stats.ticks >= 6


def test_a_request_with_more_work_than_a_number_holds() -> None:
    lane = WorkloadLane(0, CONFIG, world(spec("w", capacity_per_replica=1e-30)), 1)
    for i in range(12):
        endless = Demand(
            workload="w", replicas=1, ready=1, devices=1, work_rate=1e30, request_rate=1e-300, queued=1e30
        )  # fmt: skip
        readable(lane.step(incoming_records(requested(i, endless))))
    assert lane.stats.ticks >= 6
