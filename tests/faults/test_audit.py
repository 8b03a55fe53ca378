"""The oracles of the gate see what they are for; a schedule is the same for the same seed."""

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.contracts.strategies import samples
from tests.faults import audit
from tests.faults.platform import EndState
from tests.faults.schedule import LONG_S, SHARES, schedule

from flyball_contracts.frame import Frame
from flyball_contracts.records import DemandTick, Outcome, Scale, SubjectState, Tick
from flyball_contracts.simulated import Operation

NOW = 1_750_000_000_000_000_000
S = 1_000_000_000
NOTHING = SubjectState()


def decision(identity: str = "d", tick: int = 0, workload: str = "chat") -> Scale:
    sample = samples()["Scale"][0]
    assert isinstance(sample, Scale)
    return msgspec.structs.replace(sample, id=identity, workload=workload, time_ns=NOW + tick * S)


def outcome(status: str, actuator: str = "one", identity: str = "d") -> Outcome:
    sample = samples()["Outcome"][0]
    assert isinstance(sample, Outcome)
    return msgspec.structs.replace(sample, decision=identity, status=status, actuator=actuator)


def operation(identity: str = "d", effects: int = 1) -> Operation:
    return Operation(
        id=identity, workload="chat", status="done", detail="", submitted_ns=NOW, before=NOTHING, expected=NOTHING,
        observed=NOTHING, submissions=2, effects=effects,
    )  # fmt: skip


def frame(seq: int, epoch: int = 1, tick: int | None = None) -> Frame:
    time_ns = NOW + (seq if tick is None else tick) * S
    return Frame(1, "node-1", "boot", epoch, seq, time_ns, 0, S, 0, 0, b"")


def test_effects() -> None:
    assert audit.one_effect([decision()], [operation()]).broken == []
    assert "2 effects" in audit.one_effect([decision()], [operation(effects=2)]).broken[0]
    assert "2 operations" in audit.one_effect([decision()], [operation(), operation()]).broken[0]
    assert "of no decision" in audit.one_effect([], [operation()]).broken[0]


@pytest.mark.parametrize(
    ("statuses", "broken"),
    [
        (["accepted", "running", "done"], 0),
        (["accepted", "done", "done"], 0),
        (["accepted", "running"], 1),
        ([], 1),
        (["done", "refused"], 1),
    ],
)
def test_final_outcomes(statuses: list[str], broken: int) -> None:
    assert len(audit.one_final_outcome([decision()], [outcome(status) for status in statuses]).broken) == broken


def test_final_outcomes_of_two_actuators_and_of_nothing() -> None:
    two = [outcome("done"), outcome("done", actuator="two")]
    assert "2 last outcomes (done" in audit.one_final_outcome([decision()], two).broken[0]
    assert "of no decision" in audit.one_final_outcome([], [outcome("done")]).broken[0]


def test_contents() -> None:
    assert audit.one_content([("d", b"1"), ("d", b"1"), ("e", b"2")]).broken == []
    assert audit.one_content([("d", b"1"), ("d", b"2")]).broken == ["d: 2 contents"]


def test_replays() -> None:
    seen, due = [decision("a", 1), decision("b", 2)], [decision("b", 2), decision("c", 3)]
    lost, elsewhere, made_up = audit.as_replayed(seen, due)
    assert [text[0] for text in (*elsewhere.broken, *made_up.broken)] == ["c", "a"]
    assert lost.broken == [], "some ticks earlier, the same was decided"
    other = decision("e", 3, workload="batch")
    assert [text[0] for text in audit.as_replayed(seen, [*due, other])[0].broken] == ["e"]
    assert [text[0] for text in audit.as_replayed(seen, [decision("f", 400)])[0].broken] == ["f"]


def test_ends() -> None:
    end = EndState({"chat": 2}, {"chat": None}, {"chat": 2}, {"n2": True})
    assert audit.same_end(end, end).broken == []
    other = msgspec.structs.replace(end, placed={"chat": 1}, cordoned={})
    assert len(audit.same_end(other, end).broken) == 2


def test_frames() -> None:
    assert audit.no_frame_lost([frame(1), frame(2), frame(2), frame(3)]).broken == []
    assert "1 of 3 frames" in audit.no_frame_lost([frame(1), frame(3)]).broken[0]
    assert audit.no_frame_lost([frame(1), frame(0, epoch=2, tick=2)]).broken == []
    assert "1 of 3 ticks" in audit.no_frame_lost([frame(1), frame(0, epoch=2, tick=3)]).broken[0]


def test_ticks() -> None:
    def tick_of(index: int, late: int = 0, missing: tuple[str, ...] = ()) -> DemandTick:
        tick = Tick(index=index, period_ns=S, late=late, missing=missing)
        sample = samples()["DemandTick"][0]
        assert isinstance(sample, DemandTick)
        return msgspec.structs.replace(sample, source="node/0", tick=tick)

    assert audit.nothing_late([tick_of(1), tick_of(2)]).broken == []
    assert "3 late" in audit.nothing_late([tick_of(1, late=3)]).broken[0]
    assert audit.whole_ticks([tick_of(1), tick_of(2)], []).broken == []
    assert "without node/1" in audit.whole_ticks([tick_of(1, missing=("node/1",))], []).broken[0]
    assert "1 of 3 ticks" in audit.whole_ticks([tick_of(1), tick_of(3)], []).broken[0]


@given(st.integers(0, 1000), st.integers(60, 300))
def test_schedules(seed: int, count: int) -> None:
    faults = schedule(seed, count, 4.0 * count)
    assert len(faults) == count
    assert faults == schedule(seed, count, 4.0 * count)
    assert {fault.victim for fault in faults} == set(SHARES)
    assert {fault.kind for fault in faults} == {"kill", "stop"}
    assert any(fault.for_s > LONG_S[0] for fault in faults)
    for victim in SHARES:
        own = [fault for fault in faults if fault.victim == victim]
        assert all(one.until_s < other.at_s for one, other in pairwise(own))
