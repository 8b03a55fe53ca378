"""Record-ratio anomaly score: how far a residual exceeds the three largest ones before it.

Four residuals e of a series with value v:

    level       v - slow          slow: mean with rate max(level_rate, 1 / (seen + 1))
    difference  v - previous
    shift       fast - slow       fast: mean with rate fast_rate
    season      v - s[bin]        s: mean per time-of-day bin, used after two visits

Each keeps its three largest past |e|, multiplied by `decay` per step, and r = |e| / mean of the three. The
score is s = max of weight * r, mapped to 1 - 1 / (1 + s). After a score is emitted, another one within
`hold` values is emitted only if larger. Scale-free, no distribution assumed; only past and present are used.
The method is ours.

Shapes: N series, B bins. The series axis is the last one, so that a tick touches contiguous rows and one
bin only. The bins stay on the host: a compiled step would copy all of them to change one.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from flyball_models._arrays import Array, Input, as_array, counts, full
from flyball_models._compile import compiled_step
from flyball_models._padding import grow

_RESIDUALS = 4
_RECORDS = 3
_SD_PER_MEAN_ABS = 1.2533
"""sqrt(pi / 2): standard deviation of a normal residual per mean absolute residual."""
_SCALE_RATE = 0.01
_LEAST_RECORD = 1e-6
"""Smallest meaningful residual relative to the level: a few float32 roundings."""


class Config(NamedTuple):
    """Rates of the means, the clip in standard deviations, and how scores are emitted.

    `hold` and `warmup` count values of the series; `weights` are for level, difference, shift and season.
    """

    bins: int = 24
    decay: float = 0.9999
    hold: int = 72
    warmup: int = 20
    clip: float = 6.0
    level_rate: float = 0.002
    fast_rate: float = 0.2
    season_rate: float = 0.05
    weights: tuple[float, float, float, float] = (1.0, 0.7, 1.0, 1.0)


DEFAULT = Config()


class State(NamedTuple):
    """seen, slow, fast, previous [N]; records [3, 4, N], descending; spread [3, N]; season, visits [B, N].

    `spread` is the mean absolute (clipped) residual against slow, fast and season. `silence` [N] counts values
    until a score that is not larger than `emitted` [N] may be emitted again. `visits` saturate at 255.
    A step changes `season` and `visits` in place: a state that it was given must not be used again.
    """

    seen: Array
    slow: Array
    fast: Array
    previous: Array
    records: Array
    spread: Array
    season: Input
    visits: Input
    silence: Array
    emitted: Array


class Scores(NamedTuple):
    """score [N] in 0..1, 0 where there was no value; expected [N], the level before it, NaN when unknown."""

    score: Array
    expected: Array


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` series that have had no value."""
    if config.bins < 1:
        raise ValueError(f"record_ratio: bins is {config.bins}; pass 1 or more")
    return State(
        seen=counts(n),
        slow=full(n, 0.0),
        fast=full(n, 0.0),
        previous=full(n, 0.0),
        records=full((_RECORDS, _RESIDUALS, n), 0.0),
        spread=full((3, n), 0.0),
        season=full((config.bins, n), 0.0),
        visits=counts((config.bins, n), np.uint8),
        silence=counts(n),
        emitted=full(n, 0.0),
    )


def resize(state: State, n: int, config: Config = DEFAULT) -> State:
    """Return the state with room for `n` series, its content kept."""
    return grow(state, n, lambda size: init(size, config))


def _insert(records: Array, size: Array, decay: float) -> Array:
    """Return the three largest of the decayed `records` [3, N] and `size` [N], by compare-exchange."""
    m1, m2, m3 = decay * records[0], decay * records[1], decay * records[2]
    rest = jnp.minimum(m1, size)
    return jnp.stack([jnp.maximum(m1, size), jnp.maximum(m2, rest), jnp.maximum(m3, jnp.minimum(m2, rest))])


class _Fields(NamedTuple):
    """The state without its bins."""

    seen: Array
    slow: Array
    fast: Array
    previous: Array
    records: Array
    spread: Array
    silence: Array
    emitted: Array


def step(state: State, x: Input, mask: Input, bin: Input, config: Config = DEFAULT) -> tuple[State, Scores]:
    """Score `x[N]` and update the state by it where `mask[N]`; `bin` is the int32 time-of-day bin of this tick, 0..B-1.

    The means are updated by residuals clipped at `clip` standard deviations once warm, so that one extreme value
    does not become the new normal; a series that never moved has no scale yet and is not clipped.
    """
    at, season, visits = int(bin), state.season, state.visits
    if not (isinstance(season, np.ndarray) and isinstance(visits, np.ndarray)):
        season, visits = np.array(season), np.array(visits)
    before = _Fields(*(getattr(state, name) for name in _Fields._fields))
    after, row, count, scores = update(before, x, mask, season[at], visits[at], config)
    season[at], visits[at] = row, count
    return State(season=season, visits=visits, **after._asdict()), scores


def _update(
    state: _Fields, x: Input, mask: Input, season: Input, visits: Input, config: Config
) -> tuple[_Fields, Array, Array, Scores]:
    """Return the state, this bin's means and visits, and the scores."""
    season, visits = as_array(season), as_array(visits)
    x = as_array(x)
    ok = mask & jnp.isfinite(x)
    x = jnp.where(ok, x, 0.0)
    started = state.seen > 0
    warm = state.seen >= config.warmup

    def toward(mean: Array, spread: Array, rate: Array | float) -> tuple[Array, Array]:
        error = x - mean
        limit = jnp.where(warm & (spread > 0.0), config.clip * _SD_PER_MEAN_ABS * spread, jnp.inf)
        error = jnp.clip(error, -limit, limit)
        pace = jnp.maximum(_SCALE_RATE, 1.0 / jnp.maximum(state.seen, 1))
        wider = jnp.where(started, spread + pace * (jnp.abs(error) - spread), 0.0)
        return jnp.where(started, mean + rate * error, x), wider

    slow, spread_slow = toward(state.slow, state.spread[0], jnp.maximum(config.level_rate, 1.0 / (state.seen + 1)))
    fast, spread_fast = toward(state.fast, state.spread[1], config.fast_rate)
    visited = visits > 0
    season_new, spread_season = toward(
        jnp.where(visited, season, x),
        state.spread[2],
        jnp.maximum(config.season_rate, 1.0 / (visits.astype(jnp.float32) + 1.0)),
    )

    usual = visits >= 2
    sizes = (
        jnp.abs(x - state.slow),
        jnp.abs(x - state.previous),
        jnp.abs(fast - state.slow),
        jnp.abs(x - season),
    )
    used = (started, started, started, started & usual)
    least = _LEAST_RECORD * jnp.abs(state.slow) + 1e-30
    raw = full(x.shape, 0.0)
    records: list[Array] = []
    for i, weight in enumerate(config.weights):
        size = jnp.where(used[i], sizes[i], 0.0)
        past = state.records[:, i]
        raw = jnp.maximum(raw, weight * size / jnp.maximum((past[0] + past[1] + past[2]) / 3, least))
        records.append(_insert(past, size, config.decay))

    emit = warm & ok & (raw > 0.0) & ((state.silence == 0) | (raw > state.emitted))
    scores = Scores(jnp.where(emit, 1.0 - 1.0 / (1.0 + raw), 0.0), jnp.where(started, state.slow, jnp.nan))

    def keep(new: Array, old: Array) -> Array:
        return jnp.where(ok, new, old)

    updated = _Fields(
        seen=state.seen + ok,
        slow=keep(slow, state.slow),
        fast=keep(fast, state.fast),
        previous=keep(x, state.previous),
        records=keep(jnp.stack(records, axis=1), state.records),
        spread=keep(jnp.stack([spread_slow, spread_fast, spread_season]), state.spread),
        silence=jnp.where(emit, config.hold, jnp.maximum(state.silence - ok, 0)),
        emitted=jnp.where(emit, raw, state.emitted),
    )
    return updated, keep(season_new, season), jnp.where(ok & (visits < 255), visits + 1, visits), scores


update = compiled_step(_update, donate=False)
"""Not donated: the compiler would copy what it reads after it was written."""
