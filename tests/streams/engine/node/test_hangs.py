"""Training that stands still is a hang; checkpoints, learned pauses, ended processes and servers are not."""

import copy
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray
from tests.streams.engine.node.test_profiles import CHOSEN, COMPUTE, frames, lanes
from tests.streams.engine.scene import FIRST, Cell, Out, incoming_records, inventory, spec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import HOST
from flyball_contracts.records import Allocation, Anomaly, Incident, Migrate

Floats = NDArray[np.float32]
EVERY = 10
STEPS: dict[str, float] = {"flyball.workload.steps": 4.0, "flyball.workload.step.time": 1.2}
STUCK = STEPS | {"flyball.workload.steps": 0.0}
WORKS = COMPUTE | {"hw.gpu.memory.utilization": 0.6}
IDLE = WORKS | {"hw.gpu.utilization{task=general}": 0.0, "nvidia.gpu.sm.activity": 0.0, "hw.power": 90.0}
GONE = IDLE | {"hw.gpu.memory.utilization": 0.0}


def gang(kind: Any = "training") -> Cell:
    held = tuple(Allocation(workload="a", replica=f"a-{i}", devices=(i,)) for i in range(4))
    records = [] if kind is None else [spec("a", kind=kind, max_replicas=4)]
    return Cell(inventory("node-1", 4, held), records=records, config=CHOSEN)


class Course:
    """A cell over time; ``at`` is the second that comes next."""

    def __init__(self, cell: Cell) -> None:
        self.cell, self.at = cell, 0

    def run(
        self,
        seconds: int,
        gpu: Mapping[str, float],
        page: Mapping[str, float | Floats] = STEPS,
        writes: float = 0.0,
        errors: float = 0.0,
    ) -> Out:
        """Frames of so many seconds; the node ``writes`` so many bytes a second, a port has ``errors`` in a tick."""
        out, agent = Out([]), self.cell.agents[0]
        host = np.full((1, len(HOST)), np.nan, np.float32)
        host[0, HOST.column("system.disk.io{direction=write}")] = writes * EVERY
        host[0, HOST.column("system.network.errors{direction=receive}")] = errors
        for index in range(self.at, self.at + seconds, EVERY):
            made = frames(agent, index, gpu, page, EVERY)
            made[1] = agent.frame(index, host, HOST.schema, agent.seq - 2, period_ns=EVERY * NS_PER_S)
            out.messages.extend(self.cell.feed(made).messages)
        self.at += seconds
        return out

    def hangs(self, *given: Any) -> list[int]:
        """Seconds from the beginning of a run to each of its hangs."""
        begin = FIRST + self.at
        return [a.time_ns // NS_PER_S - begin for a in self.run(*given).of(Anomaly) if a.detector == "hang"]


@cache
def _worked(kind: Any, page: tuple[tuple[str, float], ...], seconds: int) -> Course:
    course = Course(gang(kind))
    assert course.hangs(seconds, WORKS, dict(page)) == []
    return course


def worked() -> Course:
    """A training gang that has worked for 2,000 s, and is no longer young."""
    return copy.deepcopy(_worked("training", tuple(STEPS.items()), 2000))


Grown = Callable[[Any, Mapping[str, float]], Course]


@pytest.fixture
def grown(monkeypatch: pytest.MonkeyPatch) -> Grown:
    """Makes gangs that are no longer young after 700 s; in production they are for half an hour."""
    monkeypatch.setattr("flyball_streams.engine.node.detectors.standstills.YOUNG_S", 600.0)
    return lambda kind, page: copy.deepcopy(_worked(kind, tuple(page.items()), 700))


@pytest.mark.parametrize(("kind", "most_s"), [("training", 30), (None, 60)])
def test_a_gang_of_which_all_ranks_wait_for_data_hangs_within_half_a_minute(
    request: pytest.FixtureRequest, kind: Any, most_s: int
) -> None:
    """Without a specification, its profile shows that it trains, but after some minutes."""
    course = worked() if kind == "training" else request.getfixturevalue("grown")(kind, STEPS)
    begin = course.at
    out = course.run(300, IDLE, STUCK)
    found, *again = [a for a in out.of(Anomaly) if a.detector == "hang"]
    assert [a.time_ns for a in again] == [found.time_ns + n * 60 * NS_PER_S for n in range(1, len(again) + 1)]
    assert {a.since_ns for a in again} == {found.since_ns}
    assert found.time_ns // NS_PER_S - FIRST - begin <= most_s
    assert (found.subject, found.workload, found.evidence[-1].value) == ("a", "a", 4.0)
    assert (found.evidence[1].name, found.evidence[1].unit) == ("ranks.idle", "s")
    assert found.since_ns == (FIRST + begin) * NS_PER_S
    opened = {(i.level, i.workload) for i in out.of(Incident)}
    assert ("workload", "a") in opened


def test_a_pause_that_was_seen_to_end_is_no_hang_the_next_time_and_a_much_longer_one_is() -> None:
    course = Course(gang())
    course.run(600, WORKS)
    assert course.hangs(50, IDLE, STUCK) == []  # young: its first checkpoint
    course.run(1300, WORKS)
    assert course.hangs(70, IDLE, STUCK) == []
    course.run(300, WORKS)
    assert 140 <= course.hangs(300, IDLE, STUCK)[0] <= 160


def test_what_reports_no_steps_and_has_no_period_is_judged_by_minutes(grown: Grown) -> None:
    course = grown("training", {})
    assert 300 <= course.hangs(400, IDLE, {})[0] <= 310


def test_steps_that_stop_while_the_gpus_are_busy_are_found_later_than_an_evaluation_takes() -> None:
    course = worked()
    assert course.hangs(500, WORKS, STUCK) == []
    course.run(100, WORKS)
    assert 995 <= course.hangs(1100, WORKS, STUCK)[0] <= 1010


@pytest.mark.parametrize(("kind", "still"), [("training", GONE), ("inference", IDLE), (None, IDLE)])
def test_ended_processes_servers_and_work_that_nobody_knows_do_not_hang(
    request: pytest.FixtureRequest, kind: Any, still: dict[str, float]
) -> None:
    served = {"flyball.workload.request.rate": 5.0}
    course = worked() if kind == "training" else request.getfixturevalue("grown")(kind, served)
    assert course.hangs(600, still, {}) == []


def test_idle_ranks_whose_node_writes_are_at_a_checkpoint() -> None:
    course = worked()
    assert course.hangs(120, IDLE, STUCK, 5e9) == []


def test_few_errors_of_a_port_show_where_a_hang_comes_from_and_nothing_else() -> None:
    course = worked()
    well = course.run(900, WORKS, STEPS, 0.0, 0.5)
    assert [a for a in well.of(Anomaly) if a.detector == "network"] == []
    out = course.run(200, IDLE, STUCK, 0.0, 0.5)
    found = [(a.detector, a.subject) for a in out.of(Anomaly) if a.detector in ("hang", "network")]
    assert found[:2] == [("hang", "a"), ("network", "node-1")]
    (opened,) = {(i.level, i.node, i.cause) for i in out.of(Incident) if i.status == "open" and i.level == "node"}
    assert opened == ("node", "node-1", "network")
    assert {d.from_node for d in out.of(Migrate)} == {"node-1"}


SPINS = WORKS | {"nvidia.gpu.sm.activity": 0.02, "hw.power": 90.0}


def restarted(course: Course, workload: str = "a", epoch: int = 2) -> None:
    """The gang has stopped, and starts on the other half of the node."""
    agent = course.cell.agents[0]
    held = tuple(Allocation(workload=workload, replica=f"a-{i}", devices=(4 + i,)) for i in range(4))
    agent.inventory = replace(agent.inventory, epoch=epoch, time_ns=(FIRST + course.at) * NS_PER_S, allocations=held)
    course.cell.feed(incoming_records(agent.inventory))


def on_half_a_node() -> Course:
    held = tuple(Allocation(workload="a", replica=f"a-{i}", devices=(i,)) for i in range(4))
    records = [spec(name, kind="training", max_replicas=4) for name in ("a", "b")]
    course = Course(Cell(inventory("node-1", 8, held), records=records, config=CHOSEN))
    course.run(300, WORKS)
    return course


def test_what_hangs_again_on_other_gpus_is_found_though_it_has_not_worked_there() -> None:
    course = on_half_a_node()
    assert course.hangs(60, SPINS) != []
    restarted(course)
    assert course.hangs(60, IDLE, STUCK) == [], "it starts"
    found = course.hangs(400, SPINS, STUCK)
    assert found[:1] == [300]


def test_ranks_that_spin_until_the_last_one_is_ready_do_not_hang() -> None:
    course = on_half_a_node()
    restarted(course)
    assert course.hangs(280, SPINS, STUCK) == []
    assert course.hangs(300, WORKS) == []
    assert course.hangs(60, SPINS)[0] <= 30, "once it has worked, it is judged as before"


def test_ranks_that_are_slower_to_start_than_the_others_do_not_hang() -> None:
    course = on_half_a_node()
    restarted(course)
    values = {
        key: np.where(np.arange(8) < 6, WORKS[key], SPINS[key]).astype(np.float32)
        for key in ("nvidia.gpu.sm.activity", "hw.power")
    }
    assert course.hangs(600, WORKS | values, {}) == []


def test_after_an_hour_a_workload_is_not_known_any_more() -> None:
    course = on_half_a_node()
    restarted(course, "c")
    course.run(3700, GONE, {})
    restarted(course, "a", epoch=3)
    assert course.hangs(600, SPINS, STUCK) == []


def test_less_work_under_the_same_name_does_not_hang_while_it_makes_steps() -> None:
    course = on_half_a_node()
    restarted(course)
    assert course.hangs(600, SPINS, STEPS) == []
    assert course.hangs(30, SPINS, STUCK) != []


def test_a_server_that_looks_hung_makes_no_few_errors_of_a_port_a_sign() -> None:
    """Busy with little work: that is few requests."""
    course = Course(gang("inference"))
    course.run(300, WORKS, {})
    out = course.run(300, SPINS, {}, 0.0, 0.5)
    assert [a.detector for a in out.of(Anomaly) if a.detector in ("hang", "network")] == []


def test_work_that_has_not_worked_anywhere_is_not_said_to_hang() -> None:
    course = on_half_a_node()
    restarted(course, "b")
    assert course.hangs(600, SPINS, STUCK) == []


def test_what_is_known_of_work_outlives_the_process() -> None:
    course = on_half_a_node()
    (lane,) = course.cell.engine.nodes.values()
    lane.restore(lane.snapshot())
    restarted(course)
    assert course.hangs(400, SPINS, STUCK)[:1] == [300]


def test_a_restart_in_the_middle_of_a_hang_changes_nothing() -> None:
    course = worked()
    course.run(10, IDLE, STUCK)
    again = gang()
    again.agents[0].seq = course.cell.agents[0].seq
    again.feed(frames(course.cell.agents[0], -EVERY, WORKS, every=EVERY))
    for lane, kept in zip(lanes(again), lanes(course.cell), strict=True):
        lane.restore(kept.snapshot())
    other = Course(again)
    other.at, again.agents[0].seq = course.at, course.cell.agents[0].seq = course.at, again.agents[0].seq
    assert course.hangs(60, IDLE, STUCK) == other.hangs(60, IDLE, STUCK) != []
