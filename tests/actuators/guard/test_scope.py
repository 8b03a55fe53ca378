"""A key signs only for what is within all of its scopes, and each refusal names the scope and where it is widened."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given, strategies as st
from tests.actuators.samples import check, migrate, preempt, scale

from flyball_actuators.guard import Signature, of_other_tenant, out_of_scope
from flyball_contracts.config import ActuatorConfig, DecisionKey, parse_config
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import AnyDecision

CELLS, WORKLOADS = ("eu-1", "eu-2", "us-1"), ("chat", "ml/chat", "ml/train", "pool:p5", "node:n1")
TENANTS, DRIVERS, TYPES = ("", "research", "prod"), ("", "kubernetes", "aws"), ("Scale", "Migrate", "Preempt", "Check")


def patterns(*names: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True).map(tuple)


def some(*names: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from([name for name in names if name]), max_size=2, unique=True).map(tuple)


keys = st.builds(
    DecisionKey,
    public=st.just("x"),
    cells=patterns("*", "eu-*", "us-1"),
    workloads=patterns("*", "ml/*", "chat", "pool:*", "node:*"),
    tenants=patterns("*", "research", "pro*"),
    types=some(*TYPES),
    platforms=some(*DRIVERS),
)


@st.composite
def decisions(draw: st.DrawFn) -> AnyDecision:
    cell, workload = draw(st.sampled_from(CELLS)), draw(st.sampled_from(WORKLOADS))
    if workload.startswith("node:"):
        return check(cell=cell)
    made: tuple[AnyDecision, ...] = tuple(kind(cell=cell, workload=workload) for kind in (scale, migrate, preempt))
    return draw(st.sampled_from(made))


def apart(workload: str) -> str:
    """What a pattern must begin with: a right to all workloads is no right to buy machines or to open nodes."""
    return next((prefix for prefix in ("pool:", "node:") if workload.startswith(prefix)), "")


@given(keys, decisions(), st.sampled_from(DRIVERS), st.sampled_from(TENANTS))
def test_only_what_is_within_all_scopes_is_signed_for(
    key: DecisionKey, decision: AnyDecision, driver: str, tenant: str
) -> None:
    within = {
        "types": not key.types or type(decision).__name__ in key.types,
        "cells": any(fnmatchcase(decision.cell, one) for one in key.cells),
        "workloads": any(
            fnmatchcase(decision.workload, one) for one in key.workloads if one.startswith(apart(decision.workload))
        ),
        "platforms": not key.platforms or driver in key.platforms,
        "tenants": "*" in key.tenants or any(tenant and fnmatchcase(tenant, one) for one in key.tenants),
    }
    signature = Signature("a1", "actuator.keys[3]", key)
    problem = out_of_scope(signature, decision, driver) or of_other_tenant(signature, decision, tenant)
    assert bool(problem) == (not all(within.values()))
    if problem:
        rule = next(name for name, holds in within.items() if not holds)
        assert f"key a1 may sign for {rule} {', '.join(getattr(key, rule))}, and" in problem
        assert problem.endswith(f"or widen actuator.keys[3].{rule}")


@pytest.mark.parametrize("scope", ["cells", "workloads", "tenants"])
def test_a_key_for_nothing_is_no_configuration(scope: str) -> None:
    with pytest.raises(ConfigError, match=rf"<config>:1: keys\[0\]\.{scope}: none is named, so it matches nothing"):
        parse_config(f"keys: [{{public: x, {scope}: []}}]", ActuatorConfig)


def test_a_platform_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"keys\[0\]\.platforms\[0\]: expected one of .*kubernetes"):
        parse_config("keys: [{public: x, platforms: [kubernets]}]", ActuatorConfig)
