"""The worker's policy shadow_selection: members run in the shadow, and the cheapest one determines the need.

It needs numba, which other policies do not, so only a worker that sizes by it imports this module.
"""

import numpy as np

from flyball_models.scaling import rows as shadows, shadow_selection
from flyball_models.sizing import slo_headroom
from flyball_streams.engine.workload.sizing.columns import Floats
from flyball_streams.engine.workload.sizing.policy import BASES, Basis, Leader, Policy, PolicyInput

BASE_OF = np.array([BASES.index(base) for base in ("start", "start", "headroom", "present")])
"""Basis by the reason of a recommendation."""


def need(given: PolicyInput) -> Basis:
    """Needs of workloads: the leader's recommendation at the last sample, without forecasts.

    Work is in units of a replica's capacity, or of its target for GPUs; NaN if that is unknown.
    """
    columns, rows, seen = given.columns, given.rows, given.seen
    assert columns.at is not None
    load = np.where(seen.in_gpus > 0.0, seen.capacity * given.usual, seen.capacity)
    knobs = _knobs(given)
    pending = np.maximum(0.0, seen.replicas - seen.ready)
    ready = np.ascontiguousarray(seen.ready)  # one layout, compiled once
    shadows.advance(columns.own, rows, columns.at, columns.need.raw, load, ready, pending, given.backlog, knobs)
    why = columns.own[rows, shadows.WHY].astype(np.int64)
    desired = np.where(why == shadows.UNKNOWN, np.nan, columns.own[rows, shadows.DESIRED])
    known = slo_headroom.known(columns.need)[rows]  # not after an hour of silence, nor in the first minutes
    replicas = np.where(known, desired, np.fmax(desired, seen.replicas))
    unknown = np.full(len(rows), np.nan)
    return Basis(replicas, BASE_OF[why], load, replicas * load, unknown, unknown, given.lead_s)


def _knobs(given: PolicyInput) -> Floats:
    """Parameters of the workloads of a tick [J, 9]; replicas are observed at the same time as their work."""
    terms, sizing = given.terms, given.sizing
    return shadow_selection.knobs_of(
        terms.allowed[given.rows],
        terms.delay_s[given.rows],
        given.seen.cold_start_s,
        sizing.memory_s / 60.0,
        shadow_selection.MARGIN,
        sizing.price_rate,
        0,
    )


def led(own: Floats) -> Leader | None:
    """The leading member of a workload, from its row of state; ``None`` before the first sample."""
    if own[shadows.SINCE] == 0.0:
        return None
    of = shadow_selection.standing(own[shadows.HEAD :])
    after, dearer = shadow_selection.next_best(of)
    return Leader(
        leader=shadow_selection.MEMBERS[of.leader].name,
        tried=len(shadow_selection.MEMBERS),
        since_s=float(own[shadows.SINCE]),
        hours=float(of.hours[of.leader]),
        late=float(of.late[of.leader]),
        price=of.price,
        after=shadow_selection.MEMBERS[after].name,
        dearer=dearer,
    )


POLICY = Policy(need, slo_headroom.RULE, shadows.FLOATS, led)
