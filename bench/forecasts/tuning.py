"""Runs a forecaster over a panel, and chooses its settings on the first week, leaving series out."""

import functools
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from bench.forecasts import steps
from bench.forecasts.panels import SEASON, WEEK, Floats, Panel, mean
from numpy.typing import NDArray

from flyball_models import bucket
from flyball_models.forecast import damped, ensemble, pooled, rls, weighting

HORIZONS = 6
JUDGED = (1, 6)
WARM = 2 * SEASON
"""Days 1 and 2 of week 1 only warm up: a setting is scored on days 3 to 7."""
SHIPPED = damped.Config(0.3, 0.05, 0.9, HORIZONS)
FOLDS = 4


@functools.cache
def over_time(model: Any, config: Any) -> Callable[..., Any]:
    """Return the step of a model, run over all ticks of its inputs in one compiled loop."""

    def tick(state: Any, row: Any) -> tuple[Any, Any]:
        return steps.step(model, state, *row, config=config)

    def run(state: Any, rows: Any) -> Any:
        return jax.lax.scan(tick, state, rows)[1]

    return cast("Callable[..., Any]", jax.jit(run))  # pyright: ignore[reportUnknownMemberType]


def play(model: Any, config: Any, data: Panel, ticks: int, *inputs: Floats) -> Any:
    """Run a model over the first ticks; `inputs` [T, S, ...] are further arguments of its step."""
    s = data.y.shape[1]
    n = bucket(s)

    def padded(x: NDArray[Any], value: float) -> NDArray[Any]:
        return np.pad(x[:ticks], [(0, 0), (0, n - s), *[(0, 0)] * (x.ndim - 2)], constant_values=value)

    arrays: list[Any] = [padded(data.y, 0.0), padded(data.known, False), *(padded(x, np.nan) for x in inputs)]
    if model is weighting:
        arrays[2] = arrays[2].transpose(0, 2, 1, 3)  # [T, S, K, H] to [T, K, S, H]
    elif model is pooled:
        arrays[2] = (np.log1p(arrays[2]).transpose(0, 2, 3, 1),)  # to [T, K, H, S]

    def cut(leaf: Any) -> NDArray[Any]:
        return np.asarray(leaf)[:, :s]

    return jax.tree.map(cut, over_time(model, config)(model.init(n, config), arrays))


def errors(data: Panel, forecasts: Floats) -> list[NDArray[np.float64]]:
    """Return |y - y^| [T, S] in units of the scale at each judged horizon, by origin; NaN where one is missing."""
    rows: list[NDArray[np.float64]] = []
    for h in JUDGED:
        row = np.full(forecasts.shape[:2], np.nan)
        t = len(forecasts)
        error = np.abs(data.y[h:t].astype(float) - forecasts[: t - h, :, h - 1]) / data.scale
        row[: t - h] = np.where(data.both(h)[: t - h], error, np.nan)
        rows.append(row)
    return rows


def leave_out(objective: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """Return, of objective [G, S], the best setting for each series judged by the other folds, and by all."""
    fold = np.arange(objective.shape[1], dtype=np.int64) % np.int64(FOLDS)
    best: list[int] = [int(np.argmin(mean(objective[:, fold != f], axis=1))) for f in range(FOLDS)]
    return np.array(best)[fold], int(np.argmin(mean(objective, axis=1)))


class Tuned(NamedTuple):
    """Forecasts [T, S, H] with leave-series-out settings; the setting that all series choose; how many were tried."""

    forecasts: Floats
    frozen: Any
    tried: int


def tune(model: Any, grid: Sequence[Any], data: Panel, *inputs: Floats) -> Tuned:
    """Choose settings on week 1 by the mean log MASE over both horizons; forecast both weeks with them."""

    def forecast(config: Any, ticks: int) -> Floats:
        out = play(model, config, data, ticks, *inputs)
        return cast("Floats", out.forecast if model is weighting else out)

    if len(grid) == 1:
        return Tuned(forecast(grid[0], len(data.y)), grid[0], 1)
    objective: list[NDArray[np.float64]] = []
    for config in grid:
        found = errors(data, forecast(config, WEEK))
        objective.append(np.mean([np.log(mean(e[WARM:]) + 1e-6) for e in found], axis=0))
    chosen, overall = leave_out(np.stack(objective))
    out = np.full((len(data.y), data.y.shape[1], HORIZONS), np.nan, np.float32)
    for g in np.unique(chosen):
        out[:, chosen == g] = forecast(grid[g], len(data.y))[:, chosen == g]
    return Tuned(out, grid[overall], len(grid))


def grids(budget: int, experts: int) -> dict[str, list[Any]]:
    """Return the settings to try, as many for each model."""
    h = HORIZONS
    flat = [damped.Config(a, b, p, h) for a, b, p in product((0.1, 0.3, 0.6, 0.9), (0.0, 0.1), (0.8, 0.95))]
    regression = [
        rls.Config(season=SEASON, judged=JUDGED, horizons=h, forgetting=f, prior=p, clip=c)
        for f, p, c in product((0.995, 0.998, 0.9995, 0.9999), (0.003, 0.03), (1.0, 3.0))
    ]
    ensembles = [
        weighting.Config(experts, JUDGED, h, eta, share, trust_eta=trust)
        for eta, share, trust in product((0.05, 0.1, 0.2, 0.4), (0.001, 0.01), (0.03, 0.3))
    ]
    every: dict[str, Sequence[Any]] = {"damped": flat, "regression": regression, "ensemble": ensembles}
    if budget == 1:  # those that ship: none is compiled for a second time
        shipped = ensemble.configure(h, JUDGED, SEASON)
        (regressed,) = (member.config for member in shipped.members if member.model is rls)
        return {"damped": [SHIPPED], "regression": [regressed], "ensemble": [shipped.weights]}
    return {
        name: [g[i] for i in np.unique(np.linspace(0, len(g) - 1, budget).astype(int))] for name, g in every.items()
    }
