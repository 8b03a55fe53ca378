"""What the guard lets be checked."""

from typing import Any

import pytest
from tests.actuators.samples import NOW, check, world

from flyball_actuators.guard import Guard, GuardState
from flyball_actuators.parameters import ActuatorParameters
from flyball_contracts.config import GuardPolicy
from flyball_contracts.records import Approval, SubjectState
from flyball_contracts.records.subjects import covered


@pytest.mark.parametrize(
    ("decision", "config", "observed", "code", "words"),
    [
        (check(), {}, SubjectState(suspended=True), "", ""),
        (check(), {}, SubjectState(), "", ""),
        (check(), {"allow": ("chat", "node:n*")}, None, "", ""),
        (check(), {"allow": ("*",)}, None, "not_allowed", "covers *, not 'node:n1'"),
        (check(node="n9"), {}, None, "unknown_target", "'n9' has no inventory"),
        (check(node="far"), {}, None, "unknown_target", "belongs to cell 'cell-b'"),
        (check(attempt=0), {}, None, "invalid", "counted from 1"),
        (check(), {}, SubjectState(suspended=False), "", ""),
        (check(), {"policies": (GuardPolicy(name="p", types=("Check",), approval=True),)}, None, "approval", "flyball"),
        (check(), {"policies": (GuardPolicy(name="p", types=("Check",), protect=True),)}, None, "protected", "'p'"),
        (check(), {"policies": (GuardPolicy(name="p", types=("Scale",), protect=True),)}, None, "", ""),
    ],
)
def test_what_may_be_checked(
    decision: Any, config: dict[str, Any], observed: SubjectState | None, code: str, words: str
) -> None:
    guard = Guard(ActuatorParameters(**config))
    state, verdict = guard.authorise(GuardState(), decision, NOW, world(), observed)
    assert verdict.code == code, verdict
    assert words in verdict.detail
    if not code:
        assert [grant.taken for grant in state.grants["cell-a"]] == [0]


def test_an_approval_is_for_the_node_that_it_names() -> None:
    config = ActuatorParameters(policies=(GuardPolicy(name="p", types=("Check",), approval=True),))
    approval = Approval(decision=check("old"), time_ns=NOW, until_ns=NOW + 10**9, by="ann")
    around = world()._replace(approvals=(approval,))
    codes = {
        node: Guard(config).authorise(GuardState(), check(node=node), NOW, around)[1].code for node in ("n1", "n2")
    }
    assert codes == {"n1": "", "n2": "approval"}


@pytest.mark.parametrize(
    ("name", "pattern", "fits"),
    [
        ("node:n1", "*", False), ("node:n1", "node:*", True), ("node:n1", "pool:*", False), ("pool:p", "node:*", False),
        ("chat", "node:*", False), ("chat", "*", True),
    ],
)  # fmt: skip
def test_nodes_and_pools_take_patterns_of_their_own(name: str, pattern: str, fits: bool) -> None:
    assert covered(name, (pattern,)) is fits
