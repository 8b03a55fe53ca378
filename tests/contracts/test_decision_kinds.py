"""What every kind of decision answers, so that its readers need no list of kinds."""

from typing import get_args

import pytest
from msgspec.structs import replace
from tests.actuators.samples import check, migrate, preempt, scale

from flyball_contracts.records import DECISION_TYPES, AnyDecision, Decision, Resources, SubjectState

ONE_OF_EACH: list[AnyDecision] = [scale(), migrate(), preempt(), check()]


def test_one_of_each_kind_is_tried() -> None:
    kinds = [kind.__name__ for kind in get_args(AnyDecision)]
    assert kinds == [type(one).__name__ for one in ONE_OF_EACH] == list(DECISION_TYPES)


@pytest.mark.parametrize("decision", ONE_OF_EACH, ids=DECISION_TYPES)
def test_each_kind_answers_its_readers(decision: AnyDecision) -> None:
    assert decision.sentence() == f"{type(decision).__name__.lower()} {decision.target}: {decision.change()}"
    assert decision.change()
    assert decision.subject.startswith(decision.target)
    assert [*Decision.__struct_fields__, *decision.content()] == list(decision.__struct_fields__)
    assert decision.stops(4) >= 0
    assert decision.conflict(SubjectState()) == decision.conflict(decision.expected_state(SubjectState())) == ""
    again = replace(decision, id="again", reason="later")
    assert decision.covers(again)
    assert decision.is_step_to(again)


@pytest.mark.parametrize("one", ONE_OF_EACH, ids=DECISION_TYPES)
@pytest.mark.parametrize("other", ONE_OF_EACH, ids=DECISION_TYPES)
def test_no_approval_covers_another_kind(one: AnyDecision, other: AnyDecision) -> None:
    assert one.covers(other) == (one is other)


@pytest.mark.parametrize(
    ("older", "wanted", "does_a_part"),
    [
        (scale(after=6), scale(after=8), True), (scale(after=6), scale(after=5), False),
        (scale(after=3), preempt(after=2), True), (preempt(after=3), scale(after=2), True),
        (scale(after=3, power_limit_w=300.0), preempt(after=2), False),
        (preempt(after=3, victims=("a",)), preempt(after=2, victims=("b",)), False),
        (scale(after=4, resources=Resources(cpu=2.0)), scale(after=4, resources=Resources(cpu=3.0)), False),
        (scale(mix=[("od", 4, 5)], after=5), scale(mix=[("od", 4, 6)], after=6), True),
        (scale(mix=[("od", 4, 5)], after=5), scale(after=6), False),
        (migrate(to_node="n2"), migrate(to_node="n3"), False), (migrate(), scale(), False), (check(), scale(), False),
    ],
)  # fmt: skip
def test_a_step_is_a_part_of_what_is_wanted(older: AnyDecision, wanted: AnyDecision, does_a_part: bool) -> None:
    assert older.is_step_to(wanted) is does_a_part
