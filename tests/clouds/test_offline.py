"""What needs no cloud: settings that cannot work, names of operations, which machines go, and what the guard allows."""

import builtins
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.actuators.samples import CELL, NOW, migrate, preempt, scale, world

from flyball_actuators.guard import Guard, GuardState, Verdict
from flyball_actuators.platforms import PlatformError, Rejected, make_platforms
from flyball_actuators.platforms.pools.operation import Operation, decode, mark, token, token_uuid
from flyball_actuators.platforms.pools.victims import Machine, choose
from flyball_contracts.codec import record_message
from flyball_contracts.config import (
    ActuatorConfig,
    Config,
    GuardPolicy,
    Limit,
    PlatformConfig,
    PoolConfig,
    parse_config,
)
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import Effect, SubjectState

ANY = st.text(st.characters(codec="utf-8"), max_size=20)
KNOWING: dict[str, Any] = {"allow": ("pool:*",), "kill_switch": "/run/flyball/stop", "mode": "live"}


def pool(**more: Any) -> PoolConfig:
    settings: dict[str, Any] = {
        "name": "p4d", "kind": "fleet", "resource": "gpu", "instance_type": "p4d.24xlarge", "max_machines": 8,
        "price_usd_per_hour": 32.0, **more,
    }  # fmt: skip
    return PoolConfig(**settings)


def entry(*pools: PoolConfig, **more: Any) -> PlatformConfig:
    settings: dict[str, Any] = {
        "cells": (CELL,), "driver": "aws", "region": "eu-west-1", "pools": pools or (pool(),),
        "budget_usd_per_hour": 100.0, **more,
    }  # fmt: skip
    return PlatformConfig(**settings)


@given(st.builds(Operation, decision=ANY, pool=ANY, ids=ANY, call=ANY, seen=ANY, short=ANY))
def test_an_operation_is_found_again_by_its_name(operation: Operation) -> None:
    assert decode(operation.encode()) == operation


def test_a_name_of_another_platform_is_none_of_a_pool() -> None:
    with pytest.raises(PlatformError, match="none of a pool"):
        decode("verb=dance&decision=d")


def test_each_decision_has_one_token() -> None:
    one, other = scale("a"), scale("b")
    assert token(one) == token(scale("a"))
    assert len({token(one), token(other), token(scale("a", after=7))}) == 3
    assert len(token_uuid(one)) == 36
    assert (mark("d-1"), len(mark("D 1")), len(mark("x" * 80))) == ("d-1", 40, 40)


def test_the_idle_and_the_youngest_go_first() -> None:
    machines = [Machine(str(i), frozenset({f"n{i}"}), ready=True, started=f"2026-0{i}") for i in range(1, 6)]
    machines[0] = machines[0]._replace(leaving="d")
    machines[4] = machines[4]._replace(protected=True)
    chosen = choose(machines, 3, "d", frozenset({"n3"}))
    assert not isinstance(chosen, Rejected)
    assert [one.id for one in chosen] == ["1", "4", "2"]
    assert isinstance(choose(machines, 4, "d", frozenset({"n3"})), Rejected)


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (entry(region=""), r"platforms\[0\]\.region: none is named"),
        (entry(pool(kind="scale_set", within="rg")), r"pools\[0\]\.kind: aws has no scale_set"),
        (entry(url="http://10.0.0.1"), r"\.url: .*use https"),
        (entry(url="ftp://x"), r"\.url: 'ftp://x' is not the address of an HTTP server"),
        (msgspec.structs.replace(entry(), pools=()), r"\.pools: none is named"),
        (entry(driver="gcp", region=""), r"\.account: none is named; name the project"),
        (entry(driver="azure", region=""), r"\.account: none is named; name the subscription"),
        (
            entry(driver="docker", region=""),
            r"\.pools: driver docker does not use it.*or karpenter or slurm",
        ),
        (entry(driver="gcp", account="p"), r"\.region: driver gcp does not use it"),
        (entry(budget_usd_per_hour=None), r"budget_usd_per_hour: mode live takes what all pools"),
    ],
)
def test_settings_that_cannot_work_are_one_error(one: PlatformConfig, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_platforms(ActuatorConfig(platforms=(one,), **KNOWING), lambda _c, _w: {})


@pytest.mark.parametrize("driver", ["aws", "gcp", "azure"])
def test_a_library_that_is_not_there_is_named(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = {"aws": "fleet", "gcp": "instance_group", "azure": "scale_set"}[driver]
    real = builtins.__import__
    for name in [n for n in sys.modules if n.split(".")[0] in ("boto3", "azure") or n.startswith("google.cloud")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("sys.meta_path", [_Nothing(), *sys.meta_path])
    account = {} if driver == "aws" else {"account": "a", "region": ""}
    one = entry(pool(kind=kind, within="w"), driver=driver, **account)
    with pytest.raises(ConfigError, match=rf"driver: {driver} needs pip install 'flyball\[{driver}\]'"):
        make_platforms(ActuatorConfig(platforms=(one,), **KNOWING), lambda _c, _w: {})
    assert real is builtins.__import__


class _Nothing:
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.split(".")[0] in ("boto3", "azure") or name.startswith("google.cloud"):
            raise ModuleNotFoundError(name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{name: A, kind: fleet, resource: x, instance_type: t, max_machines: 1, price_usd_per_hour: 1}", "lower-case"),
        ("{name: a, kind: fleet, resource: x, instance_type: t, max_machines: 1}", "price_usd_per_hour"),
        (
            "{name: a, kind: fleet, resource: x, instance_type: t, min_machines: 3, max_machines: 1, "
            "price_usd_per_hour: 1}",
            "swap them",
        ),
        ("{name: a, kind: scale_set, resource: x, instance_type: t, max_machines: 1, price_usd_per_hour: 1}", "within"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_where_it_is_read(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_config(f"actuator: {{platforms: [{{cells: [a], driver: aws, pools: [{text}]}}]}}", Config)


@pytest.mark.parametrize("cells", ["[a, b]", '["eu-*"]'])
def test_pools_belong_to_one_cell(cells: str) -> None:
    one = "{name: a, kind: fleet, resource: x, instance_type: t, max_machines: 1, price_usd_per_hour: 1}"
    with pytest.raises(ConfigError, match="pools belong to one cell"):
        parse_config(f"actuator: {{platforms: [{{cells: {cells}, driver: aws, pools: [{one}]}}]}}", Config)


def verdict(decision: Any, observed: SubjectState | None = None, state: GuardState | None = None, **config: Any) -> Any:
    settings: dict[str, Any] = {**KNOWING, "platforms": (entry(),), **config}
    guard = Guard(ActuatorConfig(**settings))
    return guard.authorise(state or GuardState(), decision, NOW, world(), observed)


def buys(before: int, after: int, **more: Any) -> Any:
    return msgspec.structs.replace(scale("b", workload="pool:p4d", before=before, after=after), **more)


def shows(machines: int, cost: float | None) -> SubjectState:
    return SubjectState(replicas=machines, ready=machines, cost_usd_per_hour=cost)


def code(answer: tuple[GuardState, Verdict]) -> str:
    return answer[1].code or answer[1].status


@pytest.mark.parametrize(
    ("other", "is_refused"),
    [
        ({}, True),
        ({"zones": ("a",)}, True),
        ({"zones": ("b",)}, False),
        ({"market": "spot"}, False),
        ({"instance_type": "p5.48xlarge"}, False),
    ],
)
def test_pools_whose_machines_nobody_can_tell_apart_are_refused(other: dict[str, Any], is_refused: bool) -> None:
    one, two = entry(pool(zones=("a",))), entry(pool(name="other", **other))
    ActuatorConfig(platforms=(one, msgspec.structs.replace(two, cells=("elsewhere",))))
    if not is_refused:
        ActuatorConfig(platforms=(one, two))
        return
    with pytest.raises(ValueError, match=r"pools 'p4d' and 'other' both have on_demand machines of type p4d\.24xlarge"):
        ActuatorConfig(platforms=(one, two))


def test_the_budget_is_kept_to_the_cent_whatever_a_decision_says_of_itself() -> None:
    modest = Effect(cost_usd_per_hour=0.0)
    assert code(verdict(buys(1, 3), shows(1, 32.0))) == "accepted"
    assert code(verdict(buys(1, 4, expected=modest), shows(1, 32.0))) == "limit"
    assert code(verdict(buys(1, 3), shows(1, 40.0))) == "limit"  # other pools of the cell cost 8
    assert code(verdict(buys(3, 2), shows(3, None))) == "accepted"  # what saves needs no budget
    assert code(verdict(buys(1, 2), shows(1, None))) == "limit"
    assert code(verdict(buys(1, 2), shows(1, 32.0), platforms=(entry(budget_usd_per_hour=None),))) == "limit"
    dry: dict[str, Any] = {"mode": "dry_run", "platforms": (entry(budget_usd_per_hour=None),)}
    assert code(verdict(buys(1, 2), shows(1, 32.0), None, **dry)) == "accepted"


def test_a_policy_counts_what_machines_cost() -> None:
    policies = (GuardPolicy(name="slowly", limits=(Limit(usd_per_hour=40.0),)),)
    state, first = verdict(buys(0, 1), shows(0, 0.0), policies=policies)
    assert first.status == "accepted"
    second = verdict(msgspec.structs.replace(buys(1, 2), id="c"), shows(1, 32.0), state, policies=policies)
    assert second[1].policy == "slowly"


@pytest.mark.parametrize(
    ("decision", "config", "says"),
    [
        (buys(0, 1), {"allow": ("*",)}, "not_allowed"),
        (buys(0, 1), {"allow": ("pool:p5*",)}, "not_allowed"),
        (buys(0, 9), {}, "invalid"),
        (buys(3, 0), {"platforms": (entry(pool(min_machines=1)),)}, "invalid"),
        (buys(0, 1, power_limit_w=300.0), {}, "invalid"),
        (buys(0, 1, target="cell-a/p4d"), {}, "invalid"),
        (scale(workload="pool:none", before=0, after=1), {}, "unknown_target"),
        (buys(0, 1, cell="cell-b", target="cell-b/pool:p4d"), {}, "unknown_target"),
        (preempt(workload="pool:p4d", before=2, after=1), {}, "invalid"),
        (buys(8, 1), {}, "blast_radius"),
        (buys(0, 1), {"policies": (GuardPolicy(name="no", workloads=("pool:*",), protect=True),)}, "protected"),
    ],
)
def test_the_guard_refuses(decision: Any, config: dict[str, Any], says: str) -> None:
    assert code(verdict(decision, shows(decision.replicas_before, 0.0), **config)) == says


def test_all_decisions_of_a_cell_come_in_one_partition() -> None:
    made = (buys(0, 1), scale("x", workload="pool:other"), scale(), migrate())
    assert {record_message(one, "/t").key for one in made} == {b"cell-a"}
