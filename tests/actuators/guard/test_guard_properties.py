"""No sequence of decisions, times and worlds gets past a limit."""

from typing import NamedTuple

from hypothesis import given, settings, strategies as st
from tests.actuators.samples import CELL, NOW, S, migrate, preempt, scale, spec, world

from flyball_actuators.guard import Guard, GuardState, Verdict
from flyball_actuators.parameters import ActuatorParameters, BlastRadiusParameters, RateParameters
from flyball_contracts.records import AnyDecision, Check, Migrate, Preempt, Resources, Scale

NAMES = ("a", "b", "chat")
SPECS = [spec(name) for name in NAMES]


class Call(NamedTuple):
    decision: AnyDecision
    now_ns: int
    running: dict[str, int]


MOST = 12
"""Replicas of a workload."""
LENGTHS = st.integers(1, 40)
TIMES = st.sampled_from(
    [(step * S, early * S) for step in (0, 0, 1, 7, 30, 101, -20) for early in range(-2, 3)]
)  # clocks are also set back
IDS, WORKLOADS = st.sampled_from([f"d{i}" for i in range(31)]), st.sampled_from([*NAMES, "ghost"])
BEFORE, AFTER = st.integers(0, MOST), st.integers(-1, 22)
RUNNING = st.integers(0, (MOST + 1) ** len(NAMES) - 1)
KINDS = st.sampled_from(["scale", "scale", "resize", "resize", "preempt", "defer", "migrate", "rescue"])


def decision(kind: str, id_: str, name: str, before: int, after: int, decided: int) -> AnyDecision:
    if kind == "scale":
        return scale(id_, workload=name, before=before, after=after, time_ns=decided)
    if kind == "resize":
        return scale(id_, workload=name, before=before, after=before, time_ns=decided, resources=Resources(cpu=1.0))
    if kind in ("preempt", "defer"):
        return preempt(id_, workload=name, before=before, after=after, until_s=3600 if kind == "defer" else None)
    device = "G" if kind == "rescue" else ""
    return migrate(id_, workload=name, replica=f"r{before}", time_ns=decided, from_device=device)


@st.composite
def calls(draw: st.DrawFn) -> list[Call]:
    """Few draws for each call: they take longer than the guard."""
    made: list[Call] = []
    now = NOW
    for _ in range(draw(LENGTHS)):
        step, early = draw(TIMES)
        now += step
        given = draw(KINDS), draw(IDS), draw(WORKLOADS), draw(BEFORE), draw(AFTER)
        counts = draw(RUNNING)
        running = {name: counts // (MOST + 1) ** i % (MOST + 1) for i, name in enumerate(NAMES)}
        made.append(Call(decision(*given, now + early), now, running))
    return made


configs = st.builds(
    ActuatorParameters,
    per_target=st.builds(RateParameters, st.integers(1, 4), st.sampled_from([10.0, 60.0, 100.0])),
    per_cell=st.builds(RateParameters, st.integers(1, 6), st.sampled_from([10.0, 60.0, 100.0])),
    blast_radius=st.builds(
        BlastRadiusParameters, st.sampled_from([10.0, 60.0, 100.0]), st.sampled_from([0.0, 0.1, 0.5]), st.integers(1, 6)
    ),
    allow=st.sampled_from([("*",), ("a", "c*")]),
)


class Passed(NamedTuple):
    """An accepted decision as the oracle sees it; ``at_ns`` never runs backwards."""

    at_ns: int
    target: str
    taken: int
    urgency: str


def room_of(decision: AnyDecision) -> str:
    """Whose limits it uses up."""
    if isinstance(decision, Migrate):
        return "rescue" if decision.from_device else "normal"
    return "deferral" if isinstance(decision, Preempt) and decision.until_ns is not None else "normal"


def takes(call: Call) -> int:
    if isinstance(call.decision, Migrate):
        return 1
    if isinstance(call.decision, Check):
        return 0
    known = call.running.get(call.decision.workload, 0)
    return max(call.decision.replicas_before - call.decision.replicas, known - call.decision.replicas, 0)


@given(configs, calls())
@settings(max_examples=300, deadline=None)
def test_no_sequence_exceeds_a_cap(config: ActuatorParameters, sequence: list[Call]) -> None:
    guard, state = Guard(config), GuardState()
    handled: set[str] = set()
    passed: list[Passed] = []
    for call in sequence:
        if call.decision.id in handled:
            continue  # the service answers it with what became of it
        before = state
        state, verdict = guard.authorise(state, call.decision, call.now_ns, world(specs=SPECS, running=call.running))
        handled.add(call.decision.id)
        if verdict.status != "accepted":
            assert state.grants == before.grants, "a refused decision used up a limit"
            assert verdict.code
            assert verdict.detail
            continue
        at_ns = max([call.now_ns, *(p.at_ns for p in passed)])
        urgency = room_of(call.decision)
        taken = takes(call)
        if isinstance(call.decision, Scale) and call.decision.resources is not None:  # the platform is told so many
            taken = state.grants[CELL][-1].taken
            there = max(call.decision.replicas_before, call.running.get(call.decision.workload, 0), 1)
            assert 1 <= taken <= there
        passed.append(Passed(at_ns, call.decision.target, taken, urgency))

        def within(window_s: float, at_ns: int = at_ns, urgency: str = urgency) -> list[Passed]:
            return [p for p in passed if at_ns - p.at_ns < window_s * S and p.urgency == urgency]

        of_target = [p for p in within(config.per_target.window_s) if p.target == call.decision.target]
        assert len(of_target) <= config.per_target.actions
        assert len(within(config.per_cell.window_s)) <= config.per_cell.actions
        cap = max(int(config.blast_radius.share * sum(call.running.values())), config.blast_radius.replicas)
        if passed[-1].taken:
            assert sum(p.taken for p in within(config.blast_radius.window_s)) <= cap


@given(configs, calls())
@settings(max_examples=100, deadline=None)
def test_the_guard_is_a_function_of_what_it_is_told(config: ActuatorParameters, sequence: list[Call]) -> None:
    def run() -> list[tuple[GuardState, Verdict]]:
        guard, state = Guard(config), GuardState()
        out: list[tuple[GuardState, Verdict]] = []
        for call in sequence:
            state, verdict = guard.authorise(
                state, call.decision, call.now_ns, world(specs=SPECS, running=call.running)
            )
            out.append((state, verdict))
        return out

    assert run() == run()


@given(calls())
@settings(max_examples=100, deadline=None)
def test_memory_of_a_cell_is_bounded_by_its_rate(sequence: list[Call]) -> None:
    config = ActuatorParameters(per_cell=RateParameters(3, 100.0), per_target=RateParameters(3, 60.0))
    guard, state = Guard(config), GuardState()
    for call in sequence:
        state, _ = guard.authorise(state, call.decision, call.now_ns, world(specs=SPECS, running=call.running))
        assert len(state.grants.get(CELL, ())) <= 2 * (600 // 100 * 3 + 3)  # the longest window is the blast radius's
