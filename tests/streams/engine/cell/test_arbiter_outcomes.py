"""What becomes of a decision, and what the arbiter makes of it."""

from typing import Any

import msgspec
import pytest
import yaml
from tests.streams.engine.cell.arbiter_harness import QUICK, ArbiterHarness, move, node, outcome
from tests.streams.engine.cell.platform import proposal
from tests.streams.engine.scene import CELL, PERIOD_NS, incoming_records, inventory, spec, tick

from flyball_actuators.guard import Guard, GuardState, NodeInfo, World
from flyball_actuators.parameters import ActuatorParameters
from flyball_contracts.ids import decision_id
from flyball_contracts.records import Migrate, Preempt, ProposalTick, Resources, Scale, SubjectState, WorkloadSpec
from flyball_contracts.records.commands.outcomes import OutcomeStatus
from flyball_streams.engine import Directory, Incoming
from flyball_streams.engine.cell import CellLane
from flyball_streams.engine.cell.arbiter import Arbiter
from flyball_streams.engine.cell.memory import UNDER_WAY_S
from flyball_streams.engine.cell.reports import MAX_REPORTS
from flyball_streams.engine.parameters import RightsizingParameters


def test_an_id_says_subject_and_tick_and_not_the_answer() -> None:
    """A lane that is restarted may know more, and decide another number: it is the same decision."""
    poor, rich = ArbiterHarness(node("n", 2), spec("a")), ArbiterHarness(node("n", 8), spec("a"))
    (less,), (more,) = (harness.want(0, "a", 6) for harness in (poor, rich))
    assert isinstance(less, Scale)
    assert isinstance(more, Scale)
    assert (less.replicas, more.replicas) == (2, 6)
    assert less.id == more.id == decision_id(CELL, "a", tick(0).end_ns)


def test_a_migration_is_about_a_replica() -> None:
    harness = ArbiterHarness(node("n1", 1, {"a/0": (0,)}), node("n2", 1), spec("a"))
    (found,) = harness.at(0, move(0, "a", "0", "n1", 0))
    assert found.id == decision_id(CELL, "a/0", tick(0).end_ns)


def test_a_subject_has_one_decision_in_a_tick() -> None:
    """A job that pauses is neither scaled nor preempted in the same tick."""
    low = spec("low", priority=1, interruptible=True)
    harness = ArbiterHarness(
        node("n", 4, {f"low/{i}": (i,) for i in range(4)}), low, spec("b", priority=5), spec("c", priority=4)
    )
    at = tick(0)
    proposals = [
        proposal("low", at, 0, 0, "pause"), proposal("low", at, 3, 1), proposal("low", at, 2, 2),
        proposal("b", at, 2, 3), proposal("c", at, 2, 4), proposal("c", at, 1, 5),
    ]  # fmt: skip
    found = harness.at(0, *proposals)
    assert sorted((type(d).__name__, d.workload) for d in found) == [("Preempt", "low"), ("Scale", "b"), ("Scale", "c")]


@pytest.mark.parametrize("status", ["accepted", "running"])
def test_an_operation_that_takes_minutes_is_believed_until_it_ends(status: OutcomeStatus) -> None:
    harness = ArbiterHarness(node("n", 8), spec("a"), spec("b"))
    (first,) = harness.want(0, "a", 6)
    harness.report(first, status)
    assert harness.want(50, "a", 6) == []
    assert harness.want(900, "a", 6) == []  # not decided again
    (other,) = harness.want(901, "b", 8)
    assert isinstance(other, Scale)
    assert other.replicas == 2  # nor is its room given away
    harness.report(first, "failed")
    assert harness.want(902, "a", 6) == []
    (again,) = harness.want(910, "a", 6)
    assert "failed once" in again.reason


def test_an_operation_of_which_nothing_more_is_received_ends_some_day() -> None:
    harness = ArbiterHarness(node("n", 8), spec("a"))
    (first,) = harness.want(0, "a", 6)
    harness.report(first, "running")
    harness.at(1)
    assert harness.want(int(UNDER_WAY_S), "a", 6) == []
    assert harness.want(int(UNDER_WAY_S) + 1, "a", 6) == []
    (again,) = harness.want(int(UNDER_WAY_S) + 10, "a", 6)
    assert "started once and not ended" in again.reason


def test_what_is_done_is_what_the_platform_shows() -> None:
    harness = ArbiterHarness(node("n", 8), spec("a"))
    (first,) = harness.want(0, "a", 6)
    harness.report(first, "done", observed=SubjectState(replicas=4, ready=4))
    (more,) = harness.want(6, "a", 8)
    assert isinstance(more, Scale)
    assert (more.replicas_before, more.replicas) == (4, 8)


def test_what_is_done_and_never_seen_is_decided_anew_and_says_so() -> None:
    harness = ArbiterHarness(node("n", 8), spec("a"))
    (first,) = harness.want(0, "a", 6)
    harness.report(first, "done")
    assert harness.want(59, "a", 6) == []
    assert harness.want(119, "a", 6) == []
    (again,) = harness.want(130, "a", 6)
    assert again.reason.endswith("reported once as done but not seen; waited 11 s.")


@pytest.mark.parametrize("status", ["refused", "failed", "superseded", "planned"])
def test_what_comes_to_nothing_frees_its_room(status: OutcomeStatus) -> None:
    harness = ArbiterHarness(node("n", 8), spec("a"), spec("b"))
    (first,) = harness.want(0, "a", 6)
    harness.report(first, status)
    (scale,) = harness.want(1, "b", 8)
    assert isinstance(scale, Scale)
    assert scale.replicas == 8


def test_a_dry_run_is_never_done() -> None:
    """Recordings of before dry runs had a last word of their own say so."""
    harness = ArbiterHarness(node("n", 8), spec("a"))
    (first,) = harness.want(0, "a", 6)
    harness.report(first, "done", mode="dry_run")
    assert harness.want(1, "a", 6) == []
    (again,) = harness.want(6, "a", 6)
    assert again.reason.endswith("planned once in dry run; waited 5 s.")


def test_a_duplicate_frees_nothing_that_was_granted() -> None:
    harness = ArbiterHarness(node("n", 8), spec("a"), spec("b"))
    (first,) = harness.want(0, "a", 6)
    harness.refuse(first, "duplicate")
    (other,) = harness.want(1, "b", 8)
    assert isinstance(other, Scale)
    assert other.replicas == 2


@pytest.mark.parametrize(("words", "ends"), [(("done", "running"), False), (("refused", "accepted"), True)])
def test_words_that_come_in_another_order_mean_the_same(words: tuple[OutcomeStatus, ...], ends: bool) -> None:
    harness = ArbiterHarness(node("n", 8), spec("a"), spec("b"))
    (first,) = harness.want(0, "a", 6)
    for status in words:
        harness.report(first, status)
    (scale,) = harness.want(1, "b", 8)
    assert isinstance(scale, Scale)
    assert scale.replicas == (8 if ends else 2)


def test_a_move_is_believed_while_it_is_under_way() -> None:
    harness = ArbiterHarness(node("n1", 1, {"a/0": (0,)}), node("n2", 1), spec("a"), spec("b"))
    (first,) = harness.at(0, move(0, "a", "0", "n1", 0))
    harness.report(first, "running")
    assert harness.at(50, move(50, "a", "0", "n1", 0)) == []
    assert harness.at(300, move(300, "a", "0", "n1", 0), proposal("b", tick(300), 1)) == []
    harness.know(node("n1", 1, {}, epoch=2))  # it stopped there, and has not begun on the other
    assert harness.want(301, "b", 1) == []
    harness.know(node("n2", 1, {"a/0": (0,)}, epoch=2))
    harness.report(first, "done")
    assert harness.want(302, "b", 1) == []
    assert harness.arbiter.memory.moves == {}


def lane(*held: str) -> CellLane:
    directory = Directory()
    for record in (inventory("n", 8), spec("a"), spec("b")):
        directory.apply(record)
    return CellLane(0, QUICK, directory)


def proposing(index: int, *proposals: Any) -> list[Incoming]:
    return incoming_records(ProposalTick(cell=CELL, source="workload/0", tick=tick(index), proposals=proposals))


def test_outcomes_that_come_before_the_cell_are_kept() -> None:
    """A lane that starts again decides again what was decided, and knows already what became of it."""
    first = next(iter(ArbiterHarness(node("n", 8), spec("a")).want(18, "a", 6)))
    told_early, told_late = lane(), lane()
    for index in range(18):
        told_late.step(proposing(index))
    for harness in (told_early, told_late):
        harness.directory.apply(outcome(first, "refused"))
    twin = lane()
    twin.directory.apply(outcome(first, "refused"))
    twin.restore(told_early.snapshot())
    for index in range(18):
        twin.step(proposing(index))
    for index in range(18, 40):
        proposals = proposing(index, proposal("a", tick(index), 6), proposal("b", tick(index), 8))
        assert twin.step(proposals) == told_late.step(proposals)
    assert twin.arbiters[CELL].memory.orders["b"].replicas == 8


def test_what_is_kept_of_unknown_decisions_is_bounded() -> None:
    harness = ArbiterHarness(node("n", 8), spec("a"))
    (decision,) = harness.want(0, "a", 6)
    for i in range(MAX_REPORTS + 10):
        harness.report(msgspec.structs.replace(decision, id=f"{i}"), "refused")
    assert len(harness.arbiter.memory.reports) == MAX_REPORTS
    harness.at(1)
    harness.at(3700)
    assert harness.arbiter.memory.reports == {}


def test_a_victim_whose_preemption_was_refused_holds_its_gpus() -> None:
    low = spec("low", priority=1, interruptible=True)
    harness = ArbiterHarness(
        node("n", 2, {"low/0": (0,), "low/1": (1,)}), low, spec("high", priority=5), spec("c", priority=9)
    )
    preempt, scale = harness.want(0, "high", 2)
    assert isinstance(preempt, Preempt)
    assert isinstance(scale, Scale)
    harness.refuse(preempt, "blast_radius")
    assert harness.want(1, "c", 2) == []  # the same preemption within its window


def test_a_straggler_stays_until_a_node_has_room() -> None:
    harness = ArbiterHarness(node("n1", 2, {"a/0": (0, 1)}), spec("a", gpus_per_replica=2.0))
    assert harness.at(0, move(0, "a", "0", "n1", 0, confidence=0.8)) == []
    harness.know(node("n2", 2, epoch=2))
    (decision,) = harness.at(1, move(1, "a", "0", "n1", 0, confidence=0.8))
    assert isinstance(decision, Migrate)
    assert decision.to_node == "n2"


def test_a_replica_with_two_faulty_gpus_and_no_room_is_reported_of_once_until_there_is_room() -> None:
    harness = ArbiterHarness(node("n1", 2, {"a/0": (0, 1)}), spec("a", gpus_per_replica=2.0))
    (first,) = harness.at(0, move(0, "a", "0", "n1", 0), move(0, "a", "0", "n1", 1))
    harness.refuse(first, "rate")
    assert harness.at(1, move(1, "a", "0", "n1", 1)) == []
    harness.know(node("n2", 2, epoch=2))
    (second,) = harness.at(2, move(2, "a", "0", "n1", 1))
    assert isinstance(second, Migrate)
    assert second.to_node == "n2"
    assert second.time_ns - first.time_ns == 2 * PERIOD_NS


def test_what_a_batch_has_left_is_resized_further() -> None:
    harness = ArbiterHarness(spec("chat"), node("n1", 2, {"chat/a": (0,), "chat/b": (1,)}))
    config = msgspec.structs.replace(QUICK, rightsizing=RightsizingParameters(mode="act"))
    harness.arbiter = Arbiter(CELL, config, harness.directory)
    wanted, some = Resources(cpu=2.0), SubjectState(replicas=2)
    (first,) = harness.at(0, proposal("chat", tick(0), 0, 0, "resize", resources=wanted, observed_replicas=2))
    assert harness.at(1) == [], "one batch at a time"
    harness.report(first, "done", expected=some, observed=some)
    (second,) = harness.at(2)
    assert isinstance(second, Scale)
    assert (second.resources, second.replicas, second.id != first.id) == (wanted, 2, True)
    assert second.reason.startswith("Go on to resize chat")
    harness.refuse(second, "blast_radius")
    assert harness.at(4) == [], "there is no room yet"
    (third,) = harness.at(60)
    harness.report(third, "done", expected=SubjectState(replicas=2, resources=wanted), observed=some)
    assert harness.at(61) == harness.at(4000) == [], "all of them have it"


class Limited:
    """An arbiter, and the real guard with a limit on replicas; what it lets through has its effect at once."""

    def __init__(self, limit: str, *specs: WorkloadSpec, **held: int) -> None:
        self.held, self.epoch = held, 0
        self.harness, self.state = ArbiterHarness(*specs), GuardState()
        text = (
            f"{{allow: ['*'], mode: live, blast_radius: {{share: 1}}, policies: [{{name: calm, limits: [{limit}]}}]}}"
        )
        self.guard = Guard(msgspec.convert(yaml.safe_load(text), ActuatorParameters))
        self.verdicts: list[tuple[str, int, str, int | None]] = []
        self.show()

    def show(self) -> None:
        self.epoch += 1
        rows, parts = iter(range(32)), dict[str, tuple[int, ...]]()
        for workload, count in self.held.items():
            parts |= {f"{workload}/{i:02}": (next(rows),) for i in range(count)}
        self.harness.know(node("n", 32, parts, self.epoch))

    def want(self, index: int, workload: str, replicas: int) -> None:
        specs = {name: self.harness.directory.specs[name] for name in self.held}
        placed = {name: {f"{name}-{i}": "n" for i in range(count)} for name, count in self.held.items()}
        for decision in self.harness.want(index, workload, replicas):
            world = World(specs, {"n": NodeInfo(CELL, True)}, {CELL: placed}, "")
            self.state, verdict = self.guard.authorise(self.state, decision, decision.time_ns, world)
            assert isinstance(decision, Scale | Preempt)
            fewer = decision.replicas_before - decision.replicas
            self.verdicts.append((decision.workload, fewer, verdict.code, verdict.allowed))
            if verdict.status == "refused":
                self.harness.report(decision, "refused", code=verdict.code, allowed=verdict.allowed)
            else:
                free = 32 - sum(self.held.values()) + self.held[decision.workload]
                self.held[decision.workload] = min(decision.replicas, free)
                observed = SubjectState(replicas=self.held[decision.workload])
                self.harness.report(decision, "done", observed=observed)
                self.show()


def test_what_a_limit_allows_is_what_is_proposed_next() -> None:
    loop = Limited("{per: workload, window_s: 120, replicas: 5}", spec("a", max_replicas=20), a=20)
    for index in range(0, 900, 5):
        loop.want(index, "a", 8)
    assert loop.held == {"a": 8}, loop.verdicts
    first, second, *_ = loop.verdicts
    assert first == ("a", 12, "limit", 5)
    assert second == ("a", 5, "", None)
    refused = [i for i, verdict in enumerate(loop.verdicts) if verdict[2] and verdict[3]]
    assert all(loop.verdicts[i + 1][1] <= (loop.verdicts[i][3] or 0) for i in refused), loop.verdicts


def test_a_pause_that_a_limit_refused_takes_what_it_allows() -> None:
    harness = ArbiterHarness(
        node("n", 8, {f"a/{i}": (i,) for i in range(8)}), spec("a", interruptible=True, min_replicas=0)
    )
    found: list[Preempt] = []
    for index in range(20):
        for decision in harness.at(index, proposal("a", tick(index), 0, action="pause")):
            assert isinstance(decision, Preempt)
            found.append(decision)
            if len(found) == 1:
                harness.report(decision, "refused", code="limit", allowed=3)
    assert [d.replicas for d in found[:2]] == [0, 5]
    assert found[1].reason.endswith("; to 0 when the actuator's limits let so many go at once.")


def test_a_refusal_that_comes_after_its_decision_expired_still_says_what_is_allowed() -> None:
    harness = ArbiterHarness(node("n", 8, {f"a/{i}": (i,) for i in range(8)}), spec("a"))
    (first,) = harness.want(0, "a", 2)
    assert harness.at(61) == [], "it expired unanswered"
    harness.report(first, "refused", code="limit", allowed=3)
    later = [d for index in range(62, 120) for d in harness.want(index, "a", 2)]
    assert [d.replicas for d in later if isinstance(d, Scale)][:1] == [5]


def test_gangs_stay_whole_in_what_a_limit_allows() -> None:
    loop = Limited("{per: workload, window_s: 120, replicas: 5}", spec("a", max_replicas=20, gang_size=4), a=20)
    for index in range(0, 60, 5):
        loop.want(index, "a", 8)
    assert loop.verdicts[:2] == [("a", 12, "limit", 5), ("a", 4, "", None)]


def test_a_preemption_that_a_limit_refused_takes_what_it_allows() -> None:
    low, high = spec("low", max_replicas=32, interruptible=True, priority=1), spec("high", max_replicas=12, priority=5)
    loop = Limited("{per: workload, window_s: 600, replicas: 3}", low, high, low=32, high=0)
    for index in range(0, 60, 5):
        loop.want(index, "high", 8)
    stops = [verdict for verdict in loop.verdicts if verdict[0] == "low"]
    assert stops[:2] == [("low", 8, "limit", 3), ("low", 3, "", None)]
