"""Features of a device's recent use: how busy, bound by what, how long idle, how efficient.

All means are exponentially weighted and corrected for their start, mean = sum w x / sum w over the values
that were known, so that a missing input of one tick leaves its mean as it was.
"""

from typing import NamedTuple

import jax.numpy as jnp

from flyball_models._arrays import Array, Input, as_array, counts, full
from flyball_models._compile import compiled_step
from flyball_models._padding import grow


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

    total: Array
    weight: Array
    idle_ticks: Array


class Features(NamedTuple):
    """All [N]; NaN where the inputs were never known.

    duty_cycle: share of ticks that were busy. utilization, memory_used, power_w: means.
    memory_boundedness: dram / (dram + compute) of the means, 0 = only computing, 1 = only moving memory;
    compute is sm_active, or utilization where that is unknown. idle_ticks: ticks in a row, up to now,
    that were not busy.
    """

    duty_cycle: Array
    utilization: Array
    memory_boundedness: Array
    memory_used: Array
    power_w: Array
    idle_ticks: Array


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` devices of which nothing is known."""
    del config
    means = len(Inputs._fields) + 1
    return State(full((means, n), 0.0), full((means, n), 0.0), counts(n))


def resize(state: State, n: int, config: Config = DEFAULT) -> State:
    """Return the state with room for `n` devices, its content kept."""
    return grow(state, n, lambda size: init(size, config))


def _step(state: State, inputs: Inputs, mask: Input, config: Config = DEFAULT) -> tuple[State, Features]:
    """Learn one tick of `inputs` where `mask[N]`; a tick of unknown utilisation is neither busy nor idle."""
    use = as_array(inputs.utilization)
    active = (use > config.busy_above).astype(jnp.float32)
    busy = jnp.where(jnp.isfinite(use), active, jnp.nan)
    x = jnp.stack([*(as_array(value) for value in inputs), busy])
    known = mask & jnp.isfinite(x)
    total = jnp.where(known, state.total + config.rate * (x - state.total), state.total)
    weight = jnp.where(known, state.weight + config.rate * (1.0 - state.weight), state.weight)
    idle = jnp.where(active > 0, 0, state.idle_ticks + 1)
    state = State(total, weight, jnp.where(known[0], idle, state.idle_ticks))

    mean = jnp.where(weight > 0, total / weight, jnp.nan)
    utilization, sm_active, dram_active, memory_used, power_w, duty_cycle = mean
    compute = jnp.where(jnp.isfinite(sm_active), sm_active, utilization)
    activity = dram_active + compute
    return state, Features(
        duty_cycle=duty_cycle,
        utilization=utilization,
        memory_boundedness=jnp.where(activity > 0, dram_active / activity, jnp.nan),
        memory_used=memory_used,
        power_w=power_w,
        idle_ticks=state.idle_ticks,
    )


step = compiled_step(_step)
