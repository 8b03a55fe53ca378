"""Rows of ``autoscaling.py``: equal service, what managers request, and faults."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from flyball_streams.backtest.kernel import Floats
from flyball_streams.backtest.policies.groups import BASELINES
from flyball_streams.backtest.report import claim
from flyball_streams.backtest.safety import MOST_COST, MOST_LOST, TITLES, Outcome
from flyball_streams.backtest.sweep import (
    ACTIONS,
    BILLED,
    FLAPS,
    LATE,
    REQUESTS,
    SERVED,
    Configuration,
    Result,
)

BASE = "hpa"
LOAD = "hpa_load"
ORACLE = "oracle"
WORSE = 1.01
"""A policy may cost so much of the best tuned baseline before it is named in the table."""
ACTIONS_GOAL = 30.0

Costs = dict[tuple[str, Configuration], tuple[claim.Cost, Floats]]


class Contest(NamedTuple):
    """All results, and their costs at one target."""

    target: float
    results: list[Result]
    costs: Costs

    @property
    def lines(self) -> list[Configuration]:
        """Configurations in order."""
        return list(dict.fromkeys(r.configuration for r in self.results))

    def of(self, key: str) -> list[Result]:
        """Results of one policy."""
        return [r for r in self.results if r.policy_group.key == key]

    def hours(self, key: str, line: Configuration) -> float:
        """Cost at equal service; NaN where it was not reached or not tried."""
        return self.costs[key, line][0].value if (key, line) in self.costs else math.nan

    def best_baseline(self, line: Configuration, but: str = "") -> tuple[float, str]:
        """The cheapest tuned baseline at equal service, other than `but`."""
        keys = [key for key in BASELINES if key != but and math.isfinite(self.hours(key, line))]
        return min(((self.hours(key, line), key) for key in keys), default=(math.nan, "none"))


def contest(results: list[Result], target: float, draws: int) -> Contest:
    """Interpolate all costs at a target."""
    seeds, blocks = results[0].block_sums.shape[1:3]
    weights = claim.draws(seeds, blocks - blocks // 2, draws)
    return Contest(
        target, results, {(r.policy_group.key, r.configuration): claim.costs(r, target, weights) for r in results}
    )


def summary(found: Contest) -> list[dict[str, Any]]:
    """One row per policy: ratios to tuned HPA, worst cases by name, gap to the oracle, actions."""
    rows: list[dict[str, Any]] = []
    lines, costs = found.lines, found.costs
    for key in dict.fromkeys(r.policy_group.key for r in found.results):
        own = found.of(key)
        ratios = [(line, claim.ratio(costs[key, line], costs[BASE, line])) for line in lines]
        mean = geometric([ratio for _, ratio in ratios])
        known = [(ratio.value, str(line)) for line, (ratio, _) in ratios if math.isfinite(ratio.value)]
        best = {str(line): found.hours(key, line) / found.best_baseline(line, key)[0] for line in lines}
        finite = [(x, line) for line, x in best.items() if math.isfinite(x)]
        frozen = [(r, claim.frozen(r, found.target)) for r in own]
        rows.append(
            {
                "policy": key,
                "title": own[0].policy_group.title,
                "ours": own[0].policy_group.ours,
                "ratio": mean.value,
                "ratio_to_load": against_load(found, key),
                "low": mean.low,
                "high": mean.high,
                "reached": sum(math.isfinite(found.hours(key, line)) for line in lines),
                "of": len(lines),
                "limited": sum(costs[key, line][0].limited for line in lines),
                "worst": max(known, default=(math.nan, "none reached")),
                "against_best_baseline": best,
                "worst_against_best_baseline": max(finite, default=(math.nan, "none")),
                "worse_than_best_baseline": [line for x, line in finite if x > WORSE],
                "gap_closed": gap_closed(found, key),
                "each": {str(line): ratio.value for line, (ratio, _) in ratios},
                "hours": {str(line): found.hours(key, line) for line in lines},
                "frozen": {
                    str(r.configuration): {"setting": f.name, "hours": f.billed_hours, "attainment": f.attainment}
                    for r, f in frozen
                },
                "frozen_kept": sum(f.attainment >= found.target for _, f in frozen),
                "actions_per_hour": float(np.median([_per_hour(r, f.setting, ACTIONS) for r, f in frozen])),
                "most_actions_per_hour": max(_per_hour(r, f.setting, ACTIONS) for r, f in frozen),
                "flaps_per_hour": float(np.median([_per_hour(r, f.setting, FLAPS) for r, f in frozen])),
            }
        )
    return rows


def against_load(found: Contest, key: str) -> dict[str, float]:
    """Ratio to tuned HPA on arriving work with its interval, NaN where that was not tried."""
    lines = [line for line in found.lines if (LOAD, line) in found.costs]
    if not lines:
        return dict.fromkeys(("value", "low", "high"), math.nan)
    mean = geometric([claim.ratio(found.costs[key, line], found.costs[LOAD, line]) for line in lines])
    return {"value": mean.value, "low": mean.low, "high": mean.high}


def gap_closed(found: Contest, key: str, base: str = BASE) -> float:
    """Share of the way from the baseline to the oracle, in hours of all configurations in which it is known.

    Those in which the oracle is not cheaper, or one of the three never got there, are left out.
    """
    ours = saved = 0.0
    for line in found.lines:
        each = found.hours(key, line), found.hours(base, line), found.hours(ORACLE, line)
        if all(map(math.isfinite, each)) and each[2] < each[1]:
            ours += each[1] - each[0]
            saved += each[1] - each[2]
    return ours / saved if saved > 0 else math.nan


def managers(found: Contest, key: str, peaks: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per configuration: a policy against fixed numbers of replicas, the best baseline and the oracle.

    `peaks` has, by configuration, what a fleet sized to the worst minute of the first half bills, serves in time and
    has to do in the second half.
    """
    rows: list[dict[str, Any]] = []
    for result in found.of(key):
        line = result.configuration
        best = claim.frozen(result, found.target)
        block_sums = claim.halves(result)[1][best.setting].sum(axis=(0, 1))
        peak = peaks[str(line)]
        hours, rival = found.best_baseline(line)
        rows.append(
            {
                "configuration": str(line),
                "peak_replicas": peak["replicas"],
                "peak_hours": peak["hours"],
                "peak_attainment": peak["attainment"],
                "peak_utilisation": peak["utilisation"],
                "hours": best.billed_hours,
                "attainment": best.attainment,
                "utilisation": float(block_sums[SERVED] / block_sums[BILLED]),
                "saved_against_peak": 1.0 - best.billed_hours / peak["hours"],
                "saved_against_tuned_static": 1.0 - found.hours(key, line) / found.hours("static", line),
                "best_baseline": rival,
                "against_best_baseline": found.hours(key, line) / hours,
                "gap_closed": claim.gap_closed(
                    found.hours(key, line), found.hours(BASE, line), found.hours(ORACLE, line)
                ),
                "actions_per_hour": _per_hour(result, best.setting, ACTIONS),
            }
        )
    return rows


def faults(outcomes: dict[str, list[Outcome]]) -> list[dict[str, Any]]:
    """One row per policy and fault, over all configurations: means, and the worst by name."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for line, each in outcomes.items():
        for o in each:
            row = rows.setdefault(
                (o.policy, o.fault),
                {"policy": o.policy, "fault": o.fault, "of": 0, "passed": 0, "attainment": 0.0, "reactive": 0.0}
                | {"lost_points": 0.0, "worst": (-math.inf, ""), "cost_change": -math.inf, "blind": 0},
            )
            row["of"] += 1
            row["passed"] += o.passed
            row["blind"] += o.blind
            for name, value in (
                ("attainment", o.attainment),
                ("reactive", o.reactive_attainment),
                ("lost_points", o.lost_points),
            ):
                row[name] += (value - row[name]) / row["of"]
            row["worst"] = max(row["worst"], (o.lost_points, line))
            row["cost_change"] = max(row["cost_change"], o.cost_change)
    return list(rows.values())


def summary_table(rows: list[dict[str, Any]], target: float) -> Table:
    """The table of all policies at one target."""
    table = _table(
        f"{target:.1%} of requests in time: GPU-hours against tuned HPA on utilisation, and on arriving work",
        ("policy", "change", "95 %", "on arriving work", "reached", "limited", "worst case", "vs best baseline",
         "> 1 % worse", "gap closed", "frozen kept", "act/h", "flaps/h"),
    )  # fmt: skip
    for row in rows:
        worst, best = row["worst"], row["worst_against_best_baseline"]
        table.add_row(
            row["title"],
            change(row["ratio"]),
            f"{change(row['low'])} .. {change(row['high'])}",
            _against(row["ratio_to_load"]),
            f"{row['reached']}/{row['of']}",
            str(row["limited"]),
            f"{change(worst[0])} {worst[1]}",
            change(best[0]),
            str(len(row["worse_than_best_baseline"])),
            _share(row["gap_closed"]),
            f"{row['frozen_kept']}/{row['of']}",
            f"{row['actions_per_hour']:.1f}",
            f"{row['flaps_per_hour']:.1f}",
            style="bold" if row["ours"] else None,
        )
    return table


def _against(ratio: dict[str, float]) -> str:
    return f"{change(ratio['value'])} ({change(ratio['low'])} .. {change(ratio['high'])})"


def managers_table(rows: list[dict[str, Any]], title: str, target: float) -> Table:
    """The table of one policy by configuration, and their mean in the last row."""
    table = _table(
        f"{title} at {target:.1%}, week 2, beside a fleet for the worst minute of week 1 (peak) and a tuned number",
        ("configuration", "peak n", "peak in time", "in time", "busy: peak", "busy", "hours saved: peak",
         "tuned number", "best baseline", "against it", "gap closed", "act/h"),
    )  # fmt: skip
    for row in rows:
        table.add_row(
            row["configuration"],
            f"{row['peak_replicas']:.0f}",
            f"{row['peak_attainment']:.2%}",
            f"{row['attainment']:.2%}",
            f"{row['peak_utilisation']:.0%}",
            f"{row['utilisation']:.0%}",
            _share(row["saved_against_peak"]),
            _share(row["saved_against_tuned_static"]),
            row["best_baseline"],
            change(row["against_best_baseline"]),
            _share(row["gap_closed"]),
            f"{row['actions_per_hour']:.1f}",
            style="red" if row["against_best_baseline"] > WORSE or row["actions_per_hour"] > ACTIONS_GOAL else None,
        )
    means = {key: _mean(row[key] for row in rows) for key in rows[0] if isinstance(rows[0][key], float)}
    table.add_row(
        "mean",
        "",
        f"{means['peak_attainment']:.2%}",
        f"{means['attainment']:.2%}",
        f"{means['peak_utilisation']:.0%}",
        f"{means['utilisation']:.0%}",
        _share(means["saved_against_peak"]),
        _share(means["saved_against_tuned_static"]),
        "",
        change(means["against_best_baseline"]),
        _share(means["gap_closed"]),
        f"{means['actions_per_hour']:.1f}",
        style="bold",
    )
    return table


def faults_table(rows: list[dict[str, Any]], target: float) -> Table:
    """The table of policies under faults."""
    table = _table(
        f"faults at {target:.1%}, settings of week 1: passed is at most {MOST_LOST:g} point behind reactive-only, "
        f"{MOST_COST:.0%} more cost than without, nothing taken away blindly",
        ("policy", "fault", "passed", "in time", "reactive-only", "points lost", "worst case", "most cost", "blind"),
    )
    for row in rows:
        table.add_row(
            row["policy"],
            TITLES[row["fault"]],
            f"{row['passed']}/{row['of']}",
            f"{row['attainment']:.2%}",
            f"{row['reactive']:.2%}",
            f"{row['lost_points']:+.2f}",
            f"{row['worst'][0]:+.2f} {row['worst'][1]}",
            f"{row['cost_change']:+.1%}",
            str(row["blind"]),
            style="red" if row["passed"] < row["of"] else None,
        )
    return table


def change(ratio: float) -> str:
    """A ratio as a change in percent; a dash where there is none."""
    return "-" if not math.isfinite(ratio) else f"{100 * (ratio - 1):+.1f} %"


def _share(value: float) -> str:
    return "-" if not math.isfinite(value) else f"{value:.0%}"


def _mean(values: Iterable[float]) -> float:
    known = [x for x in values if math.isfinite(x)]
    return float(np.mean(known)) if known else math.nan


def _per_hour(result: Result, setting: int, column: int) -> float:
    test = claim.halves(result)[1][setting]
    return float(test[..., column].sum() / (test.shape[0] * test.shape[1] * 24))


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left")
    return table


def peak_row(block_sums: Floats, replicas: float) -> dict[str, float]:
    """Figures of a fixed fleet from its block sums of the second half [seeds, blocks, columns]."""
    total = block_sums.sum(axis=(0, 1))
    return {
        "replicas": replicas,
        "hours": float(total[BILLED]) / 3600 / len(block_sums),
        "attainment": float(1.0 - total[LATE] / max(total[REQUESTS], 1e-9)),
        "utilisation": float(total[SERVED] / total[BILLED]),
    }


def geometric(ratios: list[tuple[claim.Ratio, Floats]]) -> claim.Ratio:
    """Geometric mean over configurations; report beside it those in which one side missed the target."""
    known = [(r, each) for r, each in ratios if math.isfinite(r.value)]
    if not known:
        return claim.Ratio(math.nan, math.nan, math.nan)
    value = math.exp(float(np.mean([math.log(r.value) for r, _ in known])))
    logs = np.log([each for _, each in known])
    some = np.isfinite(logs).any(axis=0)
    return claim.Ratio(value, *claim.interval(np.exp(np.nanmean(logs[:, some], axis=0))))
