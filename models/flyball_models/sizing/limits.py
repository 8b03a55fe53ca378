"""Limits on changes, for many workloads: :mod:`flyball_models.scaling.limits` in columns."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
JUMP = 4.0
"""A target may always exceed the ready replicas by this number."""
AHEAD = 1.25
"""A forecast raises the need of history and present work by at most this factor.

That need includes z, so if a forecast is always too high, z falls by as much as it adds, and the cost hardly grows.
"""
SLACK = 1e-9
"""Tolerance for rounding errors, in replicas."""


def whole(x: Floats) -> Floats:
    """Return x rounded up, an exact fit not raised by rounding errors [N]."""
    return np.ceil(x - SLACK)


def raised(needed: Floats, ahead: Floats) -> Floats:
    """Return `needed` [N], raised to the forecast `ahead` (NaN: none) by at most :data:`AHEAD` times."""
    return np.fmax(needed, np.minimum(ahead, AHEAD * needed))


def bounded(
    wanted: Floats,
    n: Floats,
    ready: Floats,
    waits: NDArray[np.bool_],
    tolerance: float,
    most_in: float,
    growth: float,
) -> Floats:
    """Return `wanted` [N] within the allowed change from `n` replicas, of which some are `ready`.

    Growth is relative to ready replicas, so pending ones do not allow more. A change of at most `tolerance` of n is
    dropped where nothing `waits`; at most `most_in` of n is removed. A limit of 0 is off.
    """
    if growth > 0.0:
        wanted = np.minimum(wanted, np.maximum(n, np.maximum(ready + JUMP, np.floor(growth * ready))))
    wanted = np.where((np.abs(wanted - n) <= tolerance * n) & ~waits, n, wanted)
    if most_in > 0.0:
        wanted = np.maximum(wanted, n - np.maximum(1.0, np.floor(most_in * n)))
    return wanted
