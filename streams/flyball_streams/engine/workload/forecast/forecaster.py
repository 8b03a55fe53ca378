"""Forecasts of all workloads of one cell, one compiled step a tick."""

from collections.abc import Iterable, Mapping
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
GROWTH = 4.0
"""No quantile exceeds this many times the larger of forecast and last value."""


def nearest(levels: tuple[float, ...], level: float) -> int:
    """Index of the level nearest to the wanted one."""
    return min(range(len(levels)), key=lambda i: abs(levels[i] - level))


class Trust(NamedTuple):
    """A forecast is trusted after so many values, while the coverage of the levels ``above`` 0.5 is near to them.

    Those below are not judged: of a sparse series they are 0 and cover too much. ``levels`` are ``float32[above, 1]``.
    """

    above: NDArray[np.int64]
    levels: NDArray[np.float32]
    values: int
    tolerance: float


class TickForecasts:
    """Forecasts of all slots at one tick; copied to the host when they are read, which most of them never are.

    ``shares`` are the weights of the ensemble's ``experts`` at the lead time, ``float32[experts, slots]``.
    """

    def __init__(
        self, made: conformal.Bands, trust: Trust, experts: tuple[str, ...], shares: NDArray[np.float32]
    ) -> None:
        self.experts = experts
        self.shares = shares
        self._made, self._trust = made, trust

    @cached_property
    def logs(self) -> NDArray[np.float32]:
        """log(1 + quantile), ``float32[levels, horizons, slots]``."""
        return np.asarray(self._made.quantiles)

    @cached_property
    def coverage(self) -> NDArray[np.float32]:
        """Share of values at or below each quantile at the lead time, ``float32[levels, slots]``."""
        return np.asarray(self._made.coverage)

    @cached_property
    def trusted(self) -> NDArray[np.bool_]:
        """Which forecasts are trusted, ``bool[slots]``."""
        trust = self._trust
        off = np.abs(self.coverage[trust.above] - trust.levels).max(axis=0)
        return np.asarray((np.asarray(self._made.resolved) >= trust.values) & (off <= trust.tolerance), np.bool_)


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
        self.smooth = self.points.init(self.capacity)
        self.bands = conformal.init(self.capacity, self.conformal_config)
        self.latest: TickForecasts | None = None
        levels = np.array(config.levels, np.float32)
        above = np.flatnonzero(levels > 0.5)
        self.trust = Trust(above, levels[above, None], config.trust_after_ticks, config.trust_tolerance)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "slots": self.slots,
            "steps": self.steps,
            "seen": self.seen,
            "capacity": self.capacity,
            "points": arrays(self.smooth),
            "bands": arrays(self.bands),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.slots = dict(state["slots"])
        self.steps, self.seen = state["steps"], dict(state["seen"])
        self.capacity = state["capacity"]
        self.smooth = like(self.points.init(self.capacity), state["points"])
        self.bands = like(conformal.init(self.capacity, self.conformal_config), state["bands"])

    def begin(self, history: History) -> None:
        """Start from the states fitted to a history; only for a forecaster without data."""
        self.place(history.names)
        slots = [self.slots[name] for name in history.names]
        self.smooth = with_series(self.smooth, history.smooth, slots, history.slots)
        self.bands = with_series(self.bands, history.bands, slots, history.slots)

    def step(self, observed: Mapping[str, float]) -> dict[str, View]:
        """Update with the observations of a tick; return forecasts of the observed workloads, by name.

        A series without a value keeps its state; a tick without any value still passes.
        """
        self.place(observed)
        self.steps += 1
        self.seen.update(dict.fromkeys(observed, self.steps))
        y = np.zeros(self.capacity, np.float32)
        mask = np.zeros(self.capacity, bool)
        slots = [self.slots[name] for name in observed]
        y[slots], mask[slots] = list(observed.values()), True
        self.smooth, self.bands, made, weights = self.points.step(
            self.smooth, self.bands, y, mask, self.conformal_config
        )
        latest = self.latest = TickForecasts(made, self.trust, self.points.experts, weights)
        return {name: View(observed[name], slot, latest) for name, slot in sorted(zip(observed, slots, strict=True))}

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
            self.smooth = wiped(self.smooth, self.points.init(self.capacity), slots)
            self.bands = wiped(self.bands, conformal.init(self.capacity, self.conformal_config), slots)

    def place(self, names: Iterable[str]) -> None:
        """Give each workload a slot of its own."""
        new = sorted(name for name in names if name not in self.slots)
        if not new:
            return
        self.seen.update(dict.fromkeys(new, self.steps))
        self._make_room(new)

    def _make_room(self, names: list[str]) -> None:
        if len(self.slots) + len(names) > self.capacity:
            stale = [name for name, step in self.seen.items() if self.steps - step >= FORGET_STEPS]
            freed = [self.slots.pop(name) for name in stale[: len(names)]]
            for name in stale[: len(freed)]:
                del self.seen[name]
            self.smooth = wiped(self.smooth, self.points.init(self.capacity), freed)
            fresh = conformal.init(self.capacity, self.conformal_config)
            self.bands = wiped(self.bands, fresh, freed)
            self.slots.update(zip(names, freed, strict=False))
            names = names[len(freed) :]
        for name in names:
            self.slots[name] = len(self.slots)
        if len(self.slots) > self.capacity:
            self.capacity = bucket(len(self.slots))
            self.smooth = grow(self.smooth, self.capacity, self.points.init)
            self.bands = grow(self.bands, self.capacity, lambda n: conformal.init(n, self.conformal_config))
