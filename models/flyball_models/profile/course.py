"""Signals of each device over time: means over minutes and over seconds, and the variation of some.

Means are exponentially weighted in event time, and corrected for their start as in
:mod:`~flyball_models.profile.features`: a mean is sum w x / sum w over the known values.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.profile.signals import AT, SIGNALS, Floats

VARIED = ("use", "swing", "memory", "sm", "power", "pcie_in", "disk_write", "network", "requests", "waiting")
"""Signals whose standard deviation is a feature."""
RECENT = ("use", "sm", "power", "memory", "disk_write", "pcie_out", "network")
"""Signals whose mean over the last seconds is kept, for the phase."""
RATIOS = (
    *((name, "use") for name in ("tensor", "dram", "sm", "fp32", "fp16", "integer", "decoder", "power", "fp64")),
    *((name, "sm") for name in ("occupancy", "tensor", "dram", "fp32", "fp16", "integer")),
    ("tensor", "dram"),
)
"""Ratios of activities: these stay constant when the load rises and falls."""
FEATURES = (*SIGNALS, *(f"{name}_sd" for name in VARIED), *(f"{a}_per_{b}" for a, b in RATIOS))
"""The rows of the result of :func:`summarize`."""
_LEAST = np.float32(0.02)
"""Minimum denominator of a ratio; ratios start from half of it."""
_ABOVE, _BELOW = ([AT[pair[i]] for pair in RATIOS] for i in (0, 1))
_VARIED = [AT[name] for name in VARIED]
_RECENT = [AT[name] for name in RECENT]


class Config(NamedTuple):
    """Time constants in seconds of the means over minutes and of those over seconds."""

    slow_s: float = 150.0
    fast_s: float = 10.0


DEFAULT = Config()


class State(NamedTuple):
    """total, weight [S, N] of the means; square [V, N] sums of squares; recent, recent_weight [R, N]; seen_s [N].

    Sums of squares are relative to the first value of a signal, ``base`` [V, N], for precision.
    """

    total: Floats
    weight: Floats
    square: Floats
    base: Floats
    recent: Floats
    recent_weight: Floats
    seen_s: Floats


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` devices without data."""
    s, v, r = len(SIGNALS), len(VARIED), len(RECENT)

    def zeros(rows: int) -> Floats:
        return np.zeros((rows, n), np.float32)

    return State(zeros(s), zeros(s), zeros(v), zeros(v), zeros(r), zeros(r), np.zeros(n, np.float32))


def step(state: State, x: Floats, mask: NDArray[np.bool_], elapsed_s: float, config: Config = DEFAULT) -> State:
    """Add signals `x[S, N]` of the devices in `mask[N]`, `elapsed_s` after the previous sample."""
    known = mask & np.isfinite(x)
    rate = np.float32(-np.expm1(-elapsed_s / config.slow_s))
    value = np.where(known, x, np.float32(0.0))
    keep = np.where(known, np.float32(1.0) - rate, np.float32(1.0))
    total = state.total * keep + rate * value
    weight = state.weight * keep + rate * known
    known_varied, varied = known[_VARIED], value[_VARIED]
    base = np.where((state.weight[_VARIED] == 0.0) & known_varied, varied, state.base)
    apart = np.where(known_varied, varied - base, np.float32(0.0))
    square = state.square * keep[_VARIED] + rate * apart * apart
    fast, known_recent = np.float32(-np.expm1(-elapsed_s / config.fast_s)), known[_RECENT]
    keep_fast = np.where(known_recent, np.float32(1.0) - fast, np.float32(1.0))
    recent = state.recent * keep_fast + fast * value[_RECENT]
    recent_weight = state.recent_weight * keep_fast + fast * known_recent
    seen_s = state.seen_s + np.float32(elapsed_s) * mask
    parts = (total, weight, square, base, recent, recent_weight, seen_s)
    return State(*(np.asarray(part, np.float32) for part in parts))


def summarize(state: State) -> Floats:
    """Return the features, float32[F, N] in the order of :data:`FEATURES`, NaN without data.

    Ratios are decades: ``log10(0.01 + a / b)``.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(state.weight > 0.0, state.total / state.weight, np.float32(np.nan))
        weight = state.weight[_VARIED]
        about = mean[_VARIED] - state.base
        variance = np.where(weight > 0.0, state.square / weight, np.float32(np.nan)) - about * about
        deviation = np.sqrt(np.maximum(variance, np.float32(0.0)))
        below = mean[_BELOW]
        ratio = np.log10(_LEAST / 2 + mean[_ABOVE] / below)
        ratio = np.where(below > _LEAST, ratio, np.float32(np.nan))
    found: Floats = np.concatenate([mean, deviation, ratio])
    return found


def recent(state: State) -> dict[str, Floats]:
    """Means over the last seconds of the signals in :data:`RECENT`, each [N], NaN without data."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(state.recent_weight > 0.0, state.recent / state.recent_weight, np.float32(np.nan))
    return dict(zip(RECENT, mean, strict=True))
