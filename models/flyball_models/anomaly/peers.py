"""Deviation of a device from its peers: the detector of stragglers and lemons.

Within a group g of devices that should behave alike (same job, model and role) and for each metric m:

    z = (x - med_g) / (1.4826 MAD_g + floor_m)

A change of the whole group moves its median and is no deviation. An alarm needs k large z in the last m
ticks: the "continuity" of Deng et al., "Minder", NSDI 2025.

Shapes: N devices, M metrics. There are at most N groups, so a group number is 0..N-1; any other number
means that the device has no peers.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from flyball_models._arrays import Array, Input, as_array, counts
from flyball_models._compile import compiled, compiled_step
from flyball_models._padding import grow

LEAST_PEERS = 3
"""Members that a group needs, per metric, before anyone can deviate from it."""
_SD_PER_MAD = 1.4826


def group_medians(x: Input, group: Input, known: Input) -> tuple[Array, Array]:
    """Return the median of each device's group, and how many members are known; both [N, M].

    `x` [N, M], `group` int32 [N], `known` bool [N, M]. Without any known member the median is NaN. One sort
    by (group, value) puts every group's values in a row, where its median is found by offset.
    """
    x, group = as_array(x), as_array(group)
    n = x.shape[0]
    known = known & ((group >= 0) & (group < n))[:, None]
    keys = jnp.where(known, group[:, None], n)
    order = jax.lax.sort((keys, jnp.where(known, x, 0.0)), dimension=0, num_keys=2, is_stable=False)[1]
    members = counts((n, x.shape[1])).at[group].add(known, mode="drop")
    start = jnp.cumsum(members, axis=0) - members
    low = jnp.take_along_axis(order, jnp.clip(start + (members - 1) // 2, 0, n - 1), axis=0)
    high = jnp.take_along_axis(order, jnp.clip(start + members // 2, 0, n - 1), axis=0)
    median = jnp.where(members > 0, 0.5 * (low + high), jnp.nan)
    home = jnp.where((group >= 0) & (group < n), group, n)
    return (
        jnp.take(median, home, axis=0, mode="fill", fill_value=jnp.nan),
        jnp.take(members, home, axis=0, mode="fill", fill_value=0),
    )


@compiled
def deviations(x: Input, group: Input, mask: Input, floor: Input) -> Array:
    """Return z [N, M] of `x` [N, M] in groups `group` int32 [N], where `mask` [N].

    `floor` [M], in the unit of each metric, is the spread that is not worth noticing; pass more than 0. z is
    0 for a device without a value or with fewer than 3 members in its group, itself included.
    """
    x = as_array(x)
    known = as_array(mask)[:, None] & jnp.isfinite(x)
    median, members = group_medians(x, group, known)
    away = x - median
    mad, _ = group_medians(jnp.abs(away), group, known)
    judged = known & (members >= LEAST_PEERS)
    return jnp.where(judged, away / (_SD_PER_MAD * mad + floor), 0.0)


class State(NamedTuple):
    """history uint32 [M, N]: bit i is set when z was large i values ago."""

    history: Array


def init(n: int, metrics: int) -> State:
    """Return the state of `n` devices with `metrics` metrics and no large deviation behind them."""
    return State(counts((metrics, n), np.uint32))


def resize(state: State, n: int) -> State:
    """Return the state with room for `n` devices, its content kept."""
    metrics = state.history.shape[0]
    return grow(state, n, lambda size: init(size, metrics))


def _persist(
    state: State, z: Input, mask: Input, k: int = 4, m: int = 6, threshold: float = 4.0
) -> tuple[State, Array]:
    """Return alarm bool [N, M]: |z| [N, M] passed `threshold` in `k` of the last `m` values.

    Ticks where `mask` [N] is false are skipped. k, m and threshold are static; m is at most 32.
    """
    if not 1 <= k <= m <= 32:
        raise ValueError(f"persist: k is {k} and m is {m}; pass 1 <= k <= m <= 32")
    large = (jnp.abs(as_array(z)) > threshold).T
    window = jnp.uint32((1 << m) - 1)
    history = ((state.history << 1) | large) & window
    state = State(jnp.where(mask, history, state.history))
    return state, (jax.lax.population_count(state.history) >= k).T


persist = compiled_step(_persist, static=("k", "m", "threshold"))
