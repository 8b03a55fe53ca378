"""Features of a device's recent use: duty cycle, bottleneck, idle time, power.

All means are exponentially weighted and corrected for their start, mean = sum w x / sum w over the known values, so
that a missing input of one tick leaves its mean unchanged.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models._arrays import Input, counts, full

Floats = NDArray[np.float32]


class Config(NamedTuple):
    """Weight of a new value, and the utilisation above which a tick counts as busy."""

    rate: float = 0.02
    busy_above: float = 0.05


class Inputs(NamedTuple):
    """One tick, all [N], NaN where unknown: shares 0..1, and power in W.

    utilization: share of time with a kernel running; sm_active: share of streaming multiprocessors at work;
    dram_active: share of memory bandwidth used; memory_used: share of memory allocated.
    """

    utilization: Input
    sm_active: Input
    dram_active: Input
    memory_used: Input
    power_w: Input


DEFAULT = Config()


class State(NamedTuple):
    """total, weight [6, N] of the six means (five inputs, then busy); idle_ticks int32 [N]."""

    total: Input
    weight: Input
    idle_ticks: Input


class Features(NamedTuple):
    """All [N]; NaN where the inputs were never known.

    duty_cycle: share of ticks that were busy. utilization, memory_used, power_w: means.
    memory_boundedness: dram / (dram + compute) of the means, 0 = only computing, 1 = only moving memory;
    compute is sm_active, or utilization where that is unknown. idle_ticks: ticks in a row, up to now,
    that were not busy.
    """

    duty_cycle: Floats
    utilization: Floats
    memory_boundedness: Floats
    memory_used: Floats
    power_w: Floats
    idle_ticks: NDArray[np.int32]


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` devices without data."""
    means = len(Inputs._fields) + 1
    return State(full((means, n), 0.0), full((means, n), 0.0), counts(n))


def step(state: State, inputs: Inputs, mask: Input, config: Config = DEFAULT) -> State:
    """Update with one tick of `inputs` [N] where `mask` [N], or with T ticks, all [T, N].

    A tick of unknown utilisation is neither busy nor idle. NumPy, not JAX: these few operations are faster than a call
    of a compiled function.
    """
    use = np.atleast_2d(np.asarray(inputs.utilization))
    active, means = use > config.busy_above, len(inputs) + 1
    # The weights are means of ones: so both take the same operations, and take them together.
    x = np.ones((len(use), 2 * means, use.shape[1]), np.float32)
    for row, values in enumerate(inputs):
        x[:, row] = values
    x[:, means - 1] = active
    known = np.asarray(mask)[..., None, :] & np.isfinite(x)
    known[:, means - 1] = known[:, 0]
    known[:, means:] = known[:, :means]
    works, idles = known[:, 0] & active, (known[:, 0] & ~active).astype(np.int32)
    rate, both, idle = np.float32(config.rate), np.concatenate(state[:2]), np.asarray(state.idle_ticks)
    with np.errstate(invalid="ignore"):  # on unknown values
        for t in range(len(use)):
            both = np.where(known[t], both + rate * (x[t] - both), both)
            idle = np.where(works[t], np.int32(0), idle + idles[t])
    return State(both[:means], both[means:], idle)


def summarize(state: State) -> Features:
    """Return the features."""
    total, weight, idle = (np.asarray(field) for field in state)
    unknown = np.float32(np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: list[Floats] = list(np.where(weight > 0, total / weight, unknown))
        utilization, sm_active, dram_active, memory_used, power_w, duty_cycle = mean
        activity: Floats = dram_active + np.where(np.isfinite(sm_active), sm_active, utilization)
        bound = np.where(activity > 0, dram_active / activity, unknown)
    return Features(duty_cycle, utilization, bound, memory_used, power_w, idle)
