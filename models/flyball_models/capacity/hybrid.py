"""All estimates weighed by how wrong each has been, and the record of that.

Each estimate is judged against the work served once a replica is saturated, before that window is learned: the mean square
of the logarithmic error, forgetting, started from what is believed of the method before it was ever compared. Weights
are inverse variances (Bates and Granger 1969); as saturated windows come in, the online one wins.
"""

from typing import NamedTuple

import numpy as np

from flyball_models.capacity.base import Bools, Estimate, Floats

METHODS = ("spec", "static", "historic", "online")
NAMES = (*METHODS, "hybrid")
BELIEVED = np.array([0.25, 0.7, 0.5, 0.1, 0.25])
"""Standard deviation of the logarithm before any comparison: an owner's figure, a data sheet's, history's, telemetry's."""
PRIOR = 2.0
FORGET = 0.9
WORST = 2.0
"""Largest error that counts, in e-folds: one absurd window does not silence a method for good."""
EVERY = 10
"""Windows between two judgements while saturation lasts; its start is always one."""
_HISTORIC = METHODS.index("historic")


class State(NamedTuple):
    """Sum of squared errors and their number, [5, N], forgetting; windows since the last judgement and whether saturated."""

    squares: Floats
    judged: Floats
    since: Floats
    was_full: Floats
    last: Floats


def init(n: int) -> State:
    """Return the state of `n` workloads of which nothing was ever compared."""
    zeros = np.zeros((len(NAMES), n))
    return State(zeros, zeros.copy(), np.zeros(n), np.zeros(n), np.full((len(NAMES), n), np.nan))


def judge(state: State, served: Floats, full: Bools) -> State:
    """Compare the estimates that were made before a window, [5, N] in the state, with what it `served` saturated, [N]."""
    due = full & ((state.was_full == 0) | (state.since >= EVERY))
    with np.errstate(invalid="ignore", divide="ignore"):
        off = np.clip(np.log(state.last / served), -WORST, WORST)
    counts = due & np.isfinite(off)
    keep = np.where(counts, FORGET, 1.0)
    known = ~np.isnan(served)
    return state._replace(
        squares=keep * state.squares + np.where(counts, off, 0.0) ** 2,
        judged=keep * state.judged + counts,
        since=np.where(due, 0.0, state.since + known),
        was_full=np.where(known, full, state.was_full),
    )


def errors(state: State) -> Floats:
    """Running relative error of each method, [5, N]: the root of its mean square, started from BELIEVED."""
    believed = BELIEVED[:, None] ** 2
    return np.sqrt((PRIOR * believed + state.squares) / (PRIOR + state.judged))


class Weighed(NamedTuple):
    """The combination [N], the estimates with it [5, N], their errors [5, N], and the weights of the methods [4, N]."""

    hybrid: Estimate
    values: Floats
    errors: Floats
    weights: Floats


def weigh(state: State, spec: Floats, static: Floats, historic: Floats, online: Estimate, proven: Floats) -> Weighed:
    """Combine the estimates [N], NaN where there is none; what was `proven` is the least.

    History counts only after it was compared with saturation: until then it is but the load there was.
    """
    values = np.stack([spec, static, historic, online.work_per_s])
    running = errors(state)
    own = running[: len(METHODS)].copy()
    own[-1] = np.fmax(own[-1], online.error)
    usable = np.isfinite(values) & (values > 0)
    usable[_HISTORIC] &= state.judged[_HISTORIC] > 0
    precision = np.where(usable, 1.0 / own**2, 0.0)
    total = precision.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = np.where(total > 0, precision / total, 0.0)
        logs = np.where(usable, np.log(np.where(usable, values, 1.0)), 0.0)
        mean = np.where(total > 0, np.exp((weights * logs).sum(axis=0)), np.nan)
        error = np.where(total > 0, 1.0 / np.sqrt(total), np.nan)
    judged = np.where(state.judged[-1] > 0, running[-1], 0.0)
    value = np.where(np.isnan(mean), np.nan, np.fmax(mean, proven))
    hybrid = Estimate(value, np.where(np.isnan(mean), np.nan, np.maximum(error, np.minimum(judged, own[-1]))))
    all_errors = np.concatenate([own, hybrid.error[None]])
    return Weighed(hybrid, np.concatenate([values, value[None]]), all_errors, weights)
