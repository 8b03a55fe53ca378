"""All experts and their mix as one family: values in, one point forecast and its weights out.

The experts differ in memory on purpose: averaging forecasts that err differently is where most of the gain
of a mix comes from. Each member is compiled by itself: in one program the compiler fuses across members, and
a series' last bits then depend on its slot.
"""

from typing import NamedTuple

import jax.numpy as jnp

from flyball_models._arrays import Input
from flyball_models.forecast import damped, holt_winters, last, mix, rls, seasonal

EXPERTS = ("last", "ewma", "seasonal", "damped", "holt_winters", "holt_winters_slow", "rls")
"""Names of the weights of `mix.Mixed`, in order."""


class Config(NamedTuple):
    """Settings of each expert; make them with `configure`, so that horizons and season agree."""

    ewma: last.Config
    seasonal: seasonal.Config
    damped: damped.Config
    fast: holt_winters.Config
    slow: holt_winters.Config
    rls: rls.Config
    mix: mix.Config


def configure(horizons: int, judged: tuple[int, ...], season: int) -> Config:
    """Return the default settings for horizons 1..`horizons`, weights and regressions at `judged`, all in ticks."""
    return Config(
        ewma=last.Config(0.5, horizons),
        seasonal=seasonal.Config(season, horizons),
        damped=damped.Config(0.6, 0.05, 0.8, horizons),
        fast=holt_winters.Config(0.6, 0.0, 0.1, 0.8, season, horizons),
        slow=holt_winters.Config(0.1, 0.0, 0.05, 0.8, season, horizons),
        rls=rls.Config(season=season, judged=judged, horizons=horizons),
        mix=mix.Config(len(EXPERTS) - 1, judged, horizons),
    )


DEFAULT = configure(12, (1, 6, 12), 144)


class State(NamedTuple):
    """State of each expert, and of the mix."""

    ewma: last.State
    seasonal: seasonal.State
    damped: damped.State
    fast: holt_winters.State
    slow: holt_winters.State
    rls: rls.State
    mix: mix.State


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series that have had no value."""
    return State(
        last.init(n, config.ewma),
        seasonal.init(n, config.seasonal),
        damped.init(n, config.damped),
        holt_winters.init(n, config.fast),
        holt_winters.init(n, config.slow),
        rls.init(n, config.rls),
        mix.init(n, config.mix),
    )


def resize(state: State, n: int, config: Config = DEFAULT) -> State:
    """Return the state with room for `n` series, its content kept."""
    return State(
        last.resize(state.ewma, n, config.ewma),
        seasonal.resize(state.seasonal, n, config.seasonal),
        damped.resize(state.damped, n, config.damped),
        holt_winters.resize(state.fast, n, config.fast),
        holt_winters.resize(state.slow, n, config.slow),
        rls.resize(state.rls, n, config.rls),
        mix.resize(state.mix, n, config.mix),
    )


def step(state: State, y: Input, mask: Input, config: Config = DEFAULT) -> tuple[State, mix.Mixed]:
    """Learn `y[N]` where `mask[N]`; return the mixed forecasts [N, H] and the weights of `EXPERTS` [N, J, K]."""
    ewma, f_ewma = last.step(state.ewma, y, mask, config.ewma)
    season, f_season = seasonal.step(state.seasonal, y, mask, config.seasonal)
    smooth, f_smooth = damped.step(state.damped, y, mask, config.damped)
    fast, f_fast = holt_winters.step(state.fast, y, mask, config.fast)
    slow, f_slow = holt_winters.step(state.slow, y, mask, config.slow)
    regression, f_rls = rls.step(state.rls, y, mask, config.rls)
    forecasts = jnp.stack([f_ewma, f_season, f_smooth, f_fast, f_slow, f_rls])
    weighted, mixed = mix.step(state.mix, y, mask, forecasts, config.mix)
    return State(ewma, season, smooth, fast, slow, regression, weighted), mixed
