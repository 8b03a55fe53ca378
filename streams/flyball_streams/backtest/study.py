"""One backtest study: policies are tuned on the first half of a demand and evaluated on the second."""

import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec
import numpy as np

from flyball_streams.backtest import kernel
from flyball_streams.backtest.demands.demand import DAY_S, MINUTE_S, Demand
from flyball_streams.backtest.events.confirm import Confirmation, confirm, days_of
from flyball_streams.backtest.events.requests import drawn
from flyball_streams.backtest.events.run import single_requests
from flyball_streams.backtest.kernel import Floats
from flyball_streams.backtest.policies.cover import cover
from flyball_streams.backtest.policies.groups import POLICY_GROUPS, Conditions, PolicyGroup, Setting
from flyball_streams.backtest.policies.prepared import PreparedDemand, prepare
from flyball_streams.backtest.report import claim
from flyball_streams.backtest.report.explain import Explained, explain
from flyball_streams.backtest.run import Run, Scenario
from flyball_streams.backtest.safety import Outcome, outcomes
from flyball_streams.backtest.sweep import Engine, Result, fluid, sweep
from flyball_streams.engine.rows import known

SPANS = 24
"""Number of spans of a trace that is too short for hours; half of them are for tuning."""
SHORT_S = 4 * DAY_S
POINTS = 720


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Assumptions that convert replica-hours to money and carbon."""

    usd_per_replica_hour: float = 2.5
    watts_per_replica: float = 500.0
    carbon_g_per_kwh: float = 400.0


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One policy.

    ``setting`` was chosen on the first half; all figures are of the second half. Ratios are costs at equal service
    relative to the first baseline; ``None`` if one side missed the target.
    """

    key: str
    title: str
    about: str
    ours: bool
    tried: int
    setting: str
    tuned_to_target: bool
    billed_hours: float | None = None
    attainment: float | None = None
    worst_span: float | None = None
    utilisation: float | None = None
    delay_p50_s: float | None = None
    delay_p99_s: float | None = None
    delay_p999_s: float | None = None
    starts_per_hour: float | None = None
    actions_per_hour: float | None = None
    flaps_per_hour: float | None = None
    cost_usd: float | None = None
    carbon_kg: float | None = None
    equal_hours: float | None = None
    equal_limited: bool = False
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    gap_closed: float | None = None
    front: list[tuple[float, float]] = []


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """A whole backtest, as written to JSON and shown on the page.

    ``least`` and ``most`` bound the replicas of every policy. ``work_hours`` is the total work of the second half, a
    lower bound of every bill. ``cover_hours`` is the clairvoyant cover. ``series`` has, for one day and about once a
    minute, demand and the replicas of some policies.
    """

    name: str
    about: str
    target: float
    delay_s: int
    cold_start_s: float
    cold_sigma: float
    seeds: int
    span_s: int
    test_hours: float
    least: int
    most: int
    base: str
    prices: Prices
    work_hours: float
    cover_hours: float
    rows: list[Row]
    series_step_s: int
    series_start_s: float
    series: dict[str, list[float]]
    decisions: list[Explained]
    safety: list[Outcome] = []
    engine: str = "fluid"
    confirmed: Confirmation | None = None


class StudyConfig(NamedTuple):
    """What to study: policies, baseline, objective, scenario, granularity of the tuning, and faults.

    If several policies are ours, the first one is shown.
    """

    policy_groups: tuple[str, ...]
    base: str
    target: float
    scenario: Scenario
    prices: Prices = Prices()
    thin: int = 1
    safety: bool = False
    engine: str = "fluid"


def study(
    demands: list[Demand],
    study_config: StudyConfig,
    progress: Callable[[int, int], None] | None = None,
) -> Study:
    """Run a study on a demand; `demands` has one entry per seed of its arrivals.

    The engine "events" simulates all single requests of a demand, "both" those of the days on which it verifies the
    fluid engine. Raises ``ValueError`` for a demand of less than a minute.
    """
    demand = demands[0]
    seconds = len(demand.work)
    if seconds < MINUTE_S:
        raise ValueError(f"{demand.name}: there are {seconds} s of its demand; a backtest needs a minute or more")
    short = seconds < SHORT_S
    span_s = max(60, 60 * math.ceil(seconds / SPANS / 60)) if short else 3600
    block_spans = 1 if short else 24
    delay_s = study_config.scenario.limits_s[0]
    world = study_config.scenario._replace(span_s=span_s)
    chosen = [POLICY_GROUPS[key] for key in study_config.policy_groups]
    engine = single_requests(demands) if study_config.engine == "events" else fluid
    shared = prepare(demands, (world.cold_start_s,), forecasts=any(f.forecasts for f in chosen))
    found = sweep(
        {demand.name: shared},
        [(world.cold_start_s, delay_s)],
        chosen,
        thin=study_config.thin,
        block_spans=block_spans,
        scenario=world,
        progress=progress,
        engine=engine,
    )
    results = {result.policy_group.key: result for result in found}
    blocks = next(iter(results.values())).block_sums.shape[2]
    middle_s = min(seconds - 1, blocks // 2 * block_spans * span_s)
    weights = claim.draws(len(demands), blocks - blocks // 2)
    costs = {key: claim.costs(result, study_config.target, weights) for key, result in results.items()}
    best = {key: claim.frozen(result, study_config.target) for key, result in results.items()}
    runs = _runs(engine, shared[0], chosen, best, world, study_config.thin, middle_s)
    ours = next((f.key for f in chosen if f.ours and f.key in runs), None)
    shown = [key for key in (ours, study_config.base, "oracle") if key in runs]
    begin, step_s, series = _series(demand, runs, shown, middle_s)
    explained: list[Explained] = []
    if ours is not None:
        base_run = runs[study_config.base][1] if study_config.base in runs else None
        explained = explain(demand, *runs[ours], base_run, middle_s)
    borne: list[Outcome] = []
    if study_config.safety:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            borne = outcomes(shared, results, study_config.target, world, middle_s, pool, study_config.thin)
    confirmed = None
    if study_config.engine == "both":
        days = days_of(middle_s, seconds, span_s)
        confirmed = confirm(
            shared[0], drawn, chosen, results, study_config.base, study_config.target, world, days,
            thin=study_config.thin, progress=progress,
        )  # fmt: skip
    test_s = seconds - middle_s
    covered = cover(demand, delay_s, world.cold_start_s, world.drain_s, world.least, world.most)
    return Study(
        name=demand.name,
        about=demand.about,
        target=study_config.target,
        delay_s=delay_s,
        cold_start_s=world.cold_start_s,
        cold_sigma=world.cold_sigma,
        seeds=len(demands),
        span_s=span_s,
        test_hours=test_s / 3600,
        least=world.least,
        most=world.most,
        base=study_config.base,
        prices=study_config.prices,
        work_hours=float(demand.work[middle_s:].sum()) / 3600,
        cover_hours=float(covered[middle_s:].sum()) / 3600,
        rows=[_row(f, results[f.key], costs, best[f.key], runs[f.key], study_config, middle_s) for f in chosen],
        series_step_s=step_s,
        series_start_s=demand.start_s + begin,
        series=series,
        decisions=explained,
        safety=borne,
        engine=study_config.engine,
        confirmed=confirmed,
    )


def _runs(
    engine: Engine,
    shared: PreparedDemand,
    policy_groups: Iterable[PolicyGroup],
    best: dict[str, claim.Frozen],
    world: Scenario,
    thin: int,
    middle_s: int,
) -> dict[str, tuple[Setting, Run]]:
    """Run the chosen setting of each policy group again, second by second."""
    runs: dict[str, tuple[Setting, Run]] = {}
    for policy_group in policy_groups:
        settings = policy_group.settings(Conditions(shared, world.cold_start_s, world.limits_s[0], thin))
        setting = settings[best[policy_group.key].setting]
        runs[policy_group.key] = setting, engine(0, shared, setting, world, record=True, delays_from_s=middle_s)
    return runs


def _row(
    policy_group: PolicyGroup,
    result: Result,
    costs: dict[str, tuple[claim.Cost, Floats]],
    best: claim.Frozen,
    made: tuple[Setting, Run],
    study_config: StudyConfig,
    middle_s: int,
) -> Row:
    cost, attained = claim.measured(claim.halves(result)[1][claim.tuned(result)])
    shown = claim.front(cost, attained)
    row = Row(
        key=policy_group.key,
        title=policy_group.title,
        about=policy_group.about,
        ours=policy_group.ours,
        tried=len(result.names),
        setting=best.name,
        tuned_to_target=best.kept,
        front=[(float(attained[i]), float(cost[i])) for i in shown],
    )
    point, _ = costs[policy_group.key]
    if math.isfinite(point.value):
        against = (
            claim.ratio(costs[policy_group.key], costs[study_config.base])[0] if study_config.base in costs else None
        )
        base = costs[study_config.base][0].value if study_config.base in costs else math.nan
        oracle = costs["oracle"][0].value if "oracle" in costs else math.nan
        row = msgspec.structs.replace(
            row,
            equal_hours=point.value,
            equal_limited=point.limited,
            ratio=known(against.value) if against else None,
            ratio_low=known(against.low) if against else None,
            ratio_high=known(against.high) if against else None,
            gap_closed=known(claim.gap_closed(point.value, base, oracle)) if policy_group.ours else None,
        )
    prices, (_, run) = study_config.prices, made
    tail = run._replace(spans=run.spans[middle_s // run.scenario.span_s :])  # its delays already cover only that half
    return msgspec.structs.replace(
        row,
        billed_hours=best.billed_hours,
        attainment=best.attainment,
        worst_span=tail.worst_span(),
        utilisation=tail.utilisation(),
        delay_p50_s=tail.delay_s(0.5),
        delay_p99_s=tail.delay_s(0.99),
        delay_p999_s=tail.delay_s(0.999),
        starts_per_hour=tail.per_hour(kernel.STARTS),
        actions_per_hour=tail.per_hour(kernel.ACTIONS),
        flaps_per_hour=tail.per_hour(kernel.FLAPS),
        cost_usd=best.billed_hours * prices.usd_per_replica_hour,
        carbon_kg=best.billed_hours * prices.watts_per_replica * prices.carbon_g_per_kwh / 1e6,
    )


def _series(
    demand: Demand, runs: dict[str, tuple[Setting, Run]], shown: list[str], middle_s: int
) -> tuple[int, int, dict[str, list[float]]]:
    """The day of the second half with the highest minute of demand: mean demand, and replicas at each step."""
    end = len(demand.work)
    length = min(DAY_S, end - middle_s)
    step_s = max(1, length // POINTS)
    peak = middle_s + int(np.convolve(demand.work[middle_s:], np.ones(60), "same").argmax())
    begin = int(min(max(middle_s, (peak - middle_s) // DAY_S * DAY_S + middle_s), end - length))
    count = length // step_s
    part = slice(begin, begin + count * step_s)
    shape = demand.work[part].reshape(count, step_s)
    series: dict[str, list[float]] = {"demand": [round(float(x), 3) for x in shape.mean(axis=1)]}
    for key in shown:
        series[key] = [float(x) for x in runs[key][1].total[part][::step_s]]
    return begin, step_s, series
