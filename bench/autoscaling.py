"""What our autoscaling policies cost against tuned baselines, at equal service.

``python bench/autoscaling.py [--quick] [--data FOLDER] [--json PATH]``. Every policy has the same number
of settings (at most 40). They are tuned on week 1 of each trace and measured on week 2; costs at a target attainment
are interpolated on the settings that week 1 left on its Pareto front. Ratios are against tuned HPA, with a paired
bootstrap over days and seeds; the geometric mean is over the configurations that both sides reached, and how many those
were is said. Rows that lose stay.

Without ``--data`` and with ``--quick`` the traces are synthetic: that shows that the script works, not what is claimed.
Traces come from ServeGen models of two weeks and more; where there are fewer than three, halves of their clients stand
in, which are other fleets but not independent ones.
"""

import argparse
import math
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for `bench`

from bench._report import machine

from flyball_contracts.errors import FlyballError
from flyball_streams.backtest import claim
from flyball_streams.backtest.cover import cover
from flyball_streams.backtest.demand import DAY_S, Demand
from flyball_streams.backtest.families import BASELINES, FAMILIES
from flyball_streams.backtest.servegen import TRACES, Clients, arrivals
from flyball_streams.backtest.sweep import ACTIONS, FLAPS, REQUESTS, Configuration, Result, sweep
from flyball_streams.backtest.traces import open_traces

CONFIGURATIONS = ((120.0, 5), (300.0, 5), (600.0, 5), (300.0, 30))
TARGETS = (0.95, 0.99, 0.999)
BASE = "hpa"
ORACLE = "oracle"
SEEDS = 5
OURS = ("promise", "headroom", "engine")


def synthetic(seeds: int, days: int) -> dict[str, list[Demand]]:
    """A small fleet with a day, bursty clients and too short a week: only to see that all of it runs."""
    windows = days * 144
    rng = np.random.default_rng(7)
    day = 1 + 0.5 * np.sin(2 * math.pi * np.arange(windows) / 144)
    rate = rng.gamma(1.0, 1.0, (8, 1)) * day * np.exp(0.2 * rng.standard_normal((8, windows)))
    fleet = Clients("synthetic", tuple(range(8)), rate, rng.uniform(1.0, 4.0, rate.shape), f"synthetic, {days} d")
    return {"synthetic": [arrivals(fleet, rng.gamma(1.0, 0.2, 1000), seed, mean_rps=20.0) for seed in range(seeds)]}


def traces_of(data: Path, seeds: int, said: Console) -> dict[str, list[Demand]]:
    """Demands of the first :data:`TRACES` long traces of a folder."""
    known = open_traces(data)
    long = [name for name, fleet in known.fleets.items() if fleet.seconds >= 14 * DAY_S][:TRACES]
    found: dict[str, list[Demand]] = {}
    for name in long:
        found[name] = known.demands(name, seeds)
        said.print(f"{name}: {found[name][0].about}", highlight=False)
    return found


def summary(results: list[Result], target: float, draws: int) -> list[dict[str, Any]]:
    """One row per policy at a target: ratios to tuned HPA, worst case, gap to the oracle, actions."""
    seeds, blocks = results[0].cells.shape[1:3]
    weights = claim.draws(seeds, blocks - blocks // 2, draws)
    costs = {(r.family.key, r.configuration): claim.costs(r, target, weights) for r in results}
    lines: list[Configuration] = list(dict.fromkeys(r.configuration for r in results))
    rivals = [key for key in BASELINES if any(r.family.key == key for r in results)]
    rows: list[dict[str, Any]] = []
    for key in dict.fromkeys(r.family.key for r in results):
        own = [r for r in results if r.family.key == key]
        ratios = [(line, claim.ratio(costs[key, line], costs[BASE, line])) for line in lines]
        mean = claim.geometric([ratio for _, ratio in ratios])
        known = [(ratio.value, str(line)) for line, (ratio, _) in ratios if math.isfinite(ratio.value)]
        best = [(_against_best(key, line, rivals, costs), str(line)) for line in lines]
        gaps = [_gap(key, line, costs) for line in lines]
        frozen = [(r, claim.frozen(r, target)) for r in own]
        rows.append(
            {
                "policy": key,
                "title": own[0].family.title,
                "ours": own[0].family.ours,
                "ratio": mean.value,
                "low": mean.low,
                "high": mean.high,
                "reached": sum(math.isfinite(costs[key, line][0].value) for line in lines),
                "of": len(lines),
                "limited": sum(costs[key, line][0].limited for line in lines),
                "worst": max(known, default=(math.nan, "none reached")),
                "worst_against_best_baseline": max(
                    (b for b in best if math.isfinite(b[0])), default=(math.nan, "none")
                ),
                "gap_closed": float(np.median(gaps)) if gaps and all(map(math.isfinite, gaps)) else math.nan,
                "each": {str(line): ratio.value for line, (ratio, _) in ratios},
                "hours": {str(line): costs[key, line][0].value for line in lines},
                "frozen": {
                    str(r.configuration): {"setting": f.name, "hours": f.billed_hours, "attainment": f.attainment}
                    for r, f in frozen
                },
                "frozen_kept": sum(f.attainment >= target for _, f in frozen),
                "actions_per_hour": float(np.median([_per_hour(r, f.setting, ACTIONS) for r, f in frozen])),
                "flaps_per_hour": float(np.median([_per_hour(r, f.setting, FLAPS) for r, f in frozen])),
            }
        )
    return rows


def _against_best(key: str, line: Configuration, rivals: list[str], costs: dict[Any, Any]) -> float:
    others = [costs[rival, line][0].value for rival in rivals if rival != key]
    known = [x for x in others if math.isfinite(x)]
    return costs[key, line][0].value / min(known) if known else math.nan


def _gap(key: str, line: Configuration, costs: dict[Any, Any]) -> float:
    oracle = costs[ORACLE, line][0].value if (ORACLE, line) in costs else math.nan
    return claim.gap_closed(costs[key, line][0].value, costs[BASE, line][0].value, oracle)


def _per_hour(result: Result, setting: int, column: int) -> float:
    test = claim.halves(result)[1][setting]
    return float(test[..., column].sum() / (test.shape[0] * test.shape[1] * 24))


def show(rows: list[dict[str, Any]], target: float, console: Console) -> None:
    """Print one table."""
    table = Table(
        title=f"{target:.1%} of requests in time: GPU-hours against tuned HPA", title_justify="left", box=None
    )
    for name in ("policy", "change", "95 %", "reached", "limited", "worst case", "vs best baseline", "gap closed",
                 "frozen kept", "act/h", "flaps/h"):  # fmt: skip
        table.add_column(name, justify="left" if name == "policy" else "right")
    for row in rows:
        worst, best = row["worst"], row["worst_against_best_baseline"]
        table.add_row(
            row["title"],
            _percent(row["ratio"]),
            f"{_percent(row['low'])} .. {_percent(row['high'])}",
            f"{row['reached']}/{row['of']}",
            str(row["limited"]),
            f"{_percent(worst[0])} {worst[1]}",
            _percent(best[0]),
            "-" if math.isnan(row["gap_closed"]) else f"{row['gap_closed']:.0%}",
            f"{row['frozen_kept']}/{row['of']}",
            f"{row['actions_per_hour']:.1f}",
            f"{row['flaps_per_hour']:.1f}",
            style="bold" if row["ours"] else None,
        )
    console.print(table)


def _percent(ratio: float) -> str:
    return "-" if not math.isfinite(ratio) else f"{100 * (ratio - 1):+.1f} %"


def bounds(traces: dict[str, list[Demand]]) -> dict[str, float]:
    """Hours of the second half: total work, and the clairvoyant cover of each configuration."""
    found: dict[str, float] = {}
    for name, demands in traces.items():
        middle = len(demands[0].work) // 2
        found[f"{name} total work"] = float(np.mean([d.work[middle:].sum() / 3600 for d in demands]))
        for cold_start_s, delay_s in CONFIGURATIONS:
            hours = float(cover(demands[0], delay_s, cold_start_s)[middle:].sum()) / 3600
            found[str(Configuration(name, cold_start_s, delay_s))] = hours
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; exit status 1 when it could not be run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with servegen/ and azure_llm_2023/")
    parser.add_argument("--quick", action="store_true", help="fewer settings, seeds and policies: under a minute")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--policies", default=",".join((*OURS, *BASELINES, ORACLE)))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    started = time.monotonic()
    keys = [key for key in args.policies.split(",") if key != "engine" or not args.quick]
    if BASE not in keys:
        keys.append(BASE)
    unknown = [key for key in keys if key not in FAMILIES]
    if unknown or not (args.quick or args.data):
        parser.error(f"there is no policy {unknown[0]!r}" if unknown else "name the traces with --data, or use --quick")
    try:
        traces = traces_of(args.data, args.seeds, console) if args.data else synthetic(2, 4)
    except FlyballError as error:
        console.print(f"error: {error}")
        return 1
    if not traces:
        console.print(
            f"{args.data}: holds no trace of two weeks or more; nothing can be tuned on one and tested on another"
        )
        return 1
    pairs = CONFIGURATIONS[1:2] if args.quick else CONFIGURATIONS
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("running settings", total=None)

        def told(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        families = [FAMILIES[key] for key in keys]
        results = list(sweep(traces, pairs, families, thin=4 if args.quick else 1, progress=told))
    tables = {str(target): summary(results, target, 50 if args.quick else claim.DRAWS) for target in TARGETS}
    for target in TARGETS:
        show(tables[str(target)], target, console)
    took = time.monotonic() - started
    runs = sum(len(r.names) * r.cells.shape[1] for r in results)
    if not args.data:
        console.print("synthetic traces: this shows that the script runs, and supports no claim", style="yellow")
    console.print(
        f"{len(results)} lines of {runs} runs in {took:.0f} s; lag, grids and engine: see flyball_streams.backtest"
    )
    if args.json:
        about = {"quick": args.quick, "seeds": len(next(iter(traces.values()))), "wall_s": took, "machine": machine()}
        requests = {r.configuration.trace: float(r.cells[0, :, :, REQUESTS].sum()) for r in results}
        document = {**about, "requests": requests, "bounds_hours": bounds(traces), "targets": tables}
        args.json.write_bytes(msgspec.json.format(msgspec.json.encode(_plain(document)), indent=2) + b"\n")
    return 0


def _items(value: Any) -> Any:
    return value.items()


def _each(value: Any) -> Any:
    return value


def _plain(value: Any) -> Any:
    """JSON has no NaN: what is not known is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in _items(value)}
    return [_plain(item) for item in _each(value)] if isinstance(value, (list, tuple)) else value


if __name__ == "__main__":
    sys.exit(main())
