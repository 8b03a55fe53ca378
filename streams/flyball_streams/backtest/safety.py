"""Fault injection: how policies that were tuned without faults perform with them, and at what cost.

Forecast faults change a policy's forecasts; the others change its telemetry, its orders or its state. A policy passes a
fault if it loses at most :data:`MOST_LOST` points of attainment relative to reactive-only (the reactive baseline that
was cheapest without the fault) under the same fault; costs at most :data:`MOST_COST` more than without the fault; and
removes no replica while it has no fresh samples. Policies without forecasts are not tested with forecast faults.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any, NamedTuple

import msgspec
import numpy as np

from flyball_streams.backtest import kernel
from flyball_streams.backtest.kernel import Bounds, Floats
from flyball_streams.backtest.policies.groups import Conditions, Setting
from flyball_streams.backtest.policies.prepared import PreparedDemand
from flyball_streams.backtest.report import claim
from flyball_streams.backtest.run import Scenario, simulate
from flyball_streams.backtest.sweep import Result

REACTIVE = ("hpa", "hpa_load", "keda", "kpa", "kpa_held", "dynamo")
MOST_LOST = 1.0
MOST_COST = 0.1
HOUR_S, DAY_S = 3600, 86_400


class Fault(NamedTuple):
    """One fault: its changes to the scenario, and to the bounds of the forecast."""

    key: str
    title: str
    world: dict[str, Any]
    bounds: Callable[[Bounds, int], Bounds] | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One policy under one fault, on the second half of the data, with the setting chosen on the first half.

    ``lost_points`` is the attainment of the reactive-only policy under the same fault, less that of this policy, in
    points; ``cost_change`` is relative to the same policy without the fault; ``blind`` counts replicas removed while
    all samples were older than a minute.
    """

    policy: str
    fault: str
    attainment: float
    reactive_attainment: float
    lost_points: float
    cost_change: float
    blind: int

    @property
    def passed(self) -> bool:
        """Whether the policy passes the fault."""
        return self.lost_points <= MOST_LOST and self.cost_change <= MOST_COST and self.blind == 0


def _scaled(factor: float) -> Callable[[Bounds, int], Bounds]:
    def change(b: Bounds, seed: int) -> Bounds:
        return b._replace(upper=b.upper * factor, lower=b.lower * factor)

    return change


def _shuffled(b: Bounds, seed: int) -> Bounds:
    """Shuffle the forecasts of whole days."""
    day, upper, lower = DAY_S // b.step_s, b.upper.copy(), b.lower.copy()
    draw = np.random.default_rng([seed, 3])
    for begin in range(0, len(upper), day):
        order = draw.permutation(min(day, len(upper) - begin)) + begin
        upper[begin : begin + day], lower[begin : begin + day] = b.upper[order], b.lower[order]
    return b._replace(upper=upper, lower=lower)


def _stale(b: Bounds, seed: int) -> Bounds:
    def late(x: Floats) -> Floats:
        by = min(HOUR_S // b.step_s, len(x))
        return np.concatenate([np.full(by, np.nan), x[: len(x) - by]])

    return b._replace(upper=late(b.upper), lower=late(b.lower))


def _nothing(b: Bounds, seed: int) -> Bounds:
    return b._replace(upper=np.full_like(b.upper, np.nan), lower=np.full_like(b.lower, np.nan))


FAULTS = (
    Fault("none", "no fault", {}),
    Fault("x0.3", "forecast x 0.3", {}, _scaled(0.3)),
    Fault("x3", "forecast x 3", {}, _scaled(3.0)),
    Fault("shuffled", "forecast shuffled within each day", {}, _shuffled),
    Fault("stale", "forecast an hour old", {}, _stale),
    Fault("nan", "no forecast (NaN)", {}, _nothing),
    Fault("outage", "metrics away for 10 min, each 6 h", {"outage_s": 600}),
    Fault("lost", "20 % of the samples lost", {"lost_share": 0.2}),
    Fault("stock-out", "20 % of the orders never arrive", {"fail_share": 0.2}),
    Fault("restart", "controller forgets all, each day mid-scale", {"restart_every_s": DAY_S}),
)
TITLES = {fault.key: fault.title for fault in FAULTS}


def reactive_of(results: Iterable[Result], target: float) -> str:
    """Key of the cheapest reactive baseline that met the target in the first half.

    If none met it, the one with the best attainment; empty without any baseline.
    """
    found: list[tuple[bool, float, str]] = []
    for result in results:
        if result.policy_group.key in REACTIVE:
            best = claim.frozen(result, target)
            cost, attained = claim.measured(claim.halves(result)[0][best.setting : best.setting + 1])
            found.append((not best.kept, float(cost[0]) if best.kept else -float(attained[0]), result.policy_group.key))
    return min(found)[2] if found else ""


def outcomes(
    shared: list[PreparedDemand],
    results: dict[str, Result],
    target: float,
    world: Scenario,
    middle_s: int,
    pool: Executor,
    thin: int = 1,
) -> list[Outcome]:
    """Test Flyball's policies and the reactive-only one in one configuration; `shared` has one demand per seed.

    `world` is without faults and has a single delay limit: the one of `results`, which are by policy group and were
    tuned with the same `thin`. The second half starts at `middle_s`. Empty if no baseline is reactive.
    """
    reactive = reactive_of(results.values(), target)
    if not reactive:
        return []
    chosen = [key for key, result in results.items() if result.policy_group.ours or key == reactive]
    settings = {key: [_setting(results[key], target, known, world, thin) for known in shared] for key in chosen}
    spans = kernel.BILLED, kernel.REQUESTS, kernel.LATE, kernel.BLIND

    def sums(job: tuple[str, Fault]) -> Floats | None:
        key, fault = job
        total = np.zeros(len(spans))
        for seed, (known, setting) in enumerate(zip(shared, settings[key], strict=True)):
            if fault.bounds is not None and not np.isfinite(setting.bounds.upper).any():
                return None
            bounds = setting.bounds if fault.bounds is None else fault.bounds(setting.bounds, seed)
            scenario = world._replace(seed=seed, **fault.world)
            run = simulate(known.demand, setting.policy, scenario, bounds, flow=known.flow)
            total += run.spans[middle_s // world.span_s :, spans].sum(axis=0)
        return total

    jobs = [(key, fault) for key in chosen for fault in FAULTS]
    found = zip(jobs, pool.map(sums, jobs), strict=True)
    by_key = {(key, fault.key): each for (key, fault), each in found if each is not None}
    rows: list[Outcome] = []
    for key, fault in by_key:
        other = by_key.get((reactive, fault), by_key[reactive, "none"])
        mine, theirs = (1.0 - x[2] / max(x[1], 1e-9) for x in (by_key[key, fault], other))
        rows.append(
            Outcome(
                policy=key,
                fault=fault,
                attainment=float(mine),
                reactive_attainment=float(theirs),
                lost_points=float(100 * (theirs - mine)),
                cost_change=float(by_key[key, fault][0] / by_key[key, "none"][0] - 1.0),
                blind=int(by_key[key, fault][3]),
            )
        )
    return rows


def _setting(result: Result, target: float, known: PreparedDemand, world: Scenario, thin: int) -> Setting:
    settings = result.policy_group.settings(Conditions(known, world.cold_start_s, world.limits_s[0], thin))
    return settings[claim.frozen(result, target).setting]
