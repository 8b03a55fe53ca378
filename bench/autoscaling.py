"""What our autoscaling policies cost against tuned baselines, at equal service.

``python bench/autoscaling.py [--quick] [--data FOLDER] [--json PATH]``. Every policy has the same number
of settings (at most 40). They are tuned on week 1 of each trace and measured on week 2; costs at a target attainment
are interpolated on the settings that week 1 left on its Pareto front. Ratios are against tuned HPA, with a paired
bootstrap over days and seeds; the geometric mean is over the configurations that both sides reached, and how many those
were is printed. Rows that lose stay.

Without ``--data`` and with ``--quick`` the traces are synthetic: that shows that the script works, not what is claimed.
Traces are the ServeGen models of two weeks and more in the folder: each is one workload, and how many there are is
printed with the claim. HPA stands there on served utilisation, on the work that arrives, and on the queue.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for `bench`

from bench.common.report import machine, wide_console
from bench.forecasts import events_apart
from bench.scaling import rows, single_requests as single, unseen
from bench.scaling.rows import BASE, ORACLE, change
from bench.scaling.servegen import Clients, arrivals
from bench.scaling.traces import open_traces

from flyball_contracts.errors import FlyballError
from flyball_models.scaling import static
from flyball_streams.backtest.demands.demand import DAY_S, Demand
from flyball_streams.backtest.events.confirm import Confirmation
from flyball_streams.backtest.events.requests import drawn
from flyball_streams.backtest.kernel import Floats
from flyball_streams.backtest.policies.cover import cover
from flyball_streams.backtest.policies.groups import BASELINES, POLICY_GROUPS, PolicyGroup
from flyball_streams.backtest.policies.prepared import PreparedDemand, prepare
from flyball_streams.backtest.report import claim
from flyball_streams.backtest.run import Scenario, simulate
from flyball_streams.backtest.safety import Outcome, outcomes
from flyball_streams.backtest.sweep import REQUESTS, Configuration, Result, blocks_of, sweep

CONFIGURATIONS = ((120.0, 5), (300.0, 5), (600.0, 5), (300.0, 30))
TARGETS = (0.95, 0.99, 0.999)
FAULT_TARGET = 0.99
"""The target at which replica managers and faults are compared; faults have fewer seeds."""
FAULT_SEEDS = 2
APART_SEEDS = 2
SEEDS = 5
OURS = ("slo_headroom", "lead_time_headroom", "shadow_selection", "headroom", "forecast_band")
PARTS = ("managers", "safety", "apart", "single", "unseen")
SLOW = {"single", "unseen"}
"""Shown when named, or in a quick run; `unseen` alone leaves the claim out."""

Pairs = tuple[tuple[float, int], ...]
Traces = Iterator[tuple[str, list[Demand]]]


def synthetic(seeds: int, days: int) -> Traces:
    """A small fleet with a day, bursty clients and too short a week: only to see that all of it runs."""
    windows = days * 144
    rng = np.random.default_rng(7)
    day = 1 + 0.5 * np.sin(2 * math.pi * np.arange(windows) / 144)
    rate = rng.gamma(1.0, 1.0, (8, 1)) * day * np.exp(0.2 * rng.standard_normal((8, windows)))
    fleet = Clients("synthetic", tuple(range(8)), rate, rng.uniform(1.0, 4.0, rate.shape), f"synthetic, {days} d")
    rate[:, 300:302] *= 2.5  # a burst, and an outage
    rate[:, 450:453] *= 0.2
    tokens = rng.gamma(1.0, 0.2, 1000)
    yield "synthetic", [arrivals(fleet, tokens, seed, mean_rps=20.0) for seed in range(seeds)]


def traces_of(data: Path, seeds: int) -> Traces:
    """Demands of the long traces of a folder, each drawn when it is requested."""
    found = open_traces(data)
    long = [name for name, fleet in found.fleets.items() if fleet.seconds >= 14 * DAY_S]
    return ((name, found.demands(name, seeds)) for name in long)


def tried(
    traces: Traces, pairs: Pairs, policy_groups: list[PolicyGroup], thin: int, bar: Progress
) -> Iterator[tuple[list[PreparedDemand], list[Result]]]:
    """Run every setting on one trace after another."""
    for name, demands in traces:
        colds = tuple(dict.fromkeys(cold for cold, _ in pairs))
        shared = prepare(demands, colds, forecasts=any(f.forecasts for f in policy_groups))
        task = bar.add_task(name, total=None)

        def shown(done: int, total: int, task: TaskID = task) -> None:
            bar.update(task, completed=done, total=total)

        yield shared, list(sweep({name: shared}, pairs, policy_groups, thin=thin, progress=shown))


def peaks(shared: list[PreparedDemand], name: str, pairs: Pairs) -> dict[str, Any]:
    """A fleet for the worst minute of the first half, and what it does in the second, by configuration."""
    found: dict[str, Any] = {}
    for cold_start_s, delay_s in pairs:
        block_sums: list[Floats] = []
        sizes: list[int] = []
        for each in shared:
            need = each.need(delay_s)
            sizes.append(math.ceil(float(need[: len(need) // 2].max()) - 1e-9))
            policy = static.policy(sizes[-1])
            block_sums.append(
                blocks_of(simulate(each.demand, policy, Scenario(cold_start_s, (delay_s,)), flow=each.flow), 0)
            )
        half = np.stack(block_sums)[:, len(block_sums[0]) // 2 :]
        found[str(Configuration(name, cold_start_s, delay_s))] = rows.peak_row(half, float(np.mean(sizes)))
    return found


def borne(shared: list[PreparedDemand], found: list[Result], thin: int) -> dict[str, list[Outcome]]:
    """Outcomes of all faults, by configuration."""
    borne_by: dict[str, list[Outcome]] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for line in dict.fromkeys(r.configuration for r in found):
            results = {r.policy_group.key: r for r in found if r.configuration == line}
            middle_s = found[0].block_sums.shape[2] // 2 * DAY_S
            world = Scenario(line.cold_start_s, (line.delay_s,))
            borne_by[str(line)] = outcomes(shared[:FAULT_SEEDS], results, FAULT_TARGET, world, middle_s, pool, thin)
    return borne_by


def bounds(shared: list[PreparedDemand], name: str) -> dict[str, float]:
    """Hours of the second half: total work, and the clairvoyant cover of each configuration with the first seed."""
    middle = len(shared[0].demand.work) // 2
    found = {f"{name} total work": float(np.mean([k.demand.work[middle:].sum() / 3600 for k in shared]))}
    for cold_start_s, delay_s in CONFIGURATIONS:
        hours = float(cover(shared[0].demand, delay_s, cold_start_s)[middle:].sum()) / 3600
        found[str(Configuration(name, cold_start_s, delay_s))] = hours
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; exit status 1 when it could not be run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    help_parts = (
        "what to show beside the claim; by default all but 'single' and 'unseen', which take long; "
        "'unseen' alone comes without the claim"
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help=help_parts)
    parser.add_argument(
        "--data", type=Path, help="folder with servegen/ and azure_llm_2023/, and worldcup98/ and nab/ for 'unseen'"
    )
    parser.add_argument("--quick", action="store_true", help="fewer settings, seeds and policies: under a minute")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--policies", default=",".join((*OURS, *BASELINES, ORACLE)))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    console = wide_console(200)
    started, cpu = time.monotonic(), time.process_time()
    keys = [key for key in args.policies.split(",") if key != "forecast_band" or not args.quick]
    if BASE not in keys:
        keys.append(BASE)
    unknown = [key for key in keys if key not in POLICY_GROUPS]
    if unknown or not (args.quick or args.data):
        parser.error(f"there is no policy {unknown[0]!r}" if unknown else "name the traces with --data, or use --quick")
    seeds = min(args.seeds, 2) if args.quick else args.seeds
    parts = set(args.parts or PARTS) - (set() if args.parts or args.quick else SLOW)
    alone = parts == {"unseen"}
    if "unseen" in parts and not unseen.there(args.data):
        if args.parts:
            parser.error("the part 'unseen' needs --data with worldcup98/ and nab/")
        parts -= {"unseen"}
    try:
        series = unseen.series(args.data, quick=args.quick) if "unseen" in parts else []
        traces = iter(()) if alone else traces_of(args.data, seeds) if args.data else synthetic(seeds, 4)
    except FlyballError as error:
        console.print(f"error: {error}")
        return 1
    pairs, thin = (CONFIGURATIONS[1:2], 8) if args.quick else (CONFIGURATIONS, 1)
    results: list[Result] = []
    others: list[Result] = []
    document: dict[str, Any] = {"quick": args.quick, "seeds": seeds, "machine": machine()}
    limits: dict[str, float] = {}
    fixed: dict[str, Any] = {}
    faults: dict[str, list[Outcome]] = {}
    confirmed: dict[str, Confirmation] = {}
    samples: list[Demand] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    policy_groups = [POLICY_GROUPS[key] for key in keys]
    draws = 50 if args.quick else claim.DRAWS
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        for shared, found in tried(unseen.demands(series), pairs, policy_groups, thin, bar):
            console.print(f"{shared[0].demand.name}: {shared[0].demand.about}", highlight=False)
            others += found
        for shared, found in tried(traces, pairs, policy_groups, thin, bar):
            demand = shared[0].demand
            console.print(f"{demand.name}: {demand.about}", highlight=False)
            results += found
            limits |= bounds(shared, demand.name)
            samples += [each.demand for each in shared[:APART_SEEDS]]
            if "managers" in parts:
                fixed |= peaks(shared, demand.name, pairs)
            if "safety" in parts:
                faults |= borne(shared, found, thin)
            if "single" in parts:
                source = open_traces(args.data).requests if args.data else drawn
                confirmed |= single.confirmed(shared[0], found, source, thin, quick=args.quick)
    if others:
        document["unseen"] = unseen.shown(others, TARGETS, draws)
        for table in unseen.tables(document["unseen"]):
            console.print(table)
    if not results and not alone:
        console.print(
            f"{args.data}: holds no trace of two weeks or more; nothing can be tuned on one and tested on another"
        )
        return 1
    document["requests"] = {r.configuration.trace: float(r.block_sums[0, :, :, REQUESTS].sum()) for r in results}
    document["bounds_hours"], document["targets"] = limits, {}
    ours = next((key for key in keys if POLICY_GROUPS[key].ours), None)
    for target in () if alone else TARGETS:
        held = rows.contest(results, target, draws)
        document["targets"][str(target)] = summary = rows.summary(held)
        console.print(rows.summary_table(summary, target))
        workloads = len({line.trace for line in held.lines})
        console.print(f"  {workloads} workload{'s' * (workloads != 1)}, {len(held.lines)} configurations")
        if ours is None:
            continue
        line = next(row for row in summary if row["policy"] == ours)
        for name in line["worse_than_best_baseline"]:
            beside = change(line["against_best_baseline"][name])
            console.print(f"  {line['title']}: {beside} against the best tuned baseline in {name}", highlight=False)
        if "managers" in parts and target == FAULT_TARGET:
            document["managers"] = rows.managers(held, ours, fixed)
            console.print(rows.managers_table(document["managers"], line["title"], target))
    if "safety" in parts:
        document["safety"] = rows.faults(faults)
        console.print(rows.faults_table(document["safety"], FAULT_TARGET))
    if "apart" in parts:
        document["apart"] = events_apart.apart(samples, tuple(dict.fromkeys(cold for cold, _ in pairs)))
        console.print(events_apart.table(document["apart"]))
    if "single" in parts:
        document["single"] = single.rows(confirmed)
        console.print(single.table(confirmed), highlight=False)
    if not args.data:
        console.print("synthetic traces: this shows that the script runs, and supports no claim", style="yellow")
    document |= {"wall_s": time.monotonic() - started, "cpu_s": time.process_time() - cpu}
    runs = sum(len(r.names) * r.block_sums.shape[1] for r in results + others)
    console.print(
        f"{len(results + others)} lines of {runs} settings and seeds in {document['wall_s']:.0f} s, "
        f"{document['cpu_s']:.0f} s of CPU time; lag, grids and engine: see flyball_streams.backtest"
    )
    if args.json:
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
