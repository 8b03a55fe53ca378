"""The configured point forecast behind one interface: a smoothing, or an ensemble of experts."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.forecast import banded, conformal, damped, ensemble, history
from flyball_streams.engine.parameters import ForecastParameters


class Step(NamedTuple):
    """New states of the point forecasts and of the quantiles around them, with the results.

    ``made`` has the quantiles as log(1 + y) [Q, H, N] and the coverage [Q, N]; ``weights`` [K, N] are the experts'
    weights at the lead time.
    """

    state: Any
    bands: conformal.State
    made: conformal.Bands
    weights: NDArray[np.float32]


class Damped:
    """Damped exponential smoothing by the configured rates."""

    experts: tuple[str, ...] = ()

    def __init__(self, config: ForecastParameters) -> None:
        self.settings = damped.Config(config.level_rate, config.trend_rate, config.damping, config.horizon_ticks)

    def init(self, n: int) -> Any:
        """Return the state of `n` series without values."""
        return damped.init(n, self.settings)

    def step(
        self, state: Any, bands: conformal.State, y: NDArray[np.float32], mask: NDArray[np.bool_], c: conformal.Config
    ) -> Step:
        """Update with `y[N]` where `mask[N]`, and the quantiles around it, in one call; there are no weights."""
        (state, bands), made = banded.around(
            banded.State(state, bands), y, mask, config=banded.Config(self.settings, c)
        )
        return Step(state, bands, made, np.zeros((0, len(y)), np.float32))

    def fitted(self, state: Any, y: NDArray[np.float32]) -> Any:
        """Return the state after y [T, S], NaN where missing, level and trend fitted."""
        return history.fitted_damped(y, state, self.settings)


class Ensemble:
    """The ensemble of all experts; the smoothing by the configured rates is one of them."""

    def __init__(self, config: ForecastParameters) -> None:
        lead = min(config.lead_ticks, config.horizon_ticks)
        judged = tuple(sorted({1, lead, config.horizon_ticks}))
        self.row = judged.index(lead)
        smoothing = Damped(config).settings
        self.settings = ensemble.configure(config.horizon_ticks, judged, config.season_ticks, smoothing)
        self.experts = self.settings.experts

    def init(self, n: int) -> Any:
        """Return the state of `n` series without values."""
        return ensemble.init(n, self.settings)

    def step(
        self, state: Any, bands: conformal.State, y: NDArray[np.float32], mask: NDArray[np.bool_], c: conformal.Config
    ) -> Step:
        """Update with `y[N]` where `mask[N]`, and the quantiles around it."""
        state, combined = ensemble.ahead(state, y, mask, self.settings)
        bands, made = conformal.around(bands, y, mask, combined.logs, config=c)
        return Step(state, bands, made, np.asarray(combined.weights)[:, self.row])

    def fitted(self, state: Any, y: NDArray[np.float32]) -> Any:
        """Return the state after y [T, S], NaN where missing, the smoothings fitted."""
        return history.fitted(y, state, self.settings)


Points = Damped | Ensemble
"""A stateless point forecast: each step takes a state and returns the new one."""


def points(config: ForecastParameters) -> Points:
    """Return the point forecasts that the configuration names."""
    return Ensemble(config) if config.model == "ensemble" else Damped(config)
