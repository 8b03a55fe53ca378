"""Combines all capacity estimates, weighted by their past errors.

Each estimate is compared with the work served when a replica is saturated, before that window updates it. The error is
an exponentially forgetting mean square of the logarithmic error, which starts from a prior for each method. Weights are
inverse variances (Bates and Granger 1969); with more saturated windows, the online estimate dominates.
"""

from typing import Literal, NamedTuple

import numpy as np

from flyball_models.capacity.base import Bools, Estimate, Floats, empty

METHODS: tuple[Literal["spec", "static", "historic", "online"], ...] = ("spec", "static", "historic", "online")
NAMES = (*METHODS, "hybrid")
PRIOR_ERRORS = np.array([0.25, 0.7, 0.5, 0.1, 0.25])
"""Standard deviation of the logarithm before any comparison, in the order of NAMES."""
PRIOR = 2.0
FORGET = 0.9
WORST = 2.0
"""Largest error that counts, in e-folds: one absurd window does not exclude a method for good."""
EVERY = 10
"""Windows between two comparisons during saturation; its first window is always compared."""
_HISTORIC = METHODS.index("historic")


class State(NamedTuple):
    """Sum of squared errors and their number, [5, N], forgetting; windows since the last judgement, [N]."""

    squares: Floats
    judged: Floats
    since: Floats
    was_full: Bools


def init(n: int) -> State:
    """Return the state of `n` workloads without any comparison."""
    zeros = np.zeros((len(NAMES), n))
    return State(zeros, zeros.copy(), np.zeros(n), np.zeros(n, np.bool_))


def judge(state: State, estimated: Floats, served: Floats, full: Bools) -> State:
    """Compare the previous estimates, [5, N], with the work `served` in a saturated window, [N]."""
    due = full & (~state.was_full | (state.since >= EVERY))
    with np.errstate(invalid="ignore", divide="ignore"):
        off = np.clip(np.log(estimated / served), -WORST, WORST)
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
    """Running relative error of each method, [5, N]: the root of its mean square, starting from PRIOR_ERRORS."""
    prior = PRIOR_ERRORS[:, None] ** 2
    return np.sqrt((PRIOR * prior + state.squares) / (PRIOR + state.judged))


class Combined(NamedTuple):
    """Estimates and their errors, [5, N] in the order of NAMES, NaN: none; weights of the methods, [4, N]."""

    values: Floats
    errors: Floats
    weights: Floats

    @property
    def hybrid(self) -> Estimate:
        """The combined estimate."""
        return Estimate(self.values[-1], self.errors[-1])


def nothing(n: int) -> Combined:
    """Return the result for `n` workloads before their first window."""
    return Combined(empty(len(NAMES), n), empty(len(NAMES), n), np.zeros((len(METHODS), n)))


def weigh(state: State, spec: Floats, static: Floats, historic: Floats, online: Estimate, proven: Floats) -> Combined:
    """Combine the estimates [N], NaN without one; the `proven` work is the minimum.

    History counts only once it was compared with saturation: before, it is only the past load.
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
        best = np.min(np.where(usable, own, np.inf), axis=0)
    judged = np.where(state.judged[-1] > 0, np.minimum(running[-1], best), 0.0)
    value = np.where(np.isnan(mean), np.nan, np.fmax(mean, proven))
    own = np.where(np.isfinite(values), own, np.nan)
    of_all = np.where(np.isnan(mean), np.nan, np.fmax(error, judged))
    return Combined(np.concatenate([values, value[None]]), np.concatenate([own, of_all[None]]), weights)
