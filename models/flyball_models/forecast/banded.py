"""Damped smoothing and the quantiles around it as one program: one call per tick, with the same bits as two calls."""

from typing import NamedTuple

from flyball_models._arrays import Input
from flyball_models._compile import apart, compiled_step
from flyball_models.forecast import conformal, damped


class State(NamedTuple):
    """The states of both models."""

    point: damped.State
    bands: conformal.State


class Config(NamedTuple):
    """Settings of both, for the same horizons."""

    point: damped.Config
    bands: conformal.Config


def _around(state: State, y: Input, mask: Input, config: Config) -> tuple[State, conformal.Bands]:
    point, logs = damped.ahead(state.point, y, mask, config=config.point)
    point, logs = apart((point, logs))
    bands, made = conformal.around(state.bands, y, mask, logs, config=config.bands)
    return State(point, bands), made


around = compiled_step(_around)
"""Update with `y[N]` where `mask[N]`; quantiles [Q, H, N] as log(1 + y), and coverage [Q, N]."""
