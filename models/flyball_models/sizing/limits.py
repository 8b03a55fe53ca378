"""What may change at once, for many workloads: :mod:`flyball_models.scaling.limits` in columns."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
JUMP = 4.0
"""So many more than are ready may always be asked for."""
AHEAD = 1.25
"""A forecast raises what the record and present work need by at most so many times.

That need has z in it. So where a forecast always sees too much, z falls by what it adds, and the bill hardly grows.
"""
SLACK = 1e-9
"""Replicas that an exact fit may seem to lack by rounding."""


def whole(x: Floats) -> Floats:
    """Return x rounded up, an exact fit not raised by rounding errors [N]."""
    return np.ceil(x - SLACK)


def raised(needed: Floats, ahead: Floats) -> Floats:
    """Return `needed` [N], raised to what a forecast sees `ahead` (NaN: nothing) by at most :data:`AHEAD` times."""
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
    """Return `wanted` [N] within what may change at once, of `n` replicas of which some are `ready`.

    Growth counts from what is ready: replicas that are on their way do not earn the next ones. A change of at most
    `tolerance` of n is none where nothing `waits`; at most `most_in` of n goes away. A limit of 0 is off.
    """
    if growth > 0.0:
        wanted = np.minimum(wanted, np.maximum(n, np.maximum(ready + JUMP, np.floor(growth * ready))))
    wanted = np.where((np.abs(wanted - n) <= tolerance * n) & ~waits, n, wanted)
    if most_in > 0.0:
        wanted = np.maximum(wanted, n - np.maximum(1.0, np.floor(most_in * n)))
    return wanted
