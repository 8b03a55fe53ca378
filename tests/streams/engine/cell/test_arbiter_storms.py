"""An hour of ticks of five seconds with actuators of all sorts: nothing is said again and again."""

from collections import defaultdict
from itertools import pairwise
from random import Random

import pytest
from hypothesis import Phase, given, settings, strategies as st
from tests.streams.engine.cell.arbiter_harness import ArbiterHarness, move, node
from tests.streams.engine.cell.platform import proposal
from tests.streams.engine.scene import FIRST, PERIOD_NS, spec, tick

from flyball_contracts.records import AnyDecision, Check, Migrate, Preempt, Proposal, Record, Scale, Tick
from flyball_streams.engine.cell.arbiter import Arbiter
from flyball_streams.engine.cell.backoff import MOST_URGENT_S
from flyball_streams.engine.parameters import Parameters

HOUR_S = 3600
EVERY = 5
"""Seconds of a tick."""
SETTINGS = settings(max_examples=2, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
ACTUATORS = ("refuses", "fails", "plans", "silent", "slow", "lies", "obeys", "moody")


class Harness(ArbiterHarness):
    """An arbiter with a worker's defaults and ticks of ``EVERY`` seconds; an index still counts seconds."""

    def __init__(self, *records: Record) -> None:
        super().__init__(*records)
        self.arbiter = Arbiter(self.arbiter.cell, Parameters(), self.directory)

    def at(self, index: int, *proposals: Proposal) -> list[AnyDecision]:
        at = Tick(index=(FIRST + index) // EVERY, period_ns=EVERY * PERIOD_NS)
        return list(self.arbiter.decide(at, list(proposals)))


def subject_of(decision: AnyDecision) -> str:
    return f"{decision.workload}/{decision.replica}" if isinstance(decision, Migrate) else decision.workload


def published(decision: AnyDecision) -> str:
    """What a decision tells the platform to do."""
    if isinstance(decision, Migrate):
        return f"{subject_of(decision)} leaves {decision.from_node} {bool(decision.to_node)}"
    assert not isinstance(decision, Check)
    return f"{decision.workload} {type(decision).__name__} {decision.replicas_before} to {decision.replicas}"


class Hour(Harness):
    """A cell whose demand goes up and down, whose GPUs fail, and an actuator with a character."""

    def __init__(self, seed: int, actuator: str) -> None:
        self.random = Random(seed)
        self.actuator = actuator
        self.held = {"serve": 4, "job": 6, "deferred": 4, "idle": 0}
        self.decisions: list[AnyDecision] = []
        self.refused: dict[str, int] = {}
        self.due: dict[int, list[AnyDecision]] = defaultdict(list)
        self.epoch = 1
        super().__init__(
            spec("serve", priority=5, max_replicas=20),
            spec("job", priority=1, max_replicas=8, interruptible=True, checkpoint_s=60.0),
            spec("deferred", priority=0, max_replicas=4, interruptible=True, gang_size=2),
            spec("idle", priority=3, max_replicas=4),
            *self.inventories(),
        )

    def inventories(self) -> list[Record]:
        names = [f"{name}/{i}" for name, n in sorted(self.held.items()) for i in range(n)]
        places: dict[str, dict[str, tuple[int, ...]]] = {f"n{i}": {} for i in range(3)}
        for i, name in enumerate(names[:24]):
            places[f"n{i // 8}"][name] = (i % 8,)
        return [node(name, 8, parts, epoch=self.epoch) for name, parts in places.items()]

    def play(self) -> None:
        level = 6.0
        for index in range(0, HOUR_S, EVERY):
            level = min(20.0, max(0.0, level + self.random.gauss(0.0, 0.4 * EVERY**0.5)))
            at = tick(index)
            proposals = [
                proposal("serve", at, round(level), 0), proposal("job", at, 8, 1),
                proposal("deferred", at, 4 * (index % 900 > 450), 2),
                proposal("idle", at, 2, 3), move(index, "serve", "0", "n2", 0), move(index, "job", "1", "n0", 5),
            ]  # fmt: skip
            if index % 900 <= 450:
                proposals.append(proposal("deferred", at, 0, 9, "pause"))
            found = self.at(index, *proposals)
            for decision in found:
                self.decisions.append(decision)
                self.answer(index, decision)
            for at_s in sorted(due for due in self.due if due <= index):
                for decision in self.due.pop(at_s):
                    self.finish(decision)

    def answer(self, index: int, decision: AnyDecision) -> None:
        does = self.actuator
        if does == "moody":
            does = self.random.choice(ACTUATORS[:-1])
        if does == "refuses":
            self.refuse(decision, "blast_radius")
            self.refused[decision.id] = index
        elif does == "plans":
            self.report(decision, "planned", mode="dry_run")
        elif does == "lies":
            self.report(decision, "done")
        elif does in ("slow", "fails"):
            self.report(decision, "accepted")
            self.due[index + self.random.choice([20, 300, 900])].append(decision)
        elif does == "obeys":
            self.report(decision, "running")
            self.due[index + 5].append(decision)

    def finish(self, decision: AnyDecision) -> None:
        if self.actuator == "fails" or (self.actuator == "moody" and self.random.random() < 0.5):
            self.report(decision, "failed")
            return
        if not isinstance(decision, Migrate | Check):
            self.held[decision.workload] = decision.replicas
            self.epoch += 1
            self.know(*self.inventories())
        self.report(decision, "done")


@pytest.mark.parametrize("actuator", ACTUATORS)
@given(st.integers(0, 2**32))
@SETTINGS
def test_an_hour_has_at_most_a_decision_a_minute_and_target(actuator: str, seed: int) -> None:
    hour = Hour(seed, actuator)
    hour.play()
    by_subject: dict[str, list[int]] = defaultdict(list)
    for decision in hour.decisions:
        by_subject[subject_of(decision)].append(decision.time_ns // PERIOD_NS)
    assert by_subject
    assert max(map(len, by_subject.values())) <= 60
    for times in by_subject.values():
        assert len(times) == len(set(times))


@given(st.integers(0, 2**32))
@SETTINGS
def test_what_is_refused_is_not_published_again_within_its_window(seed: int) -> None:
    """Waits double from the cooldown, up to two minutes for what is urgent and to an hour for the rest."""
    hour = Hour(seed, "refuses")
    hour.play()
    times: dict[str, list[int]] = defaultdict(list)
    for decision in hour.decisions:
        times[published(decision)].append(decision.time_ns // PERIOD_NS)
    for what, at in times.items():
        most = MOST_URGENT_S if "leaves" in what or "idle" in what or " 0 to" in what else 3600.0
        for i, (first, second) in enumerate(pairwise(at)):
            assert second - first >= min(most, 15 * 2**i)


@pytest.mark.parametrize("actuator", ["refuses", "plans", "silent", "fails"])
def test_it_does_not_say_the_same_for_ever(actuator: str) -> None:
    """What nobody carries out is said a dozen times in an hour, not every quarter of a minute."""
    harness = Harness(node("n", 8, {"a/0": (0,), "low/0": (1,)}), spec("a"), spec("low", interruptible=True))
    found: list[AnyDecision] = []
    for index in range(0, HOUR_S, EVERY):
        at = tick(index)
        for decision in harness.at(index, proposal("a", at, 6), proposal("low", at, 0, 1, "pause")):
            found.append(decision)
            if actuator == "refuses":
                harness.refuse(decision, "blast_radius")
            elif actuator == "plans":
                harness.report(decision, "planned", mode="dry_run")
            elif actuator == "fails":
                harness.report(decision, "failed")
    scales, pauses = ([d for d in found if isinstance(d, kind)] for kind in (Scale, Preempt))
    assert 5 <= len(scales) <= 12
    assert 5 <= len(pauses) <= 12
    if actuator == "refuses":
        assert scales[3].reason.endswith("refused 3 times by blast_radius; waited 60 s.")
        assert {e.name: e.value for e in scales[3].evidence}["decisions.without_effect"] == 3.0


def test_a_failing_device_gets_through_while_all_else_waits() -> None:
    harness = ArbiterHarness(
        node("n1", 8, {f"a/{i}": (i,) for i in range(4)}), node("n2", 2), spec("a", max_replicas=6)
    )
    for index in range(600):
        for decision in harness.want(index, "a", 6):
            harness.refuse(decision, "rate")
    found = harness.at(600, proposal("a", tick(600), 6), move(600, "a", "0", "n1", 0))
    assert [type(d).__name__ for d in found] == ["Migrate"]


def test_requests_that_nobody_answers_get_through() -> None:
    """A service at zero whose start is refused is tried again every two minutes, however often that was in vain."""
    harness = ArbiterHarness(node("n", 8), spec("a"))
    starts: list[int] = []
    for index in range(HOUR_S):
        for decision in harness.want(index, "a", 2):
            starts.append(index)
            harness.refuse(decision, "rate")
    assert 20 <= len(starts) <= 60
    assert max(b - a for a, b in pairwise(starts)) <= MOST_URGENT_S + 1


def ordered(*proposals: Proposal) -> list[str]:
    harness = ArbiterHarness(
        node("n1", 8, {f"a/{i}": (i,) for i in range(4)} | {"low/0": (4,)}), node("n2", 8), spec("a", priority=1),
        spec("low", priority=9, interruptible=True), spec("b"),
    )  # fmt: skip
    return [f"{type(d).__name__} {subject_of(d)}" for d in harness.at(0, *proposals)]


def test_failing_devices_come_first_then_straggling_ones_then_the_rest() -> None:
    """Growth of the workload whose replica is rescued waits for the next tick."""
    at = tick(0)
    slow = proposal("low", at, 0, 1, "migrate", replica="0", node="n1", device="n1/4", observed_replicas=None)
    dead = proposal(
        "a", at, 0, 2, "migrate", replica="1", node="n1", device="n1/1", observed_replicas=None, confidence=0.95
    )
    found = ordered(proposal("a", at, 6), proposal("b", at, 2), proposal("low", at, 0, 3, "pause"), slow, dead)
    assert found == ["Migrate a/1", "Migrate low/0", "Preempt low", "Scale b"]


def test_another_direction_and_another_magnitude_do_not_wait() -> None:
    harness = ArbiterHarness(node("n", 8, {f"a/{i}": (i,) for i in range(3)}), spec("a"))
    for index in range(100):
        for decision in harness.want(index, "a", 6):
            harness.refuse(decision)
    assert harness.want(100, "a", 6) == []
    (more,) = harness.want(101, "a", 8)
    harness.refuse(more)
    (less,) = harness.want(106, "a", 1)
    assert isinstance(less, Scale)
    assert less.replicas == 1


def test_an_effect_ends_the_waiting() -> None:
    harness = ArbiterHarness(node("n", 8, {"a/0": (0,)}), spec("a"))
    for index in range(100):
        for decision in harness.want(index, "a", 4):
            harness.refuse(decision)
    (obeyed,) = harness.want(300, "a", 4)
    assert "refused 5 times" in obeyed.reason
    harness.report(obeyed, "running")
    harness.know(node("n", 8, {f"a/{i}": (i,) for i in range(4)}, epoch=2))
    harness.at(301)
    harness.know(node("n", 8, {"a/0": (0,)}, epoch=3))
    (again,) = harness.want(340, "a", 4)
    assert again.reason == "Scale a out from 1 to 4: the test says so."
