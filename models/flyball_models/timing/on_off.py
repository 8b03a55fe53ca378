"""Optimal plan for work that can be paused at a cost: dynamic programming over time, remaining work, and on or off.

A job that starts does no work for `lost` units: it loads, and restores its checkpoint. With V(t, w, s) the least cost
from slot t on with w units left, where a slot holds u(t) units at cost c(t) per unit:

    run(t, w) = c(t) min(w, u(t)) + V(t+1, w - min(w, u(t)), on)
    V(t, w, on)  = min(run(t, w),        V(t+1, w, off))
    V(t, w, off) = min(run(t, w + lost), V(t+1, w, off))        V(T, 0, .) = 0, V(T, w > 0, .) = infinite

Without `lost` the plan is the cheapest slots of the window. Bellman, "Dynamic Programming", 1957.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from flyball_models._arrays import Array, Input, arange, as_array
from flyball_models._compile import compiled_step

_TIE = 1e-6
"""Relative difference of cost that is a rounding error: of equal plans the earliest is taken."""


class Plan(NamedTuple):
    """run bool [T]; feasible bool []: the work ends in its window; cost float32 [], infinite if it does not."""

    run: Array
    feasible: Array
    cost: Array


def _plan(cost: Input, units: Input, work: Input, running: Input, most: int) -> Plan:
    """Choose when a job runs.

    `cost` float32 [T] is per unit and known; `units` int32 [T] is how many units a slot holds, 0 outside a window
    (free); `work` int32 [2] is how many units the job needs and how many a start loses; `running` bool [] is whether
    the job is on before slot 0. `most` is the largest number of units that a window holds. A job that cannot end in its
    window runs at once and on to the end.
    """
    cost, units, running = as_array(cost), as_array(units), as_array(running)
    need, lost = as_array(work)
    left = arange(0, most + 1)
    end = jnp.where(left == 0, 0.0, jnp.inf)

    def back(later: tuple[Array, Array], slot: tuple[Array, Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        on, off = later
        price, holds = slot
        done = jnp.minimum(left, holds)
        run = price * done + on[left - done]
        begun = left + lost
        start = jnp.where(begun <= most, run[jnp.minimum(begun, most)], jnp.inf)
        idle = off + _TIE * jnp.abs(off)
        goes_on, begins = run <= idle, start <= idle
        worth = jnp.where(left == 0, 0.0, jnp.where(goes_on, run, off))
        begin = jnp.where(left == 0, 0.0, jnp.where(begins, start, off))
        return (worth, begin), (goes_on, begins)

    (on, off), (goes_on, begins) = jax.lax.scan(back, (end, end), (cost, units), reverse=True)
    inside = jnp.minimum(need, most)
    least = jnp.where(need > most, jnp.inf, jnp.where(running, on[inside], off[inside]))

    def forth(now: tuple[Array, Array], slot: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], Array]:
        rest, is_on = now
        holds, stay, begin = slot
        at = jnp.minimum(rest, most)
        run = (rest > 0) & jnp.where(is_on, stay[at], begin[at])
        rest = jnp.where(run, jnp.maximum(0, rest + jnp.where(is_on, 0, lost) - holds), rest)
        return (rest, run), run

    _, run = jax.lax.scan(forth, (need, running), (units, goes_on, begins))
    return Plan(run, jnp.isfinite(least), least)


plan = compiled_step(_plan, static=("most",), donate=False)
