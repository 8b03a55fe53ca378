"""Forecasts of demand, judged by rolling origin: our experts and their ensemble beside statsforecast.

    python bench/forecast.py [--quick] [--data DIR] [--json PATH] [--peer-python PYTHON] [--parts ...]

Ten-minute series, 10 and 60 minutes ahead. Settings are tuned on week 1 with the same number of settings per model, and
for each series on the other series only (leave-series-out, four folds); then frozen and judged on week 2. "ensemble" is
the one that ships, "ensemble tuned" has its learning rates tuned in that way. Gaps (total load below 0.15 of its
median) are missing to our models, interpolated from the past for statsforecast, and never scored. MASE and pinball loss
are in units of week 1's mean |y[t] - y[t-1]|. Coverage is the share of values below a quantile, ties by half. Intervals
are 95 % of a bootstrap over series and days, paired. Accuracy is 1 - WAPE, an hour ahead, series of equal weight;
unexpected days are the tenth of all series' days that are least like the day before.

statsforecast is run by `--peer-python`, an interpreter that has it (its pins differ from ours: `python -m venv`, `pip
install statsforecast`), or by this one if it has it; else its rows are left out, and it says so.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for `bench`

from bench.forecasts import peers
from bench.forecasts.panels import SEASON, WEEK, Floats, Panel, by_day, held_out, mean, servegen, unexpected
from bench.forecasts.tuning import HORIZONS, JUDGED, SHIPPED, WARM, errors, grids, leave_out, play, tune
from numpy.typing import NDArray

from flyball_models.forecast import conformal, damped, ensemble, last, pooled, rls, seasonal, weighting

LEVELS = (0.5, 0.9, 0.95, 0.99)
GROWTH = 16.0
SPEED_SERIES = 4096
PEER_EVERY = 65
"""Ticks between the origins at which statsforecast forecasts: all times of day come up."""
DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
PARTS = ("peers", "held-out", "minutes", "speed")
MODELS = (
    "last",
    "seasonal naive",
    "damped as shipped",
    "damped tuned",
    "regression tuned",
    "ensemble",
    "ensemble tuned",
)


def bands(data: Panel, forecasts: Floats, etas: Sequence[float]) -> Floats:
    """Return quantiles [T, S, H, Q]; the step is chosen on week 1 by pinball loss, leaving series out."""
    made: list[Floats] = []
    for eta in etas:
        config = conformal.Config(HORIZONS, HORIZONS, LEVELS, eta=eta, growth=GROWTH)
        made.append(play(conformal, config, data, len(data.y), forecasts).quantiles)
    chosen, _ = leave_out(np.stack([np.log(mean(pinball(data, q)[WARM:WEEK]) + 1e-6) for q in made]))
    out = np.empty_like(made[0])
    for g, quantiles in enumerate(made):
        out[:, chosen == g] = quantiles[:, chosen == g]
    return out


def pinball(data: Panel, quantiles: Floats) -> NDArray[np.float64]:
    """Return the scaled pinball loss of the 95 % quantile an hour ahead, by origin [T, S]."""
    level, h = 0.95, HORIZONS
    out = np.full(quantiles.shape[:2], np.nan)
    off = data.y[h:].astype(float) - quantiles[:-h, :, h - 1, LEVELS.index(level)]
    loss = np.maximum(level * off, (level - 1) * off) / data.scale
    out[:-h] = np.where(data.both(h), loss, np.nan)
    return out


def coverage(data: Panel, quantiles: Floats, h: int) -> list[float]:
    """Return the share of values below each quantile, the mean over series of what follows week 1.

    A value that equals the quantile counts half: sparse series are 0 most of the time, and so is their median.
    """
    values, q = data.y[h:, :, None], quantiles[:-h, :, h - 1]
    below = 0.5 * (values < q) + 0.5 * (values <= q)
    below[~data.both(h)] = np.nan
    return [float(mean(mean(below[WEEK:, :, q]))) for q in range(len(LEVELS))]


def accuracy(data: Panel, forecasts: Floats) -> dict[str, float]:
    """Return 1 - WAPE an hour ahead on regular and on unexpected days, each series in units of its mean."""
    h = HORIZONS
    scored = np.zeros(data.y.shape, np.bool_)
    scored[:-h] = data.both(h)
    unit = np.maximum(mean(np.where(data.known, data.y, np.nan)), 1e-9)
    ahead, off = (np.full(data.y.shape, np.nan) for _ in range(2))
    ahead[:-h] = data.y[h:] / unit
    off[:-h] = np.abs(data.y[h:] - forecasts[:-h, :, h - 1]) / unit
    events, out = unexpected(data), dict[str, float]()
    daily = {name: by_day(np.where(scored, x, np.nan)) for name, x in (("off", off), ("ahead", ahead))}
    for name, days in (("regular", ~events), ("unexpected", events)):
        out[name] = float(1 - np.nansum(daily["off"][days]) / np.nansum(daily["ahead"][days]))
    return out


def against(rows: dict[str, NDArray[np.float64]], base: str, draws: int) -> dict[str, dict[str, list[float]]]:
    """Return, per model, ratios to `base` of losses [S, D] with 95 % intervals, in three summaries over the series.

    Ratio of the medians, ratio of the means, and geometric mean of each series' ratio.
    """
    rng = np.random.default_rng(0)
    s, d = rows[base].shape

    def summaries(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[float]:
        logs = np.log(np.maximum(x, 1e-6)) - np.log(np.maximum(y, 1e-6))
        return [
            float(np.nanmedian(x) / np.nanmedian(y)),
            float(np.nanmean(x) / np.nanmean(y)),
            np.exp(np.nanmean(logs)),
        ]

    samples: dict[str, list[list[float]]] = {name: [] for name in rows}
    for _ in range(draws):
        series, days = (np.asarray(rng.choice(n, n), np.int64) for n in (s, d))
        drawn = {name: mean(x[series][:, days], axis=1) for name, x in rows.items()}
        for name in rows:
            samples[name].append(summaries(drawn[name], drawn[base]))
    out: dict[str, dict[str, list[float]]] = {}
    for name, x in rows.items():
        point = summaries(mean(x, axis=1), mean(rows[base], axis=1))
        low, high = np.nanquantile(np.array(samples[name]), (0.025, 0.975), axis=0).tolist()
        kinds = zip(("medians", "means", "geometric"), point, low, high, strict=True)
        out[name] = {kind: [float(value) for value in values] for kind, *values in kinds}
    return out


def judge(data: Panel, forecasts: dict[str, Floats], etas: Sequence[float], draws: int) -> dict[str, Any]:
    """Return the table of one panel: a row per model."""
    found = {name: errors(data, f) for name, f in forecasts.items()}
    quantiles = {name: bands(data, f, etas) for name, f in forecasts.items()}
    losses = {name: pinball(data, q) for name, q in quantiles.items()}
    near = against({n: by_day(e[0]) for n, e in found.items()}, "last", draws)
    far = against({n: by_day(e[1]) for n, e in found.items()}, "last", draws)
    loss = against({n: by_day(x) for n, x in losses.items()}, "last", draws)
    return {
        name: {
            "mase_10min": float(np.nanmedian(mean(found[name][0][WEEK:]))),
            "mase_60min": float(np.nanmedian(mean(found[name][1][WEEK:]))),
            "pinball95_60min": float(np.nanmedian(mean(losses[name][WEEK:]))),
            "coverage_10min": coverage(data, quantiles[name], 1),
            "coverage_60min": coverage(data, quantiles[name], HORIZONS),
            "accuracy_60min": accuracy(data, forecasts[name]),
            "mase_10min_vs_last": near[name],
            "mase_60min_vs_last": far[name],
            "pinball95_vs_last": loss[name],
        }
        for name in forecasts
    }


def judge_peers(
    data: Panel, forecasts: dict[str, Floats], python: str, names: Sequence[str], every: int, draws: int
) -> dict[str, Any]:
    """Return a row per peer and per model of ours on the same origins, and the peers' fits a second."""
    origins = [t for t in range(WEEK + SEASON // 4, len(data.y) - HORIZONS, every) if data.known[t].any()]
    ticks = np.arange(len(data.y))
    contexts: list[Floats] = []
    for t, s in product(origins, range(data.y.shape[1])):
        past = slice(t + 1 - WEEK, t + 1)
        known = data.known[past, s]
        contexts.append(np.interp(ticks[past], ticks[past][known], data.y[past, s][known]).astype(np.float32))
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.npz"), Path(folder, "out.npz")
        np.savez(source, contexts=np.stack(contexts), horizons=HORIZONS)
        one = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        command = [python, peers.__file__, str(source), str(target), *names]
        subprocess.run(command, check=True, env=os.environ | one)
        with np.load(target) as made:
            found = dict(made)
    table, chosen = dict(forecasts), np.zeros(len(data.y), np.bool_)
    chosen[origins] = True
    for name in names:
        out = np.full((len(data.y), data.y.shape[1], HORIZONS), np.nan, np.float32)
        out[origins] = found[name].reshape(len(origins), -1, HORIZONS)
        table[name] = out
    off = {n: [np.where(chosen[:, None], e, np.nan) for e in errors(data, f)] for n, f in table.items()}
    versus = against({n: by_day(e[1]) for n, e in off.items()}, names[0], draws)
    near = against({n: by_day(e[0]) for n, e in off.items()}, names[0], draws)
    return {
        "statsforecast": str(found["version"]),
        "origins": len(origins),
        "fits_per_s": {name: float(found[f"{name} per second"]) for name in names},
        "rows": {
            name: {
                "mase_10min": float(np.nanmedian(mean(e[0]))),
                "mase_60min": float(np.nanmedian(mean(e[1]))),
                "mase_10min_vs_mstl": near[name],
                "mase_60min_vs_mstl": versus[name],
            }
            for name, e in off.items()
        },
    }


def speed(config: ensemble.Config, ticks: int) -> dict[str, Any]:
    """Time the whole online tick of N series: forecasts, ensemble and bands, arrays from and to the host."""
    n = SPEED_SERIES
    y = np.random.default_rng(0).gamma(2, 30, (ticks, n)).astype(np.float32)
    known = np.ones(n, np.bool_)
    horizons = config.weights.horizons
    band = conformal.Config(horizons, horizons, LEVELS, growth=GROWTH)
    out: dict[str, Any] = {"series": n, "load_average": os.getloadavg()[0], "cpus": os.cpu_count()}
    smooth = damped.Config(horizons=horizons)
    for name, model, settings in (("damped", damped, smooth), ("ensemble", ensemble, config)):
        made: Any = model
        state, calibrated = made.init(n, settings), conformal.init(n, band)
        taken: list[float] = []
        spent: list[float] = []
        for row in y:
            start, cpu = time.perf_counter(), time.process_time()
            state, found = made.ahead(state, row, known, config=settings)
            point = found.logs if name == "ensemble" else found
            calibrated, result = conformal.around(calibrated, row, known, point, config=band)
            np.asarray(result.quantiles)
            taken.append(time.perf_counter() - start)
            spent.append(time.process_time() - cpu)
        middle = float(np.median(taken[ticks // 4 :]))
        out[name] = {
            "tick_ms_median": middle * 1e3,
            "tick_ms_best": min(taken) * 1e3,
            "series_per_s_median": n / middle,
            "series_per_s_best": n / min(taken),
            "series_per_cpu_s_median": n / float(np.median(spent[ticks // 4 :])),
        }
    return out


def simple(data: Panel) -> dict[str, Floats]:
    """Return the forecasts that have nothing to tune, the engine's settings among them."""
    ticks = len(data.y)
    return {
        "last": play(last, last.Config(horizons=HORIZONS), data, ticks)[..., 0],
        "seasonal naive": play(seasonal, seasonal.Config(SEASON, HORIZONS), data, ticks),
        "damped as shipped": play(damped, SHIPPED, data, ticks),
    }


def experts(data: Panel, config: ensemble.Config) -> Floats:
    """Return the forecasts of all experts besides the last value [T, S, K - 1, H]."""
    found: list[NDArray[Any]] = []
    for member in config.members:
        made = play(member.model, member.config, data, len(data.y))
        found += [made] if made.ndim == 3 else list(np.moveaxis(made, -1, 0))
    own = np.stack(found, axis=2)
    return np.concatenate([own, play(pooled, config.pooled, data, len(data.y), own)[:, :, None]], axis=2)


def everything(data: Panel, budget: int) -> tuple[dict[str, Floats], dict[str, Any], NDArray[np.float64]]:
    """Tune every model on week 1; return forecasts, what was chosen, and the weights [S, J, K] in week 2."""
    config = ensemble.configure(HORIZONS, JUDGED, SEASON)
    made, grid = simple(data), grids(budget, config.weights.experts)
    forecasts = experts(data, config)
    found = {
        "damped tuned": tune(damped, grid["damped"], data),
        "regression tuned": tune(rls, grid["regression"], data),
        "ensemble tuned": tune(weighting, grid["ensemble"], data, forecasts),
    }
    out = play(weighting, config.weights, data, len(data.y), forecasts)
    made |= {name: tuned.forecasts for name, tuned in found.items()}
    made["ensemble"] = out.forecast
    chosen = {name: {"tried": t.tried, "frozen": t.frozen._asdict()} for name, t in found.items()}
    return {name: made[name] for name in MODELS}, chosen, mean(out.weights[WEEK:])


def untuned(data: Panel) -> dict[str, Floats]:
    """Forecast a source that nothing is tuned on."""
    config = ensemble.configure(HORIZONS, JUDGED, SEASON)
    return simple(data) | {
        "ensemble": play(weighting, config.weights, data, len(data.y), experts(data, config)).forecast
    }


def minutes(data: Panel) -> dict[str, list[float]]:
    """Return the geometric mean over series of the error over the last value's, with the engine's horizons.

    The damped smoothing as shipped, and the ensemble with it as one of few experts: none knows a season.
    """
    horizons, judged = 60, (1, 10, 60)
    smooth = damped.Config(0.3, 0.05, 0.9, horizons)
    config = ensemble.configure(horizons, judged, 0, smooth)
    combined = weighting.Config(config.weights.experts, judged, horizons)
    point = play(weighting, combined, data, len(data.y), experts(data, config)).forecast
    out: dict[str, list[float]] = {}
    for name, forecast in (("damped", play(damped, smooth, data, len(data.y))), ("ensemble", point)):
        out[name] = []
        for h in judged:
            scored = data.both(h)
            flat = mean(np.where(scored, np.abs(data.y[h:] - data.y[:-h]), np.nan)[WEEK:])
            off = mean(np.where(scored, np.abs(data.y[h:] - forecast[:-h, :, h - 1]), np.nan)[WEEK:])
            out[name].append(float(np.exp(np.nanmean(np.log(np.maximum(off, 1e-9) / np.maximum(flat, 1e-9))))))
    return out


def show(title: str, rows: dict[str, Any]) -> None:
    """Print one table."""
    print(f"\n{title}")
    for name, row in rows.items():
        text = f"  {name:<22} MASE {row['mase_10min']:.3f} {row['mase_60min']:.3f}"
        if "pinball95_60min" in row:
            for h in ("10", "60"):
                text += f" | coverage {h} min " + " ".join(f"{100 * c:.1f}" for c in row[f"coverage_{h}min"])
            accurate = row["accuracy_60min"]
            text += f" | 1 - WAPE {100 * accurate['regular']:.1f} {100 * accurate['unexpected']:.1f}"
        print(text)
        for key in (key for key in row if "_vs_" in key):
            parts = (f"{kind} {v:.3f} [{a:.3f}, {b:.3f}]" for kind, (v, a, b) in row[key].items())
            print(f"      {key:<20} " + "  ".join(parts), flush=True)


def peer_python(given: str | None) -> str | None:
    """Return the interpreter that has statsforecast, if any is known."""
    if given is not None:
        return given
    return sys.executable if importlib.util.find_spec("statsforecast") is not None else None


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the benchmark; return what `--json` writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the public data sets")
    parser.add_argument("--quick", action="store_true", help="few settings, series and origins: under a minute")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--peer-python", help="interpreter that has statsforecast")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to show besides servegen")
    parser.add_argument("--peers", nargs="+", choices=peers.NAMES, default=peers.NAMES, help="those to run")
    parser.add_argument("--settings", type=int, default=16, help="how many are tried for each tuned model")
    given = parser.parse_args(arguments)
    if not given.data.is_dir():
        parser.error(f"{given.data} is no folder; name that of the public data with --data")
    quick, parts = bool(given.quick), set(given.parts)
    budget = 1 if quick else given.settings
    draws, etas = (100, (0.1,)) if quick else (1000, (0.05, 0.1, 0.2))

    data = servegen(given.data)
    if quick:
        data = Panel(data.name, data.y[:, ::4], data.known[:, ::4])
    gaps = int((~data.known).any(axis=1).sum())
    print(f"{data.name}: {data.y.shape[1]} series, {gaps} gap windows; {budget} settings per model", flush=True)
    made, chosen, weights = everything(data, budget)
    config = ensemble.configure(HORIZONS, JUDGED, SEASON)
    report: dict[str, Any] = {"series": data.y.shape[1], "gap_windows": gaps, "tuned": chosen}
    report["weights_60min"] = dict(zip(config.experts, mean(weights)[-1].tolist(), strict=True))
    report["servegen"] = judge(data, made, etas, draws)
    show("servegen, week 2", report["servegen"])
    print("  weights an hour ahead: " + ", ".join(f"{k} {v:.2f}" for k, v in report["weights_60min"].items()))

    python = peer_python(given.peer_python)
    if "peers" not in parts:
        pass
    elif python is None:
        report["peers"] = "left out: no interpreter has statsforecast; pass --peer-python"
        print(f"\npeers {report['peers']}")
    else:
        names, every = (given.peers[:1], SEASON) if quick else (given.peers, PEER_EVERY)
        report["peers"] = judge_peers(data, made, python, names, every, draws)
        show(f"servegen, {report['peers']['origins']} origins, statsforecast too", report["peers"]["rows"])
        print(f"  fits a second, one thread: {json.dumps(report['peers']['fits_per_s'])}")

    report["held_out"] = {}
    for other in held_out(given.data) if "held-out" in parts and not quick else ():
        rows = judge(other, untuned(other), etas[1:2], draws)
        report["held_out"][other.name] = rows
        show(f"{other.name}: {other.y.shape[1]} series, nothing tuned on it", rows)

    if "minutes" in parts and not quick:
        report["minutes"] = {other.name: minutes(other) for other in held_out(given.data, "1m", 10 * WEEK)}
        print("\nmean error over the last value's, series of one minute, no season, 1, 10 and 60 minutes ahead")
        for name, row in report["minutes"].items():
            print(f"  {name:<22} " + "  ".join(f"{k} " + " ".join(f"{v:.3f}" for v in x) for k, x in row.items()))

    if "speed" in parts:
        report["speed"] = speed(config, 20 if quick else 200)
        print(f"\nonline tick: {json.dumps(report['speed'])}", flush=True)
    if given.json:
        given.json.write_text(json.dumps(report, indent=1))
    return report


if __name__ == "__main__":
    main()
