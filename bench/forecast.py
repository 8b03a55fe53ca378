"""Forecasts of demand, judged by rolling origin: our experts and their mix beside statsforecast.

Ten-minute series. Settings are tuned on week 1 with the same number of settings per model, and for each series
on the other series only (leave-series-out, four folds); then frozen and judged on week 2. Gaps (total load
below 0.15 of its median) are missing to our models, interpolated from the past for statsforecast, and never
scored. MASE and pinball loss are in units of week 1's mean |y[t] - y[t-1]|. Coverage is the share of values at
or below a quantile, one hour ahead. Intervals are 95 % of a bootstrap over series and days, paired.
"""

import argparse
import importlib
import importlib.metadata
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import numpy as np
import polars as pl
from numpy.typing import NDArray

from flyball_models import bucket
from flyball_models.forecast import conformal, damped, ensemble, holt_winters, last, mix, rls, seasonal

HORIZONS = 6
JUDGED = (1, 6)
SEASON = 144
WEEK = 7 * SEASON
WARM = 2 * SEASON
"""Days 1 and 2 of week 1 only warm up: a setting is scored on days 3 to 7."""
LEVELS = (0.5, 0.9, 0.95, 0.99)
GROWTH = 4.0
FOLDS = 4
GAP = 0.15
SPEED_SERIES = 4096
PEER_EVERY = 39
"""Ticks between the origins that statsforecast is asked for: all times of day come up."""
DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


class Panel(NamedTuple):
    """Series of one source: y and known [T, S]; unknown values are gaps."""

    name: str
    y: Floats
    known: Bools

    @property
    def scale(self) -> NDArray[np.float64]:
        """Mean |y[t] - y[t-1]| of week 1 [S]."""
        step = np.abs(np.diff(self.y[:WEEK].astype(float), axis=0))
        pairs = self.known[1:WEEK] & self.known[: WEEK - 1]
        return mean(np.where(pairs, step, np.nan))


def panel(name: str, y: NDArray[Any], known: Bools) -> Panel:
    """Return the series that week 1 shows to be busy: above 0 more than half of the time, and not constant."""
    known = known & np.isfinite(y)
    y = np.where(known, y, 0.0).astype(np.float32)
    busy = ((y > 0) & known)[:WEEK].mean(axis=0) > 0.5 * known[:WEEK].mean(axis=0)
    busy &= Panel(name, y, known).scale > 0  # NaN, never two values in a row, is not above 0 either
    return Panel(name, y[:, busy], known[:, busy])


def servegen(folder: Path) -> Panel:
    """Read arrival rates per client, and their total, of each model with two weeks of data."""
    rates = pl.read_parquet(folder / "servegen" / "rates.parquet")
    columns: list[NDArray[Any]] = []
    gaps: list[Bools] = []
    for model in sorted(rates["model"].cast(pl.String).unique()):
        table = rates.filter(pl.col("model").cast(pl.String) == model)
        y = table.pivot(on="client", index="t_s", values="rate_rps").sort("t_s").drop("t_s").to_numpy()
        if len(y) < 2 * WEEK:
            continue
        total = y.sum(axis=1)
        columns += [y[: 2 * WEEK], total[: 2 * WEEK, None]]
        gap = total[: 2 * WEEK] < GAP * np.median(total)
        gaps.append(np.repeat(~gap[:, None], y.shape[1] + 1, axis=1))
    if not columns:
        raise SystemExit(f"{folder}/servegen: no model has two weeks of ten-minute windows")
    return panel("servegen", np.concatenate(columns, axis=1), np.concatenate(gaps, axis=1))


def minutely(name: str, table: pl.DataFrame, time_column: str, value: pl.Expr, series: str | None = None) -> Panel:
    """Return ten-minute means of minutes, up to four weeks; ten minutes without any are a gap."""
    keys = [time_column] if series is None else [time_column, series]
    table = table.select(*(pl.col(k) for k in keys), value.cast(pl.Float64).alias("v")).with_columns(
        pl.col(time_column).dt.truncate("10m")
    )
    table = table.group_by(keys).agg(pl.col("v").mean()).with_columns(pl.col("v"))
    wide = table.pivot(on=series, index=time_column, values="v") if series else table
    wide = wide.sort(time_column).upsample(time_column, every="10m").head(4 * WEEK)
    y = wide.drop(time_column).to_numpy().astype(float)
    return panel(name, y, np.isfinite(y))


def held_out(folder: Path) -> Iterator[Panel]:
    """Read the sources that nothing was tuned on, those that are there."""
    paths = {
        "philly_node_demand": "nodes_minutely.parquet",
        "helios_earth_vc": "vc_minutely.parquet",
        "worldcup98": "requests_per_minute.parquet",
    }
    for name, file in paths.items():
        if not (folder / name / file).is_file():
            continue
        table = pl.read_parquet(folder / name / file)
        if name == "philly_node_demand":
            yield minutely(name, table, "time", pl.col("active"))
        elif name == "helios_earth_vc":
            asked = pl.col("running_gpu_num") + pl.col("pending_gpu_num")
            yield minutely(name, table, "time", asked, "vc")
        else:
            yield minutely(name, table, "minute", pl.col("count"))


def play(family: Any, config: Any, data: Panel, ticks: int, *inputs: Floats) -> Any:
    """Run a family over the first ticks; `inputs` [T, S, ...] are further arguments of its step."""
    s = data.y.shape[1]
    n = bucket(s)

    def padded(x: NDArray[Any], value: float) -> NDArray[Any]:
        return np.pad(x[:ticks], [(0, 0), (0, n - s), *[(0, 0)] * (x.ndim - 2)], constant_values=value)

    arrays = [padded(data.y, 0.0), padded(data.known, False), *(padded(x, np.nan) for x in inputs)]
    if family is mix:
        arrays[2] = arrays[2].transpose(0, 2, 1, 3)  # [T, S, K, H] to [T, K, S, H]

    def tick(state: Any, row: Any) -> tuple[Any, Any]:
        return cast("tuple[Any, Any]", family.step(state, *row, config=config))

    def run(state: Any, rows: Any) -> Any:
        return jax.lax.scan(tick, state, rows)[1]

    compiled = cast("Callable[..., Any]", jax.jit(run))  # pyright: ignore[reportUnknownMemberType]

    def cut(leaf: Any) -> NDArray[Any]:
        return np.asarray(leaf)[:, :s]

    return jax.tree.map(cut, compiled(family.init(n, config), arrays))


class Errors(NamedTuple):
    """Losses by origin [T, S], NaN where a value or forecast is missing: |y - y^| per judged horizon."""

    near: NDArray[np.float64]
    far: NDArray[np.float64]


def errors(data: Panel, forecasts: Floats) -> Errors:
    """Return scaled absolute errors at the judged horizons, by origin."""
    rows: list[NDArray[np.float64]] = []
    for h in JUDGED:
        row = np.full(forecasts.shape[:2], np.nan)
        t = len(forecasts)
        error = np.abs(data.y[h:t].astype(float) - forecasts[: t - h, :, h - 1]) / data.scale
        row[: t - h] = np.where(data.known[h:t] & data.known[: t - h], error, np.nan)
        rows.append(row)
    return Errors(*rows)


def mean(x: NDArray[Any], axis: int = 0) -> NDArray[np.float64]:
    """Mean of what is there; NaN where nothing is, without a warning."""
    there = np.isfinite(x)
    total = np.where(there, x, 0.0).sum(axis=axis)
    count = there.sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def folds(s: int) -> NDArray[np.int64]:
    """Fold of each series, by its position only."""
    return np.arange(s) % FOLDS


def leave_out(objective: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """Return, of objective [G, S], the best setting for each series judged by the other folds, and by all."""
    fold = folds(objective.shape[1])
    best: list[int] = [int(np.argmin(mean(objective[:, fold != f], axis=1))) for f in range(FOLDS)]
    return np.array(best)[fold], int(np.argmin(mean(objective, axis=1)))


class Tuned(NamedTuple):
    """Forecasts [T, S, H] with leave-series-out settings; the setting that all series choose; how many were tried."""

    forecasts: Floats
    frozen: Any
    tried: int


def tune(family: Any, grid: Sequence[Any], data: Panel, *inputs: Floats) -> Tuned:
    """Choose settings on week 1 by the mean log MASE over both horizons; forecast both weeks with them."""

    def forecast(config: Any, ticks: int) -> Floats:
        out = play(family, config, data, ticks, *inputs)
        return cast("Floats", out.forecast if family is mix else out)

    objective: list[NDArray[np.float64]] = []
    for config in grid:
        found = errors(data, forecast(config, WEEK))
        objective.append(np.mean([np.log(mean(e[WARM:]) + 1e-6) for e in found], axis=0))
    chosen, overall = leave_out(np.stack(objective))
    out = np.full((len(data.y), data.y.shape[1], HORIZONS), np.nan, np.float32)
    for g in np.unique(chosen):
        out[:, chosen == g] = forecast(grid[g], len(data.y))[:, chosen == g]
    return Tuned(out, grid[overall], len(grid))


def thin(grid: Sequence[Any], budget: int) -> list[Any]:
    """Return `budget` settings spread over the grid."""
    return [grid[i] for i in np.unique(np.linspace(0, len(grid) - 1, budget).astype(int))]


def grids(budget: int) -> dict[str, list[Any]]:
    """Return the settings to try, as many for each model."""
    h, season = HORIZONS, SEASON
    flat = [damped.Config(a, b, p, h) for a, b, p in product((0.1, 0.3, 0.6, 0.9), (0.0, 0.1), (0.8, 0.95))]
    winters = [
        holt_winters.Config(a, 0.0, g, p, season, h)
        for a, g, p in product((0.1, 0.3, 0.6, 0.9), (0.03, 0.1), (0.8, 0.95))
    ]
    regression = [
        rls.Config(season=season, judged=JUDGED, horizons=h, forgetting=f, prior=p, clip=c)
        for f, p, c in product((0.995, 0.998, 0.9995, 0.9999), (0.003, 0.03), (2.0, 5.0))
    ]
    experts = len(ensemble.EXPERTS) - 1
    mixes = [
        mix.Config(experts, JUDGED, h, e, s) for e, s in product((0.03, 0.1, 0.2, 0.4), (0.001, 0.003, 0.01, 0.03))
    ]
    every: dict[str, Sequence[Any]] = {"damped": flat, "holt_winters": winters, "rls": regression, "mix": mixes}
    return {name: thin(grid, budget) for name, grid in every.items()}


def bands(data: Panel, forecasts: Floats, etas: Sequence[float]) -> Floats:
    """Return quantiles [T, S, Q] an hour ahead; the step is chosen on week 1 by pinball loss, leaving series out."""
    h = HORIZONS
    made: list[Floats] = []
    for eta in etas:
        config = conformal.Config(h, h, LEVELS, eta=eta, growth=GROWTH)
        made.append(play(conformal, config, data, len(data.y), forecasts).quantiles[:, :, h - 1])
    objective = np.stack([np.log(mean(pinball(data, q)[WARM:WEEK]) + 1e-6) for q in made])
    chosen, _ = leave_out(objective)
    return np.stack(made)[chosen, :, np.arange(len(chosen))].transpose(1, 0, 2)


def pinball(data: Panel, quantiles: Floats) -> NDArray[np.float64]:
    """Return the scaled pinball loss of the 95 % quantile an hour ahead, by origin [T, S]."""
    level, h = 0.95, HORIZONS
    out = np.full(quantiles.shape[:2], np.nan)
    off = data.y[h:].astype(float) - quantiles[:-h, :, LEVELS.index(level)]
    loss = np.maximum(level * off, (level - 1) * off) / data.scale
    out[:-h] = np.where(data.known[h:] & data.known[:-h], loss, np.nan)
    return out


def coverage(data: Panel, quantiles: Floats) -> list[float]:
    """Return the share of values at or below each quantile, the mean over series of what follows week 1."""
    h = HORIZONS
    below = (data.y[h:, :, None] <= quantiles[:-h]).astype(float)
    below[~(data.known[h:] & data.known[:-h])] = np.nan
    return [float(mean(mean(below[WEEK:, :, q]))) for q in range(len(LEVELS))]


def by_day(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return means [S, D] over the days after week 1."""
    later = x[WEEK:]
    days = max(len(later) // SEASON, 1)
    return np.stack([mean(part) for part in np.array_split(later, days)], axis=1)


def against(
    rows: dict[str, NDArray[np.float64]], base: str, draws: int, seed: int = 0
) -> dict[str, tuple[float, float, float]]:
    """Return, per model, the ratio of median losses to `base` with its 95 % interval; rows are [S, D]."""
    rng = np.random.default_rng(seed)
    s, d = rows[base].shape
    samples: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(draws):
        series, days = (np.asarray(rng.choice(n, n), np.int64) for n in (s, d))
        medians = {name: np.nanmedian(mean(x[series][:, days], axis=1)) for name, x in rows.items()}
        for name in rows:
            samples[name].append(float(medians[name] / medians[base]))
    point = {name: float(np.nanmedian(mean(x, axis=1))) for name, x in rows.items()}

    def bound(name: str, share: float) -> float:
        return float(np.nanquantile(samples[name], share))

    return {name: (point[name] / point[base], bound(name, 0.025), bound(name, 0.975)) for name in rows}


def judge(data: Panel, forecasts: dict[str, Floats], etas: Sequence[float], draws: int) -> dict[str, Any]:
    """Return the table of one panel: a row per model."""
    found = {name: errors(data, f) for name, f in forecasts.items()}
    quantiles = {name: bands(data, f, etas) for name, f in forecasts.items()}
    losses = {name: pinball(data, q) for name, q in quantiles.items()}
    ratio_far = against({n: by_day(e.far) for n, e in found.items()}, "last", draws)
    ratio_loss = against({n: by_day(x) for n, x in losses.items()}, "last", draws)
    return {
        name: {
            "mase_10min": float(np.nanmedian(mean(found[name].near[WEEK:]))),
            "mase_60min": float(np.nanmedian(mean(found[name].far[WEEK:]))),
            "pinball95_60min": float(np.nanmedian(mean(losses[name][WEEK:]))),
            "coverage": coverage(data, quantiles[name]),
            "mase_60min_vs_last": ratio_far[name],
            "pinball95_vs_last": ratio_loss[name],
        }
        for name in forecasts
    }


def peers(names: Sequence[str]) -> dict[str, Callable[[Floats], Floats]]:
    """Return the forecasters of statsforecast: a context in, `HORIZONS` values out."""
    made: Any = importlib.import_module("statsforecast.models")

    def direct(model: Any) -> Callable[[Floats], Floats]:
        return lambda y: np.asarray(model.forecast(y=y.astype(float), h=HORIZONS)["mean"], np.float32)

    def logged(model: Any) -> Callable[[Floats], Floats]:
        raw = direct(model)
        return lambda y: np.expm1(raw(np.log1p(y)))

    def mstl() -> Any:
        return made.MSTL(season_length=SEASON, trend_forecaster=made.AutoETS(model="ZZN"))

    every: dict[str, Callable[[], Callable[[Floats], Floats]]] = {
        "MSTL+AutoETS": lambda: direct(mstl()),
        "MSTL+AutoETS log1p": lambda: logged(mstl()),
        "DynamicOptimizedTheta": lambda: direct(made.DynamicOptimizedTheta(season_length=SEASON)),
        "AutoETS": lambda: direct(made.AutoETS(season_length=1)),
        "AutoARIMA": lambda: direct(made.AutoARIMA(season_length=1)),
    }
    return {name: make() for name, make in every.items() if name in names}


PEERS = ("MSTL+AutoETS", "MSTL+AutoETS log1p", "DynamicOptimizedTheta", "AutoETS", "AutoARIMA")


def judge_peers(
    data: Panel, forecasts: dict[str, Floats], names: Sequence[str], every: int, draws: int
) -> tuple[dict[str, Any], dict[str, float]]:
    """Return a row per peer and per model of ours on the same origins, and the peers' fits a second."""
    origins = [t for t in range(WEEK + SEASON // 4, len(data.y) - HORIZONS, every) if data.known[t].any()]
    table, rate = dict(forecasts), dict[str, float]()
    ticks = np.arange(len(data.y))
    for name, forecast in peers(names).items():
        out = np.full((len(data.y), data.y.shape[1], HORIZONS), np.nan, np.float32)
        start, fits = time.perf_counter(), 0
        for t, s in product(origins, range(data.y.shape[1])):
            past = slice(max(t + 1 - WEEK, 0), t + 1)
            known = data.known[past, s]
            context = np.interp(ticks[past], ticks[past][known], data.y[past, s][known]).astype(np.float32)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out[t, s] = np.maximum(forecast(context), 0.0)
            fits += 1
        rate[name] = fits / (time.perf_counter() - start)
        table[name] = out
        print(f"  {name}: {fits} fits, {rate[name]:.1f} a second", flush=True)
    chosen = np.zeros(len(data.y), np.bool_)
    chosen[origins] = True
    found = {
        name: Errors(*(np.where(chosen[:, None], e, np.nan) for e in errors(data, f))) for name, f in table.items()
    }
    ratio = against({n: by_day(e.far) for n, e in found.items()}, "last", draws)
    versus = against({n: by_day(e.far) for n, e in found.items()}, "MSTL+AutoETS", draws) if rate else {}
    rows = {
        name: {
            "mase_10min": float(np.nanmedian(mean(e.near))),
            "mase_60min": float(np.nanmedian(mean(e.far))),
            "mase_60min_vs_last": ratio[name],
            "mase_60min_vs_mstl": versus.get(name),
        }
        for name, e in found.items()
    }
    return rows, rate


def speed(config: ensemble.Config, ticks: int) -> dict[str, Any]:
    """Time the whole online tick of N series: forecasts, mix and bands, arrays from and to the host."""
    n = SPEED_SERIES
    y = np.random.default_rng(0).gamma(2, 30, (ticks, n)).astype(np.float32)
    known = np.ones(n, np.bool_)
    band = conformal.Config(HORIZONS, HORIZONS, LEVELS, growth=GROWTH)
    out: dict[str, Any] = {"series": n, "load_average": os.getloadavg()[0], "cpus": os.cpu_count()}
    smooth = damped.Config(horizons=HORIZONS)
    for name, family, settings in (("damped", damped, smooth), ("mix", ensemble, config)):
        made: Any = family
        state, calibrated = made.init(n, settings), conformal.init(n, band)
        taken: list[float] = []
        for row in y:
            start = time.perf_counter()
            state, found = made.step(state, row, known, config=settings)
            point = found.forecast if name == "mix" else found
            calibrated, result = conformal.step(calibrated, row, known, point, config=band)
            np.asarray(result.quantiles)
            taken.append(time.perf_counter() - start)
        middle = float(np.median(taken[ticks // 4 :]))
        out[name] = {
            "tick_ms_median": middle * 1e3,
            "tick_ms_best": min(taken) * 1e3,
            "series_per_s_median": n / middle,
            "series_per_s_best": n / min(taken),
        }
    return out


MODELS = ("last", "seasonal naive", "damped as shipped", "damped", "holt_winters", "rls", "mix")


def shipped() -> damped.Config:
    """Return the settings that the engine has today."""
    return damped.Config(0.3, 0.05, 0.9, HORIZONS)


def simple(data: Panel) -> dict[str, Floats]:
    """Return the forecasts that have nothing to tune."""
    ticks = len(data.y)
    return {
        "last": play(last, last.Config(1.0, HORIZONS), data, ticks),
        "seasonal naive": play(seasonal, seasonal.Config(SEASON, HORIZONS), data, ticks),
        "damped as shipped": play(damped, shipped(), data, ticks),
    }


def tuned(data: Panel, budget: int) -> tuple[dict[str, Floats], ensemble.Config, dict[str, Any]]:
    """Tune every model on week 1; forecasts, the frozen ensemble, and what was chosen."""
    made, grid = simple(data), grids(budget)
    base = ensemble.configure(HORIZONS, JUDGED, SEASON)
    found: dict[str, Tuned] = {}
    for name, family in (("damped", damped), ("holt_winters", holt_winters), ("rls", rls)):
        found[name] = tune(family, grid[name], data)
        made[name] = found[name].forecasts
        print(f"  {name}: {found[name].tried} settings", flush=True)
    ticks = len(data.y)
    ewma, slow = play(last, base.ewma, data, ticks), play(holt_winters, base.slow, data, ticks)
    order = [ewma, made["seasonal naive"], made["damped"], made["holt_winters"], slow, made["rls"]]
    found["mix"] = tune(mix, grid["mix"], data, np.stack(order, axis=2))
    made["mix"] = found["mix"].forecasts
    config = base._replace(
        damped=found["damped"].frozen,
        fast=found["holt_winters"].frozen,
        rls=found["rls"].frozen,
        mix=found["mix"].frozen,
    )
    chosen = {name: {"tried": t.tried, "frozen": t.frozen._asdict()} for name, t in found.items()}
    return made, config, chosen


def frozen(data: Panel, config: ensemble.Config) -> dict[str, Floats]:
    """Forecast a source that nothing was tuned on."""
    made, ticks = simple(data), len(data.y)
    for name, family, settings in (
        ("damped", damped, config.damped),
        ("holt_winters", holt_winters, config.fast),
        ("rls", rls, config.rls),
    ):
        made[name] = play(family, settings, data, ticks)
    made["mix"] = play(ensemble, config, data, ticks).forecast
    return made


def show(title: str, rows: dict[str, Any]) -> None:
    """Print one table."""
    print(f"\n{title}")
    for name, row in rows.items():
        ratio = row["mase_60min_vs_last"]
        text = f"  {name:<22} MASE {row['mase_10min']:.3f} {row['mase_60min']:.3f}"
        if "pinball95_60min" in row:
            cover = " ".join(f"{100 * c:.1f}" for c in row["coverage"])
            text += f"  pinball95 {row['pinball95_60min']:.3f}  coverage {cover}"
        text += f"  60 min / last {ratio[0]:.3f} [{ratio[1]:.3f}, {ratio[2]:.3f}]"
        if row.get("mase_60min_vs_mstl"):
            versus = row["mase_60min_vs_mstl"]
            text += f"  / MSTL {versus[0]:.3f} [{versus[1]:.3f}, {versus[2]:.3f}]"
        elif "pinball95_vs_last" in row:
            loss = row["pinball95_vs_last"]
            text += f"  pinball / last {loss[0]:.3f} [{loss[1]:.3f}, {loss[2]:.3f}]"
        print(text, flush=True)


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark; return what `--json` writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the public data sets")
    parser.add_argument("--quick", action="store_true", help="few settings and origins: under a minute")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument(
        "--models", nargs="*", default=[*MODELS, *PEERS[:4]], help="rows to show; AutoARIMA is slow and off"
    )
    given = parser.parse_args(arguments)
    quick = bool(given.quick)
    budget, draws, etas = (2, 100, (0.1,)) if quick else (16, 1000, (0.02, 0.05, 0.1, 0.2))

    data = servegen(given.data)
    if quick:
        data = Panel(data.name, data.y[:, ::4], data.known[:, ::4])
    gaps = int((~data.known).any(axis=1).sum())
    print(f"{data.name}: {data.y.shape[1]} series, {gaps} gap windows; {budget} settings per model")
    made, config, chosen = tuned(data, budget)
    shown = {name: f for name, f in made.items() if name in {"last", *given.models}}
    report: dict[str, Any] = {"series": data.y.shape[1], "gap_windows": gaps, "tuned": chosen}
    report["servegen"] = judge(data, shown, etas, draws)
    show("servegen, week 2", report["servegen"])

    wanted = [name for name in PEERS if name in given.models]
    wanted = wanted[:1] if quick else wanted
    try:
        found = importlib.metadata.version("statsforecast")
    except importlib.metadata.PackageNotFoundError:
        report["peers"] = "skipped: statsforecast is not installed; install the dependency group 'bench'"
        print(f"\npeers {report['peers']}")
    else:
        rows, rate = judge_peers(data, shown, wanted, SEASON if quick else PEER_EVERY, draws)
        report["peers"], report["peer_fits_per_s"], report["statsforecast"] = rows, rate, found
        show(f"servegen, the same origins as statsforecast {found}", rows)

    report["held_out"] = {}
    for other in islice(held_out(given.data), 1 if quick else None):
        rows = judge(other, {n: f for n, f in frozen(other, config).items() if n in shown}, etas[:1], draws)
        report["held_out"][other.name] = rows
        show(f"{other.name}: {other.y.shape[1]} series, nothing tuned on it", rows)

    report["speed"] = speed(config, 20 if quick else 200)
    print(f"\nonline tick: {json.dumps(report['speed'])}")
    if given.json:
        given.json.write_text(json.dumps(report, indent=1))
    return report


if __name__ == "__main__":
    main()
