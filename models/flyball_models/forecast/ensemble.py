"""An ensemble of experts as one model: values in, one point forecast and the weights out.

The experts differ in memory on purpose: most of the gain of an ensemble comes from averaging forecasts with different
errors. Each member is compiled by itself: in one program the compiler fuses across members, and a series' last bits
then depend on its slot.
"""

from typing import Any, NamedTuple, Protocol

from flyball_models._arrays import Array, Input, as_array
from flyball_models.forecast import (
    damped,
    holt_winters,
    last,
    multi_seasonal,
    pooled,
    profile,
    rls,
    seasonal,
    weighting,
)

_AVERAGES = {"ewma": 0.5, "ewma_slow": 0.05, "ewma_slowest": 0.01}
_LAGGED = (*_AVERAGES, "yesterday", "last_week", "days")
"""The experts that are features of the one linear model."""


class Expert(Protocol):
    """Interface of a module of experts."""

    def init(self, n: int, config: Any) -> Any:
        """Return the state of `n` series."""
        ...

    def ahead(self, state: Any, y: Input, mask: Input, config: Any) -> tuple[Any, Array]:
        """Update with `y[N]` where `mask[N]`; return forecasts as log(1 + y) [H, N], or [G, H or 1, N] of G experts."""
        ...


class Member(NamedTuple):
    """A model and its settings, with the names of its experts."""

    names: tuple[str, ...]
    model: Expert
    config: Any


class Config(NamedTuple):
    """The members in the order of their weights, then the model pooled over all series, and the weighting.

    Make it with `configure`.
    """

    members: tuple[Member, ...]
    pooled: pooled.Config
    weights: weighting.Config

    @property
    def experts(self) -> tuple[str, ...]:
        """Names of the weights of `weighting.Blend`, in order."""
        return ("last", *(name for member in self.members for name in member.names), "pooled")


def configure(
    horizons: int, judged: tuple[int, ...], season: int = 0, smoothing: damped.Config | None = None
) -> Config:
    """Return the settings for horizons 1..`horizons`, weights and regressions at `judged`, all in ticks.

    A `season` of 0 leaves out the experts that need one; `smoothing` replaces the settings of the damped model.
    """
    smoothing = smoothing or damped.Config(0.6, 0.05, 0.8, horizons)
    members = [
        Member(tuple(_AVERAGES), last, last.Config(tuple(_AVERAGES.values()), horizons)),
        Member(("damped",), damped, smoothing),
    ]
    if season:
        members += [
            Member(("seasonal",), seasonal, seasonal.Config(season, horizons)),
            Member(("holt_winters",), holt_winters, holt_winters.Config(0.6, 0.0, 0.1, 0.8, season, horizons)),
            Member(("holt_winters_slow",), holt_winters, holt_winters.Config(0.1, 0.0, 0.05, 0.8, season, horizons)),
            Member(("day_and_week",), multi_seasonal, multi_seasonal.Config(season, horizons=horizons)),
            Member(("yesterday", "last_week", "days"), profile, profile.Config(season, horizons=horizons)),
            Member(
                ("regression",),
                rls,
                rls.Config(season, judged=judged, horizons=horizons, forgetting=0.998, prior=0.01, clip=1.0),
            ),
        ]
    names = [name for member in members for name in member.names]
    uses = tuple(k for k, name in enumerate(names) if name in _LAGGED)
    return Config(
        tuple(members),
        pooled.Config(uses, season, judged, horizons),
        weighting.Config(len(names) + 1, judged, horizons),
    )


DEFAULT = configure(12, (1, 6, 12), 144)


class State(NamedTuple):
    """State of each member, of the pooled model, and of the weighting."""

    members: tuple[Any, ...]
    pooled: pooled.State
    weights: weighting.State


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series that have had no value."""
    members = tuple(m.model.init(n, m.config) for m in config.members)
    return State(members, pooled.init(n, config.pooled), weighting.init(n, config.weights))


def ahead(state: State, y: Input, mask: Input, config: Config) -> tuple[State, weighting.Blend]:
    """Update with `y[N]` where `mask[N]`; return the blended forecasts and the weights of the experts."""
    y, mask = as_array(y), as_array(mask)  # to the device once, not for each member
    states: list[Any] = []
    parts: list[Array] = []
    for member, have in zip(config.members, state.members, strict=True):
        updated, logs = member.model.ahead(have, y, mask, config=member.config)
        states.append(updated)
        parts.append(logs)
    shared, logs = pooled.ahead(state.pooled, y, mask, parts, config.pooled)
    weights_state, blend = weighting.combine(state.weights, y, mask, (*parts, logs), config=config.weights)
    return State(tuple(states), shared, weights_state), blend
