"""Deviation of a device from its peers: the detector of stragglers and lemons.

Within a group g of devices that should behave alike (same job, model and role) and for each metric m:

    z = (x - med_g) / (1.4826 MAD_g + floor_m)

A change of the whole group moves its median and is no deviation. An alarm needs k large z in the last m
ticks: the "continuity" of Deng et al., "Minder", NSDI 2025.

Shapes: N devices, M metrics. There are at most N groups, so a group number is 0..N-1; any other number
means that the device has no peers.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flyball_models._arrays import Input, counts

LEAST_PEERS = 3
"""Minimum number of members of a group, per metric, for a comparison."""
FAR_Z = 4.0
"""A straggler is this many robust deviations from its peers, in :data:`SLOW_TICKS` of the last :data:`OF_TICKS` ticks.
"""
SLOW_TICKS = 6
OF_TICKS = 10
_SD_PER_MAD = 1.4826
_SIGN = np.uint32(0x80000000)
Floats: TypeAlias = NDArray[np.float32]


def deviations(x: Input, group: Input, mask: Input, floor: Input) -> Floats:
    """Return z [N, M] of `x` [N, M] in groups `group` int32 [N], where `mask` [N].

    `floor` [M], in the unit of each metric, is the spread below which deviations are ignored; more than 0. z is 0 for a
    device without a value or with fewer than 3 members in its group, itself included.
    """
    x, group, floor = np.asarray(x, np.float32), np.asarray(group, np.int64), np.asarray(floor, np.float32)
    n, metrics = x.shape
    home = np.asarray(mask) & (group >= 0) & (group < n)
    rows, columns = np.nonzero(home[:, None] & np.isfinite(x))
    group_metric = group[rows] * metrics + columns
    values = x[rows, columns]
    members = np.bincount(group_metric, minlength=n * metrics)
    away = values - medians(values, group_metric, members)[group_metric]
    mad = medians(np.abs(away), group_metric, members)[group_metric]
    z = np.zeros(x.shape, np.float32)
    spread = np.float32(_SD_PER_MAD) * mad + floor[columns]
    z[rows, columns] = np.where(members[group_metric] >= LEAST_PEERS, away / spread, np.float32(0.0))
    return z


def medians(values: Floats, group_metric: NDArray[np.int64], members: NDArray[np.int64]) -> Floats:
    """Return the median of the finite `values` of each group and metric, NaN without `members`.

    NumPy, not JAX: group and value are combined in one integer, and a sort of plain 64-bit integers is vectorised,
    while a compiled sort by several keys compares them one by one.
    """
    bits = values.view(np.uint32)
    ascending = np.where(bits >> 31, ~bits, bits | _SIGN)  # unsigned integers in the order of the floats
    keys = np.sort(group_metric.astype(np.uint64) << np.uint64(32) | ascending)
    start = np.cumsum(members) - members
    (full,) = members.nonzero()
    first, count = start[full], members[full]
    middle = _value(keys[np.array((first + (count - 1) // 2, first + count // 2))])
    median = np.full(len(members), np.nan, np.float32)
    median[full] = np.float32(0.5) * (middle[0] + middle[1])
    return median


def _value(keys: NDArray[np.uint64]) -> Floats:
    ascending = keys.astype(np.uint32)
    return np.where(ascending & _SIGN, ascending ^ _SIGN, ~ascending).view(np.float32)


class State(NamedTuple):
    """history uint32 [M, N]: bit i is set when z was large i values ago."""

    history: Input


def init(n: int, metrics: int) -> State:
    """Return the state of `n` devices with `metrics` metrics, without large deviations."""
    return State(counts((metrics, n), np.uint32))


def persist(
    state: State, z: Input, mask: Input, k: int = 4, m: int = 6, threshold: float = 4.0
) -> tuple[State, NDArray[np.bool_]]:
    """Return alarm bool [N, M]: |z| [N, M] exceeded `threshold` in `k` of the last `m` values.

    Ticks where `mask` [N] is false are skipped; m is at most 32. NumPy, not JAX: shifting a few bits takes less time
    than a call of a compiled function.
    """
    if not 1 <= k <= m <= 32:
        raise ValueError(f"persist: k is {k} and m is {m}; pass 1 <= k <= m <= 32")
    before, window = np.asarray(state.history), np.uint32((1 << m) - 1)
    large = (np.abs(np.asarray(z)) > threshold).T
    history = np.where(np.asarray(mask), (before << np.uint32(1) | large) & window, before)
    return State(history), (np.bitwise_count(history) >= k).T
