"""The limits of a cell are one, however many actuators and partitions it has."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.actuators.loop import FilePlatform, config_for, of, outcomes, publish, running, wait_for
from tests.actuators.samples import CELL, NOW, S, scale, spec

from flyball_actuators.ledger import CellGrants, cell_grants as module
from flyball_actuators.parameters import BlastRadiusParameters, RateParameters
from flyball_contracts.records import AnyDecision, Outcome, SubjectState
from flyball_contracts.records.commands.outcomes import Mode, OutcomeStatus

NAMES = [f"w{i}" for i in range(4)]


class Four(FilePlatform):
    """Everything has four replicas."""

    def observe(self, decision: AnyDecision) -> SubjectState:
        return SubjectState(replicas=4, ready=4)


@pytest.mark.parametrize(
    ("limits", "before", "after", "code"),
    [
        ({"per_cell": RateParameters(2)}, 4, 6, "rate"),
        ({"blast_radius": BlastRadiusParameters(replicas=4)}, 4, 2, "blast_radius"),
    ],
)
def test_a_cell_has_one_actuator_and_what_it_did_counts_for_the_next(
    bootstrap: str,
    unique: Callable[[str], str],
    tmp_path: Path,
    limits: dict[str, Any],
    before: int,
    after: int,
    code: str,
) -> None:
    publish(bootstrap, *map(spec, NAMES))
    group, driver = unique("actuator"), Four(tmp_path / "effects")
    configs = {name: config_for(bootstrap, group, mode="live", ledger=str(tmp_path / name), **limits) for name in "ab"}
    with running(configs["a"], driver), running(configs["b"], driver):
        publish(bootstrap, *(scale(f"d{i}", workload=NAMES[i], before=before, after=after) for i in (0, 1)))
        wait_for(lambda: sum(o.status == "done" for o in outcomes(bootstrap)) == 2, "what is done")
    one = {of(bootstrap, f"d{i}", "done").actuator for i in (0, 1)}
    assert len(one) == 1, "a cell has one actuator at a time"
    for name in "ab":  # whoever it was: the next one has another ledger
        (tmp_path / name).unlink()
    with running(configs["a"], driver):
        publish(bootstrap, scale("late", workload=NAMES[2], before=before, after=after))
        wait_for(lambda: any(o.final and o.decision == "late" for o in outcomes(bootstrap)), "the word of the next")
        publish(bootstrap, scale("more", workload=NAMES[3], before=before, after=before + 1, time_ns=NOW + S))
        wait_for(lambda: any(o.final and o.decision == "more" for o in outcomes(bootstrap)), "what takes nothing")
    assert of(bootstrap, "late", "refused").code == code
    assert of(bootstrap, "late", "refused").actuator not in one
    assert sorted(driver.effects()[:2]) == ["d0", "d1"]
    assert ("more" in driver.effects()) == (code == "blast_radius")


def outcome(decision: str, status: OutcomeStatus, time_ns: int = NOW, mode: Mode = "live") -> Outcome:
    return Outcome(
        id=f"{decision}-{status}", decision=decision, type="Scale", target=f"{CELL}/chat", cell=CELL, workload="chat",
        time_ns=time_ns, status=status, mode=mode, driver="test", actuator="a", before=SubjectState(replicas=6),
        expected=SubjectState(replicas=4),
    )  # fmt: skip


def grants_from(*statuses_of: Outcome) -> CellGrants:
    taken = CellGrants()
    for one in statuses_of:
        taken.add(0, one, 0)
    taken.forget(0)
    return taken


def test_what_came_to_nothing_counts_for_nobody() -> None:
    taken = grants_from(
        outcome("claimed", "accepted"),
        outcome("told", "accepted"), outcome("told", "running"), outcome("told", "superseded"),
        outcome("unknown", "accepted"), outcome("unknown", "failed"),
        outcome("refused", "accepted"), outcome("refused", "refused"),
        outcome("overtaken", "accepted"), outcome("overtaken", "superseded"),
        outcome("planned", "planned"), outcome("dry", "accepted", mode="dry_run"),
    )  # fmt: skip
    assert {grant.decision: grant.taken for grant in taken.since(CELL, 0)} == {"claimed": 2, "told": 2, "unknown": 2}
    assert taken.since("other", 0) == []


def test_what_is_old_is_forgotten_and_the_rest_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = grants_from(*(outcome(f"d{i}", "accepted", NOW + i) for i in range(10)))
    assert [grant.decision for grant in taken.since(CELL, NOW + 7)] == ["d8", "d9"]
    assert len(taken.since(CELL, 0)) == 2, "a clock that is set back brings nothing back"
    monkeypatch.setattr(module, "MOST", 5)
    many = grants_from(*(outcome(f"d{i}", "accepted", NOW + i) for i in range(100)))
    left = [grant.decision for grant in many.since(CELL, 0)]
    assert len(left) <= 10
    assert left[-1] == "d99"
