"""Verifies that single requests rank the policies as the fluid engine does, on some days of the test half.

The fluid engine tunes the policies. The chosen setting of each policy then runs on single requests. The same
setting serves more requests in time in one engine than in the other. So its neighbours on the Pareto front of the first
half run too, until the target lies between two of them. Costs at equal service are interpolated between these two,
separately in each engine, on the same days and the same arrivals.
"""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import NamedTuple

import msgspec
import numpy as np

from flyball_streams.backtest import kernel
from flyball_streams.backtest.demands.demand import DAY_S
from flyball_streams.backtest.events.replicas import Service
from flyball_streams.backtest.events.requests import Source, Window
from flyball_streams.backtest.events.run import service_for, simulate as by_events
from flyball_streams.backtest.kernel import Floats
from flyball_streams.backtest.policies.groups import Conditions, PolicyGroup, Setting
from flyball_streams.backtest.policies.prepared import PreparedDemand
from flyball_streams.backtest.report import claim
from flyball_streams.backtest.run import Run, Scenario, simulate as by_fluid
from flyball_streams.backtest.sweep import Result

DAYS = 2
LEAD_S = 3600
"""Single requests start this long before a measured day, as a warm-up."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one engine for a policy: its frozen setting, and its cost at equal service (``None``: not reached).

    ``ratio`` is the cost relative to the baseline's; ``limited`` means that even the cheapest setting exceeds
    the target; ``tried`` is the number of settings that were run. The p99 delay is in whole seconds; that of the fluid
    engine covers all of the data.
    """

    billed_hours: float
    attainment: float
    worst_span: float
    delay_p99_s: float
    actions_per_hour: float
    flaps_per_hour: float
    equal_hours: float | None
    limited: bool
    tried: int
    ratio: float | None = None


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two policies that the engines rank differently: relative change of cost from the second to the first in each."""

    first: str
    second: str
    fluid: float
    events: float


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One policy in both engines."""

    key: str
    title: str
    ours: bool
    setting: str
    fluid: Measured
    events: Measured


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """Both rankings.

    ``tau`` is Kendall's tau over the policies that reached the target in both engines. ``starts_s`` are the seconds of
    the demand at which the windows begin, each ``window_s`` long; ``swapped`` are the pairs in a different order, of
    ``pairs`` in total; ``slots``, ``fixed`` and ``unit`` describe how a replica serves.
    """

    base: str
    target: float
    starts_s: list[int]
    window_s: int
    requests: int
    slots: int
    fixed: float
    unit: float
    tau: float | None
    pairs: int
    swapped: list[Pair]
    rows: list[Compared]


def days_of(begin_s: int, end_s: int, span_s: int, days: int = DAYS) -> list[Window]:
    """Whole days, spread evenly over a half; all whole spans of a half that has no more than ``days`` whole days."""
    count = (end_s - begin_s) // DAY_S
    if count <= days:
        return [(begin_s, begin_s + (end_s - begin_s) // span_s * span_s)]
    chosen = [round((i + 0.5) * count / days - 0.5) for i in range(days)]
    return [(begin_s + i * DAY_S, begin_s + (i + 1) * DAY_S) for i in chosen]


def confirm(
    known: PreparedDemand,
    source: Source,
    policy_groups: Sequence[PolicyGroup],
    results: dict[str, Result],
    base: str,
    target: float,
    world: Scenario,
    windows: Sequence[Window],
    *,
    thin: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Confirmation:
    """Run the policies that the fluid engine tuned (`results`) on single requests in `windows`, and compare."""
    demand = known.demand
    begun = [(max(0, begin - LEAD_S), end) for begin, end in windows]
    requests = source(demand, begun, world.seed)
    service = service_for(requests[0])

    def fluid(setting: Setting) -> list[Run]:
        return [by_fluid(demand, setting.policy, world, setting.bounds, flow=known.flow)]

    def events(setting: Setting) -> list[Run]:
        made: list[Run] = []
        for each, (start, end), (begin, _) in zip(requests, begun, windows, strict=True):
            served = by_events(
                demand,
                each,
                setting.policy,
                world,
                setting.bounds,
                service=service,
                from_s=start,
                until_s=end,
                delays_from_s=begin,
            )
            made.append(served.run)
        return made

    def one(policy_group: PolicyGroup) -> Compared:
        result = results[policy_group.key]
        settings = policy_group.settings(Conditions(known, world.cold_start_s, world.limits_s[0], thin))
        best = claim.frozen(result, target)
        front: list[int] = claim.tuned(result).tolist()
        if best.setting not in front:  # a setting on the front has the same cost and attainment
            front.append(best.setting)
        tried = [settings[i] for i in front]
        start = front.index(best.setting)
        return Compared(
            key=policy_group.key,
            title=policy_group.title,
            ours=policy_group.ours,
            setting=best.name,
            fluid=_measure(lambda i: _parts(fluid(tried[i]) * len(windows), windows), len(tried), start, target),
            events=_measure(lambda i: _parts(events(tried[i]), windows), len(tried), start, target),
        )

    rows: list[Compared] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for row in pool.map(one, policy_groups):
            rows.append(row)
            if progress is not None:
                progress(len(rows), len(policy_groups))
    return _ranked(rows, base, target, windows, sum(len(each.at_s) for each in requests), service)


class _Parts(NamedTuple):
    """The spans of all windows, concatenated; the length of a span; and the number of requests by delay."""

    spans: Floats
    span_s: int
    delays: Floats


def _parts(runs: list[Run], windows: Sequence[Window]) -> _Parts:
    span_s = runs[0].scenario.span_s
    spans = [run.spans[begin // span_s : end // span_s] for run, (begin, end) in zip(runs, windows, strict=True)]
    return _Parts(np.concatenate(spans), span_s, np.sum([run.delays for run in runs], axis=0))


def _measure(run: Callable[[int], _Parts], count: int, frozen: int, target: float) -> Measured:
    """Run the frozen setting, then other settings of its front until two neighbours enclose the target."""
    made: dict[int, _Parts] = {}
    failed, kept = -1, count
    at, step = frozen, 1
    while kept - failed > 1:
        made[at] = run(at)
        failed, kept = (failed, at) if _attained(made[at]) >= target else (at, kept)
        if failed == -1:
            at, step = max(0, kept - step), 2 * step
        elif kept == count:
            at, step = min(count - 1, failed + step), 2 * step
        else:
            at = (failed + kept) // 2
    costs = np.array([part.spans[:, kernel.BILLED].sum() / 3600 for part in made.values()])
    equal = claim.cost_at(costs, np.array([_attained(part) for part in made.values()]), target)
    spans, span_s, delays = made[frozen]
    hours = len(spans) * span_s / 3600
    requested = np.maximum(spans[:, kernel.REQUESTS], 1e-9)
    return Measured(
        billed_hours=float(spans[:, kernel.BILLED].sum()) / 3600,
        attainment=_attained(made[frozen]),
        worst_span=float((1.0 - spans[:, kernel.LATE] / requested).min()),
        delay_p99_s=float((np.cumsum(delays) < 0.99 * delays.sum() - 1e-9).sum()),
        actions_per_hour=float(spans[:, kernel.ACTIONS].sum()) / hours,
        flaps_per_hour=float(spans[:, kernel.FLAPS].sum()) / hours,
        equal_hours=equal.value if math.isfinite(equal.value) else None,
        limited=equal.limited,
        tried=len(made),
    )


def _attained(part: _Parts) -> float:
    requested = float(part.spans[:, kernel.REQUESTS].sum())
    return 1.0 - float(part.spans[:, kernel.LATE].sum()) / max(requested, 1e-9)


def _ranked(
    rows: list[Compared], base: str, target: float, windows: Sequence[Window], requests: int, service: Service
) -> Confirmation:
    against = {row.key: (row.fluid.equal_hours, row.events.equal_hours) for row in rows}.get(base, (None, None))
    rows = [
        msgspec.structs.replace(row, fluid=_over(row.fluid, against[0]), events=_over(row.events, against[1]))
        for row in rows
    ]
    both = [(r.title, r.fluid.equal_hours, r.events.equal_hours) for r in rows]
    known = sorted((f, e, title) for title, f, e in both if f is not None and e is not None)
    pairs = [
        Pair(first=a[2], second=b[2], fluid=a[0] / b[0] - 1, events=a[1] / b[1] - 1) for a, b in combinations(known, 2)
    ]
    swapped = [pair for pair in pairs if pair.events > 0]
    return Confirmation(
        base=base,
        target=target,
        starts_s=[begin for begin, _ in windows],
        window_s=windows[0][1] - windows[0][0],
        requests=requests,
        slots=service.slots,
        fixed=service.fixed,
        unit=service.unit,
        tau=1 - 2 * len(swapped) / len(pairs) if pairs else None,
        pairs=len(pairs),
        swapped=swapped,
        rows=rows,
    )


def _over(measured: Measured, base: float | None) -> Measured:
    if base is None or measured.equal_hours is None:
        return measured
    return msgspec.structs.replace(measured, ratio=measured.equal_hours / base)
