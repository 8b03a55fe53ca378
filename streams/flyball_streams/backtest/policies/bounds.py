"""Bounds of the future need that policies use: from the engine's forecast, a schedule, or the true future."""

import math
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from flyball_models.forecast import conformal, damped
from flyball_models.forecast._scale import as_logs, in_units
from flyball_streams.backtest.demands.demand import DAY_S, WEEK_S, Demand, Floats
from flyball_streams.backtest.kernel import Bounds
from flyball_streams.engine.parameters import ForecastParameters, SizingParameters
from flyball_streams.engine.workload.forecast.forecaster import GROWTH

MINUTE_S = 60
HOUR_MINUTES = 60
TICK_S = 15
"""Tick of the engine in a backtest: the importers' usual scrape interval."""
LEVELS = (0.5, 0.65, 0.75, 0.85, 0.9, 0.95, 0.98, 0.99)


def windows(y: Floats, first: int, last: int) -> Floats:
    """Maximum of y[k + first .. k + last] for each k, float64 [len(y)]; beyond its end, y keeps its last value."""
    padded = np.concatenate([y, np.full(last + 1, y[-1])])
    view = np.lib.stride_tricks.sliding_window_view(padded[first:], last - first + 1)
    return np.asarray(view[: len(y)].max(axis=1))


def lead_minutes(cold_start_s: float) -> int:
    """Whole minutes until a replica ordered now is ready."""
    return max(1, math.ceil(cold_start_s / MINUTE_S))


def used_next(y: Floats) -> Floats:
    """Shift values by a minute: what is known at the end of a minute is used in the next one; NaN in the first."""
    return np.concatenate([[np.nan], y[:-1]])


def oracle(need: Floats, cold_start_s: float, hold_minutes: int) -> Bounds:
    """The band on the true need of the coming minutes; `need` is the need of each minute."""
    lead = lead_minutes(cold_start_s)
    upper, lower = windows(need, lead, lead + 1), windows(need, 0, lead + hold_minutes)
    return Bounds(MINUTE_S, used_next(upper), used_next(lower), used_next(need))


def schedule(need: Floats, cold_start_s: float) -> Bounds:
    """The need of the same hour a week ago (a day ago in the first week; the current hour on the first day).

    The need of an hour is the 0.99 quantile of its minutes; the bounds are the maximum over the cold start ahead.
    """
    hours = max(1, math.ceil(len(need) / HOUR_MINUTES))
    hourly = [np.quantile(need[h * HOUR_MINUTES : (h + 1) * HOUR_MINUTES], 0.99) for h in range(hours)]
    week, day = WEEK_S // 3600, DAY_S // 3600
    before = np.array([hourly[h - week if h >= week else h - day if h >= day else max(0, h - 1)] for h in range(hours)])
    planned = windows(np.repeat(before, HOUR_MINUTES)[: len(need)], 0, lead_minutes(cold_start_s))
    return Bounds(MINUTE_S, planned, planned, need)


class Engine:
    """Quantiles of work by the engine's own forecaster, for several demands of one length at once.

    ``upper[L]`` is float32 [levels, ticks, demands]: the maximum of each quantile from the cold start L to the hold
    after it, NaN if the forecast is not trusted; ``lower[L]`` is float32 [ticks, demands], from now on. ``present`` is
    the mean work of each tick. Everything is known at the end of a tick.
    """

    def __init__(
        self,
        demands: list[Demand],
        cold_starts_s: tuple[float, ...],
        forecast: ForecastParameters | None = None,
        sizing: SizingParameters | None = None,
    ) -> None:
        forecast, sizing = forecast or ForecastParameters(), sizing or SizingParameters()
        ticks = min(len(d.work) for d in demands) // TICK_S
        self.present = np.stack([d.work[: ticks * TICK_S].reshape(ticks, TICK_S).mean(axis=1) for d in demands], axis=1)
        levels = tuple(sorted({*LEVELS, *(x for x in forecast.levels if x < LEVELS[0])}))
        self._first = len(levels) - len(LEVELS)
        settings = _settings(forecast, sizing, levels, cold_starts_s)
        found = _compiled_scan(self.present.astype(np.float32), settings=settings)
        self.upper = {
            x: _host(up)[:, :, self._first :].transpose(2, 0, 1) for x, up in zip(cold_starts_s, found[0], strict=True)
        }
        self.lower = {x: _host(down) for x, down in zip(cold_starts_s, found[1], strict=True)}

    def bounds(self, demand: int, cold_start_s: float, level: int) -> Bounds:
        """Bounds for one demand (by index), cold start and level (by index in :data:`LEVELS`)."""
        up = self.upper[cold_start_s][level, :, demand].astype(np.float64)
        down = self.lower[cold_start_s][:, demand].astype(np.float64)
        return Bounds(TICK_S, used_next(up), used_next(down), used_next(self.present[:, demand]))


def _host(x: jax.Array) -> NDArray[np.float32]:
    return np.asarray(x)


class _Forecast(NamedTuple):
    """Static arguments of the compiled loop: the models' settings, and for each cold start its range of ticks ahead."""

    smooth: damped.Config
    bands: conformal.Config
    spans: tuple[tuple[int, int], ...]
    down: int
    trust_after: int
    trust_tolerance: float


def _settings(
    forecast: ForecastParameters, sizing: SizingParameters, levels: tuple[float, ...], cold_starts_s: tuple[float, ...]
) -> _Forecast:
    horizons = forecast.horizon_ticks
    spans: list[tuple[int, int]] = []
    for cold_start_s in cold_starts_s:
        lead = max(1, min(math.ceil(cold_start_s / TICK_S), horizons))
        spans.append((lead, min(lead + math.ceil(sizing.reversal_cooldown_s / TICK_S), horizons)))
    return _Forecast(
        damped.Config(forecast.level_rate, forecast.trend_rate, forecast.damping, horizons),
        conformal.Config(horizons, min(forecast.lead_ticks, horizons), levels, forecast.conformal_rate, growth=GROWTH),
        tuple(spans),
        min(range(len(levels)), key=lambda i: abs(levels[i] - sizing.down_level)),
        forecast.trust_after_ticks,
        forecast.trust_tolerance,
    )


def _scan(y: jax.Array, settings: _Forecast) -> tuple[list[jax.Array], list[jax.Array]]:
    """Run the forecaster's two models over all ticks: the same calls as in its step, in one compiled loop."""
    levels = np.array(settings.bands.levels, np.float32)
    everyone = np.ones(y.shape[1], bool)

    def tick(state: _State, now: jax.Array) -> tuple[_State, tuple[list[jax.Array], list[jax.Array]]]:
        smooth, point = damped.ahead(state[0], now, everyone, config=settings.smooth)
        bands, found = conformal.around(state[1], now, everyone, as_logs(in_units(point)), config=settings.bands)
        quantiles = in_units(found.quantiles)
        off = jnp.where(levels > 0.5, jnp.abs(found.coverage.T - levels), 0.0).max(axis=1)
        trusted = (found.resolved >= settings.trust_after) & (off <= settings.trust_tolerance)
        up = [quantiles[:, lead - 1 : last].max(axis=1) for lead, last in settings.spans]
        down = [quantiles[:, :last, settings.down].max(axis=1) for _, last in settings.spans]
        bounds = [jnp.where(trusted[:, None], x, jnp.nan) for x in up], [jnp.where(trusted, x, jnp.nan) for x in down]
        return (smooth, bands), bounds

    start = (damped.init(y.shape[1], settings.smooth), conformal.init(y.shape[1], settings.bands))
    _, bounds = jax.lax.scan(tick, start, y)  # pyright: ignore[reportUnknownMemberType]
    return bounds


_State = tuple[damped.State, conformal.State]
_compiled_scan = cast("Any", jax).jit(_scan, static_argnames=("settings",))
