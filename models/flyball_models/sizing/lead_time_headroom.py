"""lead_time_headroom for many workloads at once: :mod:`flyball_models.scaling.lead_time_headroom` in columns.

The history is that of :mod:`flyball_models.sizing.slo_headroom`; this module derives the need.
"""

import numpy as np

from flyball_models.sizing.slo_headroom import MOST_HELD, Floats, Ints, Rule, State, Terms, mean_of_last, of_hour

HALF_LIFE = 120.0
"""Minutes after which an error counts half."""
OF_HOUR = 0.5
"""Share of the last hour's needs in the squared spread; the rest is of errors at the lead time."""
FORGET = 1.0 - 0.5 ** (1.0 / HALF_LIFE)
DRAIN_S = 90.0
HELD_S = 120.0
"""Time for which the need of present work is held, so that noise does not order and cancel."""


def minutes(cold_start_s: Floats) -> Ints:
    """Whole minutes until a replica ordered now is ready [N], at most half an hour."""
    return np.clip(np.ceil(cold_start_s / 60.0), 1, MOST_HELD).astype(np.int64)


def hold(state: State, rows: Ints, t_s: float, present: Floats) -> Floats:
    """Return the held `present` need [J], at second `t_s`; NaN adds nothing. The state is changed."""
    held, since = state.held[rows], state.since[rows]
    with np.errstate(invalid="ignore"):
        new = (present >= held) | (np.isfinite(present) & (t_s - since > HELD_S))
    state.held[rows] = held = np.where(new, present, held)
    state.since[rows] = np.where(new, t_s, since)
    return held


def _square(state: State, terms: Terms, due: Ints) -> Floats:
    """Update with the deviation of the minute's needs from the levels a lead time ago; return the squared spreads."""
    count, hour = state.minutes[due], of_hour(state, due)
    before = count - terms.lead[due]
    measured = before > 0
    at, before = due[measured], before[measured]
    needed = state.needs[(count[measured] - 1) % len(state.needs), at]
    error = needed - mean_of_last(state.means, before, at, terms.level)
    weight = np.maximum(FORGET, 1.0 / before)
    state.error[at] += weight * (error**2 - state.error[at])
    return np.where(measured, (1.0 - OF_HOUR) * state.error[due] + OF_HOUR * hour, hour)


RULE = Rule(0.0, _square)
