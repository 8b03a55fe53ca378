"""Forecasts of all workloads of one cell, one compiled step for each tick."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models import bucket, grow
from flyball_models.forecast import conformal
from flyball_streams.engine.packing import arrays, like, wiped, with_series
from flyball_streams.engine.parameters import ForecastParameters
from flyball_streams.engine.workload.forecast.history import History
from flyball_streams.engine.workload.forecast.points import points

FORGET_STEPS = 3600
"""A series without a value for this many steps gives its slot to a new one."""
MOST_KEPT = 4
"""Most ticks whose observations wait until a forecast is read: a few steps in a row take half the time of the same
steps apart, and most forecasts are never read. Sizing reads the forecasts of every fifth second; those of the four
seconds before are made in the tick before it, so that the work is not all done in one tick."""
GROWTH = 4.0
"""No quantile exceeds this many times the larger of forecast and last value."""


def nearest(levels: tuple[float, ...], level: float) -> int:
    """Index of the level nearest to the wanted one."""
    return min(range(len(levels)), key=lambda i: abs(levels[i] - level))


class Trust(NamedTuple):
    """A forecast is trusted after ``values`` values, while the coverage of the levels above 0.5 is near to them.

    ``above`` are the indexes of these levels, ``levels`` the levels themselves, ``float32[above, 1]``. Lower levels are
    not judged: the quantiles of a sparse series are 0 there and cover too much.
    """

    above: NDArray[np.int64]
    levels: NDArray[np.float32]
    values: int
    tolerance: float


class TickForecasts:
    """Forecasts of all slots at one tick; made and copied to the host only when they are read: most never are.

    ``make`` makes them, with the forecasts of all ticks before, and leaves them in ``result``: the quantiles, and the
    weights of the ensemble's ``experts`` at the lead time.
    """

    def __init__(self, make: Callable[[], None], trust: Trust, experts: tuple[str, ...]) -> None:
        self.experts = experts
        self.result: tuple[conformal.Bands, NDArray[np.float32]] | None = None
        self._make, self._trust = make, trust

    @cached_property
    def logs(self) -> NDArray[np.float32]:
        """log(1 + quantile), ``float32[levels, horizons, slots]``."""
        return np.asarray(self._made.quantiles)

    @cached_property
    def coverage(self) -> NDArray[np.float32]:
        """Share of values at or below each quantile at the lead time, ``float32[levels, slots]``."""
        return np.asarray(self._made.coverage)

    @property
    def shares(self) -> NDArray[np.float32]:
        """Weights of the experts, ``float32[experts, slots]``."""
        return self._results()[1]

    @cached_property
    def trusted(self) -> NDArray[np.bool_]:
        """Which forecasts are trusted, ``bool[slots]``."""
        trust = self._trust
        off = np.abs(self.coverage[trust.above] - trust.levels).max(axis=0)
        return np.asarray((np.asarray(self._made.resolved) >= trust.values) & (off <= trust.tolerance), np.bool_)

    @property
    def _made(self) -> conformal.Bands:
        return self._results()[0]

    def _results(self) -> tuple[conformal.Bands, NDArray[np.float32]]:
        if self.result is None:
            self._make()
        assert self.result is not None
        return self.result


class View(NamedTuple):
    """Forecast of one workload at the end of a tick; computed from the arrays of all slots when it is read."""

    observed: float
    slot: int
    made: TickForecasts

    @property
    def trusted(self) -> bool:
        """Whether the quantiles have been right for long enough."""
        return bool(self.made.trusted[self.slot])

    @property
    def quantiles(self) -> NDArray[np.float32]:
        """Quantiles 1, 2, ... ticks ahead in the unit of the values, ``float32[horizons, levels]``."""
        return np.expm1(self.made.logs[:, :, self.slot].T)

    @property
    def coverage(self) -> NDArray[np.float32]:
        """Share of values at or below each quantile at the lead time, ``float32[levels]``; NaN before the first."""
        return self.made.coverage[:, self.slot]

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each expert by its name."""
        return dict(zip(self.made.experts, self.made.shares[:, self.slot].tolist(), strict=True))


class Forecaster:
    """Point forecasts and conformal calibration of every series of a cell."""

    def __init__(self, config: ForecastParameters, capacity: int = 0) -> None:
        self.config = config
        lead = min(config.lead_ticks, config.horizon_ticks)
        self.points = points(config)
        self.conformal_config = conformal.Config(
            horizons=config.horizon_ticks,
            lead=lead,
            levels=config.levels,
            eta=config.conformal_rate,
            growth=GROWTH,
        )
        self.slots: dict[str, int] = {}
        self.steps = 0
        self.seen: dict[str, int] = {}
        self.capacity = bucket(capacity)
        self._smooth = self.points.init(self.capacity)
        self._bands = conformal.init(self.capacity, self.conformal_config)
        self.latest: TickForecasts | None = None
        self._kept: list[tuple[NDArray[np.float32], NDArray[np.bool_], TickForecasts]] = []
        levels = np.array(config.levels, np.float32)
        above = np.flatnonzero(levels > 0.5)
        self.trust = Trust(above, levels[above, None], config.trust_after_ticks, config.trust_tolerance)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        points, bands = self.states()
        return {
            "slots": self.slots,
            "steps": self.steps,
            "seen": self.seen,
            "capacity": self.capacity,
            "points": arrays(points),
            "bands": arrays(bands),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.slots = dict(state["slots"])
        self.steps, self.seen = state["steps"], dict(state["seen"])
        self.capacity = state["capacity"]
        self._smooth = like(self.points.init(self.capacity), state["points"])
        self._bands = like(conformal.init(self.capacity, self.conformal_config), state["bands"])
        self._kept = []

    def states(self) -> tuple[Any, conformal.State]:
        """States of the point forecasts and of the quantiles around them, after all steps."""
        self._step_kept()
        return self._smooth, self._bands

    def begin(self, history: History) -> None:
        """Start from the states fitted to a history; only for a forecaster without data."""
        self.place(history.names)
        slots = [self.slots[name] for name in history.names]
        self._step_kept()
        self._smooth = with_series(self._smooth, history.smooth, slots, history.slots)
        self._bands = with_series(self._bands, history.bands, slots, history.slots)

    def step(self, observed: Mapping[str, float]) -> dict[str, View]:
        """Update with the observations of a tick; return forecasts of the observed workloads, by name.

        A series without a value keeps its state; a tick without any value still passes.
        """
        self.place(observed)
        self.steps += 1
        self.seen.update(dict.fromkeys(observed, self.steps))
        y = np.zeros(self.capacity, np.float32)
        mask = np.zeros(self.capacity, bool)
        slots = self.slots
        places = [slots[name] for name in observed]
        y[places], mask[places] = list(observed.values()), True
        latest = self.latest = TickForecasts(self._step_kept, self.trust, self.points.experts)
        self._kept.append((y, mask, latest))
        if len(self._kept) == MOST_KEPT:
            self._step_kept()
        return {name: View(observed[name], slots[name], latest) for name in sorted(observed)}

    def most(
        self, slots: NDArray[np.int64], level: int, first: NDArray[np.int64], last: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Largest forecast, at the level in this place, of some slots from `first` to `last` ticks ahead [J]."""
        assert self.latest is not None
        ahead = np.arange(1, self.config.horizon_ticks + 1)
        within = (ahead >= first[:, None]) & (ahead <= last[:, None])
        most = np.where(within, self.latest.logs[level][:, slots].T, -np.inf).max(axis=1)
        return np.asarray(np.expm1(most), np.float64)

    def skip(self, ticks: int) -> None:
        """Skip ticks without data: all open forecasts end, and the season advances."""
        ahead = self.config.horizon_ticks
        if ticks > ahead:
            ticks = ahead + (ticks - ahead) % max(7 * self.config.season_ticks, 1)
        for _ in range(ticks):
            self.step({})

    def restart(self, names: Iterable[str]) -> None:
        """Reset series: their unit has changed."""
        slots = [self.slots[name] for name in names if name in self.slots]
        if slots:
            self._step_kept()
            self._smooth = wiped(self._smooth, self.points.init(self.capacity), slots)
            self._bands = wiped(self._bands, conformal.init(self.capacity, self.conformal_config), slots)

    def place(self, names: Iterable[str]) -> None:
        """Give each workload a slot of its own."""
        new = sorted(name for name in names if name not in self.slots)
        if not new:
            return
        self.seen.update(dict.fromkeys(new, self.steps))
        self._make_room(new)

    def _step_kept(self) -> None:
        """Make the steps of the kept ticks, one after the other: results do not depend on when they are read."""
        kept, self._kept = self._kept, []
        for y, mask, forecasts in kept:
            self._smooth, self._bands, made, weights = self.points.step(
                self._smooth, self._bands, y, mask, self.conformal_config
            )
            forecasts.result = made, weights

    def _make_room(self, names: list[str]) -> None:
        self._step_kept()
        if len(self.slots) + len(names) > self.capacity:
            stale = [name for name, step in self.seen.items() if self.steps - step >= FORGET_STEPS]
            freed = [self.slots.pop(name) for name in stale[: len(names)]]
            for name in stale[: len(freed)]:
                del self.seen[name]
            self._smooth = wiped(self._smooth, self.points.init(self.capacity), freed)
            fresh = conformal.init(self.capacity, self.conformal_config)
            self._bands = wiped(self._bands, fresh, freed)
            self.slots.update(zip(names, freed, strict=False))
            names = names[len(freed) :]
        for name in names:
            self.slots[name] = len(self.slots)
        if len(self.slots) > self.capacity:
            self.capacity = bucket(len(self.slots))
            self._smooth = grow(self._smooth, self.capacity, self.points.init)
            self._bands = grow(self._bands, self.capacity, lambda n: conformal.init(n, self.conformal_config))
