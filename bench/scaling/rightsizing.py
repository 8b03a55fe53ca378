"""What a replica requests against what it uses: our recommender beside the Kubernetes one, fixed requests and peaks.

    python bench/scaling/rightsizing.py [--quick] [--data DIR] [--json PATH]

Series of memory, CPU and GPU memory, replayed hour by hour. At the start of each hour a rule may change the request; a
change of at most 10 % is not made (nor, for the Kubernetes rule, one within its bounds). Memory: an hour in which usage
passes the request has a kill, after which the request is at least 1.2 times what it was. CPU: what is above the request
is lacking. Every rule has the same number of settings. They are tuned on the first half (whose first quarter only warms
up): the cheapest setting with at most the target's rate of kills, or share of CPU lacking, is frozen and judged on the
second half. "at equal risk" is read off the front of all its settings on the second half, where the shipped Kubernetes
rule stands. Slack is 1 - usage / request, both summed. Series are scaled to 0..1 by their publisher: slack is only to
be compared between rules.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for `bench`

from bench.common import vpa

from flyball_models.rightsizing import cost, mig, usage
from flyball_models.rightsizing.histogram import Floats

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
HOUR_S = 3_600.0
START_S = 1_600_000_000 // 86_400 * 86_400.0
GIB = 2.0**30
CHANGE = 0.1
TARGETS = {"memory": 1e-3, "gpu memory": 1e-3, "cpu": 1e-2}
"""Share of hours with a kill, share of CPU lacking, for which settings are tuned."""
KILLS = (5.0, 10.0, 20.0, 50.0, 200.0)
SLOWS = (5.0, 10.0, 20.0, 40.0, 100.0)
TUNED = 12
"""Samples of CPU an hour that models are fitted to: means of five minutes."""


class Series(NamedTuple):
    """Usage by hour and sample within it, float64 [T, K, S]; NaN where the replica was not there."""

    kind: str
    source: str
    x: Floats


class Rule(NamedTuple):
    """A recommender with its settings: memory of the past, and from its weights [B, S] and age the request's bounds."""

    name: str
    settings: str
    past: usage.Config | None
    recommend: Callable[[Floats, Floats], tuple[Floats, Floats, Floats]]
    shipped: bool = False


class Score(NamedTuple):
    """Slack, and risk: share of hours with a kill, or of CPU lacking."""

    slack: float
    risk: float


def rules(kind: str, first: Floats) -> list[Rule]:
    """All rules with all their settings; `first` [T, K, S] is the part on which fixed requests are set."""
    lasting = kind != "cpu"
    made: list[Rule] = []
    for half_life_d, stakes in product((2.0, 4.0, 8.0), KILLS if lasting else SLOWS):
        shipped, tuned = (cost.KILL, cost.MEMORY) if lasting else (cost.SLOW, cost.CPU)
        config, chosen = tuned._replace(half_life_s=half_life_d * 86_400.0), shipped._replace(stakes=stakes)
        find = cost.killing if lasting else cost.slowing

        def ours(w: Floats, _: Floats, find: Any = find, config: Any = config, chosen: Any = chosen) -> Any:
            return (found := find(w, config.grid, chosen)), found, found

        is_shipped = (config, chosen) == (tuned, shipped)
        made.append(Rule("cost", f"{half_life_d:g} d, stakes {stakes:g}", config, ours, is_shipped))
    for p, margin in product((0.9, 0.95, 1.0), (0.0, 0.15, 0.3, 0.5, 1.0)):
        config = vpa.MEMORY if lasting else vpa.CPU
        chosen_vpa = vpa.Settings(target=p, upper=max(0.95, p), margin=margin)

        def theirs(w: Floats, age: Floats, config: Any = config, chosen: Any = chosen_vpa) -> Any:
            return tuple(vpa.recommend(w, age, config.grid, chosen))

        made.append(Rule("vpa", f"P{100 * p:.0f} x {1 + margin:.2f}", config, theirs, chosen_vpa == vpa.DEFAULT))
    for days, margin in product((1.0, 3.0, 7.0), (1.0, 1.1, 1.2, 1.35, 1.5)):
        made.append(Rule("peak", f"{days:g} d x {margin:g}", usage.Config(cost.MEMORY.grid, days), _never(margin)))
    top = np.nanmax(first, axis=(0, 1))
    for factor in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.75, 2.0, 2.5):
        fixed = top * factor

        def same(_: Floats, __: Floats, fixed: Floats = fixed) -> tuple[Floats, Floats, Floats]:
            return fixed, fixed, fixed

        made.append(Rule("fixed", f"{factor:g} x first half's peak", None, same))
    return made


def _never(margin: float) -> Callable[[Floats, Floats], tuple[Floats, Floats, Floats]]:
    def times(peak: Floats, _: Floats) -> tuple[Floats, Floats, Floats]:
        found = peak * margin
        return found, found, found

    return times


def play(rule: Rule, data: Series) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Request, whether there was a kill, and CPU lacking, of each hour and series, all [T, S]."""
    hours, _, n = data.x.shape
    lasting = data.kind != "cpu"
    request, killed, lacking = np.full((hours, n), np.nan), np.zeros((hours, n), bool), np.zeros((hours, n))
    config = rule.past
    state = usage.init(n, config) if config is not None and config.half_life_s > 100.0 else None
    tops = np.full((hours, n), np.nan)
    now = np.full(n, np.nan)
    everyone: NDArray[np.int64] = np.arange(n, dtype=np.int64)
    for hour in range(hours):
        block, at_s = data.x[hour], START_S + hour * HOUR_S
        if state is not None and config is not None:
            age = np.nan_to_num(at_s - state.since_s, nan=0.0)
            lower, target, upper = rule.recommend(usage.weights(state, everyone, at_s, config), age)
        elif config is not None:
            days = max(1, round(config.half_life_s * 24))
            past = tops[max(0, hour - days) : hour]
            known = np.isfinite(past).any(axis=0) if len(past) else np.zeros(n, bool)
            peak = np.where(known, np.nanmax(np.where(np.isfinite(past), past, 0.0), axis=0, initial=0.0), np.nan)
            lower, target, upper = rule.recommend(peak, peak)
        else:
            lower, target, upper = rule.recommend(now, now)
        change = np.isfinite(target) & ~((lower <= now) & (now <= upper)) & ~(np.abs(target - now) <= CHANGE * now)
        now = np.where(change, target, now)
        there = np.isfinite(block).any(axis=0)
        top = np.max(np.where(np.isfinite(block), block, -np.inf), axis=0)
        request[hour] = now
        if lasting:
            samples = np.where(there, top, np.nan)[None]
        else:
            whole = block[: len(block) // TUNED * TUNED].reshape(TUNED, -1, n)
            seen = np.isfinite(whole)
            samples = np.where(seen, whole, 0.0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
            samples[~seen.any(axis=1)] = np.nan
        if lasting:
            killed[hour] = there & (top > now)
            bumped = now.copy()
            while (short := there & (top > bumped)).any():
                bumped = np.where(short, cost.after_oom(bumped), bumped)
            samples[0] = np.where(killed[hour], np.maximum(bumped, top), samples[0])
            now = bumped
        else:
            lacking[hour] = np.nansum(np.maximum(block - now, 0.0), axis=0)
        tops[hour] = np.where(there, samples.max(axis=0) if lasting else top, np.nan)
        if state is not None and config is not None:
            for k, x in enumerate(samples):
                state = usage.step(state, x, np.isfinite(x), at_s + k * HOUR_S / len(samples), config)
    return request, killed, lacking


def score(rule: Rule, data: Series, played: tuple[Floats, NDArray[np.bool_], Floats], part: slice) -> Score:
    """Slack and risk of the hours of a part in which there was usage and a request."""
    request, killed, lacking = (a[part] for a in played)
    there = np.isfinite(data.x[part])
    count = there.sum(axis=1)
    used = np.where(count > 0, np.where(there, data.x[part], 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)
    known = np.isfinite(used) & np.isfinite(request)
    scale = np.nanmax(data.x, axis=(0, 1))  # each series counts alike
    requested, took = (request / scale)[known].sum(), (used / scale)[known].sum()
    if data.kind != "cpu":
        return Score(1 - took / requested, float(killed[known].mean()))
    return Score(1 - took / requested, float((lacking / scale)[known].sum() / (data.x.shape[1] * took)))


def at_risk(scores: Sequence[Score], risk: float) -> float:
    """Least slack at a risk, between the settings that are not beaten in both; NaN where none is so safe."""
    front: list[Score] = []
    for s in sorted(scores):
        if not front or s.risk < front[-1].risk:
            front.append(s)
    safe = [i for i, s in enumerate(front) if s.risk <= risk]
    if not safe:
        return float("nan")
    i = safe[0]
    if i == 0 or front[i - 1].risk == front[i].risk:
        return front[i].slack
    a, b = front[i - 1], front[i]
    return b.slack + (a.slack - b.slack) * (risk - b.risk) / (a.risk - b.risk)


def by_hour(table: pl.DataFrame, name: str, value: str, samples: int) -> Floats:
    """Usage [T, K, S] of the series in a table with columns `name`, `i` (sample) and `value`."""
    wide = table.pivot(on=name, index="i", values=value, aggregate_function="max").sort("i")
    first, last = int(wide["i"][0]), int(wide["i"][-1])
    full = pl.DataFrame({"i": np.arange(first, last + 1)}).join(
        wide.with_columns(pl.col("i").cast(pl.Int64)), "i", "left"
    )
    x = full.drop("i").to_numpy().astype(np.float64)
    return x[: len(x) // samples * samples].reshape(-1, samples, x.shape[1])


def public(folder: Path) -> list[Series]:
    """Real usage: servers of SMD and NAB, pods of a GPU service."""
    columns = ["machine", "t_min", "cpu_r", "mem_u"]
    early, late = (pl.read_parquet(folder / "smd" / f"{part}.parquet", columns=columns) for part in ("train", "test"))
    minutes = int(early.select(pl.col("t_min").max()).item()) + 1
    # Nothing is known about the time between the two.
    smd = pl.concat([early.with_columns(i=pl.col("t_min")), late.with_columns(i=pl.col("t_min") + minutes)])
    pods = pl.read_parquet(folder / "alibaba_gentd26" / "pod_metrics.parquet")
    pods = pods.with_columns(((pl.col("t_s") - pl.col("t_s").min()) // 57).alias("i")).filter(
        pl.len().over("pod") > 360
    )
    gpu = pods.filter(pl.col("gpu_mem_mib").is_not_null()).with_columns(pl.col("gpu_mem_mib") * 2.0**20)
    host = pods.filter(pl.col("host_mem_frac").is_not_null()).with_columns(pl.col("host_mem_frac") * 64 * GIB)
    nab = pl.read_parquet(folder / "nab" / "points.parquet").filter(
        pl.col("series").cast(pl.String).str.contains("cpu_utilization")
    )
    nab = nab.with_columns(pl.int_range(pl.len()).over("series").alias("i"))
    return [
        Series("memory", "SMD servers, 1 min", by_hour(smd, "machine", "mem_u", 60) * 64 * GIB),
        Series("memory", "GPU service's pods, 57 s", by_hour(host, "pod", "host_mem_frac", 63)),
        Series("gpu memory", "GPU service's pods, 57 s", by_hour(gpu, "pod", "gpu_mem_mib", 63)),
        Series("cpu", "SMD servers, 1 min", by_hour(smd, "machine", "cpu_r", 60) * 16),
        Series("cpu", "NAB servers, 5 min", by_hour(nab, "series", "value", 12) * 0.16),
    ]


def synthetic(seed: int = 1) -> list[Series]:
    """Daily waves with noise, slow growth and rare bursts."""
    rng = np.random.default_rng(seed)
    hours, n = 24 * 10, 8
    t = np.arange(hours * 6).reshape(hours, 6, 1) / 6.0
    wave = 0.5 + 0.2 * np.sin(2 * np.pi * (t / 24 + rng.random(n)))
    grown = wave * (1 + 0.0005 * t) + 0.04 * rng.standard_normal((hours, 6, n))
    burst = (rng.random((hours, 1, n)) < 0.003) * rng.random((hours, 1, n))
    x = np.maximum(grown + burst, 0.01)
    return [Series("memory", "synthetic", x * 32 * GIB), Series("cpu", "synthetic", x * 8)]


def slices(data: Series, model: str = "NVIDIA H100 80GB HBM3", memory_bytes: float = 80 * GIB) -> list[dict[str, Any]]:
    """Parts of a GPU that would have been chosen by the first half, and how many were too small in the second."""
    half = len(data.x) // 2
    n = data.x.shape[2]
    rows: list[dict[str, Any]] = []
    for name, config in (("cost", cost.MEMORY), ("vpa", vpa.MEMORY)):
        state = usage.init(n, config)
        for hour in range(half):
            block = data.x[hour]
            top = np.where(np.isfinite(block).any(axis=0), np.nanmax(np.nan_to_num(block, nan=0.0), axis=0), np.nan)
            state = usage.step(state, top, np.isfinite(top), START_S + hour * HOUR_S, config)
        end_s = START_S + half * HOUR_S
        weights = usage.weights(state, np.arange(n, dtype=np.int64), end_s, config)
        age = np.nan_to_num(end_s - state.since_s)
        surer = cost.KILL._replace(stakes=10.0 * cost.KILL.stakes)  # as the engine does for slices
        theirs = vpa.recommend(weights, age, config.grid).upper
        requested = cost.killing(weights, config.grid, surer) if name == "cost" else theirs
        later = data.x[half:].reshape(-1, n)
        peak = np.max(np.nan_to_num(later, nan=0.0), axis=0)
        known = np.isfinite(requested) & (peak > 0)
        chosen = [mig.smallest(model, memory_bytes, 0.0, float(a)) for a in requested[known]]
        fit = [p for p in chosen if p is not None]
        small = sum(bool(p.memory_bytes < used) for p, used in zip(fit, peak[known], strict=True))
        needed = [mig.smallest(model, memory_bytes, 0.0, float(p)) for p in peak[known]]
        rows.append({
            "rule": name, "pods": len(fit), "gpus": sum(p.size for p in fit), "too small": small,
            "gpus with hindsight": sum(p.size for p in needed if p is not None),
        })  # fmt: skip
    return rows


def contest(data: Series) -> list[dict[str, Any]]:
    """Rows of one set of series: each rule as shipped, as tuned, and at equal risk."""
    hours = len(data.x)
    first, second = slice(hours // 8, hours // 2), slice(hours // 2, hours)
    target = TARGETS[data.kind]
    by_rule: dict[str, list[tuple[Rule, Score, Score]]] = {}
    for rule in rules(data.kind, data.x[: hours // 2]):
        played = play(rule, data)
        found = score(rule, data, played, first), score(rule, data, played, second)
        by_rule.setdefault(rule.name, []).append((rule, *found))
    shipped = next(two for rule, _, two in by_rule["vpa"] if rule.shipped)
    rows: list[dict[str, Any]] = []
    for name, tried in by_rule.items():
        safe = [t for t in tried if t[1].risk <= target]
        rule, one, two = min(safe or tried, key=lambda t: t[1].slack if safe else t[1].risk)
        row: dict[str, Any] = {"rule": name, "tuned": rule.settings, "slack 1": one.slack, "risk 1": one.risk}
        row |= {"slack 2": two.slack, "risk 2": two.risk, "at equal risk": at_risk([t[2] for t in tried], shipped.risk)}
        for r, _, second_half in tried:
            if r.shipped:
                row |= {"shipped": r.settings, "shipped slack": second_half.slack, "shipped risk": second_half.risk}
        rows.append(row)
    return rows


def main() -> None:
    """Play all rules on all series, and print what became of them."""
    parser = argparse.ArgumentParser(description="Right-sizing on real usage: slack and kills of several rules.")
    parser.add_argument("--quick", action="store_true", help="synthetic series only; supports no claim")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not options.quick and not options.data.is_dir():
        parser.error(f"{options.data} is no folder; name that of the public data with --data, or use --quick")
    console = Console(width=170)
    results: list[dict[str, Any]] = []
    if options.quick:
        console.print("Synthetic series: this supports no claim.")
    for data in synthetic() if options.quick else public(options.data):
        rows = contest(data)
        results.append(
            {"kind": data.kind, "source": data.source, "hours": len(data.x), "series": data.x.shape[2], "rows": rows}
        )
        risk = "CPU lacking" if data.kind == "cpu" else "hours with a kill"
        table = Table(title=f"{data.kind}: {data.source}, {data.x.shape[2]} series x {len(data.x)} h; risk: {risk}")
        for column in (
            "rule",
            "as shipped",
            "slack",
            "risk",
            "tuned on half 1",
            "slack 1",
            "risk 1",
            "slack 2",
            "risk 2",
            "slack at vpa's risk",
        ):
            table.add_column(column, justify="left" if column in ("rule", "as shipped", "tuned on half 1") else "right")
        for row in rows:
            numbers = [
                row.get("shipped slack"),
                row.get("shipped risk"),
                *(row[k] for k in ("slack 1", "risk 1", "slack 2", "risk 2", "at equal risk")),
            ]
            shown = ["" if v is None else "-" if v != v else f"{v:.2%}" for v in numbers]
            table.add_row(row["rule"], row.get("shipped", ""), shown[0], shown[1], row["tuned"], *shown[2:])
        console.print(table)
        if data.kind == "gpu memory":
            results[-1]["slices"] = chosen = slices(data)
            for row in chosen:
                console.print("slices of an H100 80GB by memory:", row)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
