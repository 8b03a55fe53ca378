"""The exact plan for work that may be paused freely: the k cheapest slots before the deadline.

Without a cost of switching, the cheapest way to run `need` slots is to take the `need` smallest costs of the
window. One stable sort of the curve serves the whole batch: a job's choice is the first `need` slots of
the sorted curve that lie in its window.
"""

from typing import NamedTuple

import jax.numpy as jnp

from flyball_models._arrays import Array, Input, arange, as_array
from flyball_models._compile import compiled


class Plan(NamedTuple):
    """run bool [B, T]; saving [B], cost of running at once less cost of the plan; feasible bool [B]."""

    run: Array
    saving: Array
    feasible: Array


@compiled
def plan(cost: Input, release: Input, deadline: Input, need: Input) -> Plan:
    """Choose for each of B jobs `need` [B] slots of least `cost` [T] in `release` <= t < `deadline` [B].

    Of equal costs the earliest is taken. A NaN cost is unknown and taken last. A window is cut to 0..T-1;
    when it holds fewer than `need` slots, all of them run and the plan is not feasible. Pad with need 0.
    """
    cost = as_array(cost)
    release, deadline, need = (as_array(a)[:, None] for a in (release, deadline, need))
    slot = arange(0, cost.shape[0])
    window = (slot >= release) & (slot < deadline)
    order = jnp.argsort(cost, stable=True)
    ranked = window[:, order]
    chosen = ranked & (jnp.cumsum(ranked, axis=1) <= need)
    run = chosen[:, jnp.argsort(order)]
    at_once = window & (jnp.cumsum(window, axis=1) <= need)
    moved = at_once.astype(jnp.int8) - run.astype(jnp.int8)
    saving = jnp.where(moved == 0, 0.0, cost * moved).sum(axis=1)
    return Plan(run, saving, window.sum(axis=1) >= need[:, 0])
