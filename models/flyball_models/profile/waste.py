"""Wasted share of each held GPU, by category; a GPU counts in one category, so that sums count nothing twice."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.profile.signals import Floats

CATEGORIES = ("idle", "notebook", "input_starved", "low_duty", "oversized", "stranded")
"""All but the last are of held GPUs; stranded ones are free, see :func:`stranded`."""


class Config(NamedTuple):
    """Idle time after which work, and a notebook, wastes its GPU, s; the intended use of a GPU.

    ``low_duty`` is the share of busy ticks below which work does not need a GPU of its own, ``oversized`` the share of
    a GPU below which all its needs must lie. Waste below ``least`` of a GPU is ignored.
    """

    idle_s: float = 900.0
    notebook_s: float = 1800.0
    low_duty: float = 0.3
    oversized: float = 0.5
    meant: float = 0.8
    least: float = 0.1


DEFAULT = Config()


class HeldDevices(NamedTuple):
    """Devices that are held, all [N]; NaN where unknown.

    ``interactive``, ``trains`` and ``starved`` (waits for its input or storage) are bool; ``idle_s`` the seconds
    without a kernel up to now; the others are shares 0..1.
    """

    held: NDArray[np.bool_]
    interactive: NDArray[np.bool_]
    trains: NDArray[np.bool_]
    starved: NDArray[np.bool_]
    idle_s: Floats
    duty: Floats
    use: Floats
    sm: Floats
    dram: Floats
    memory: Floats


def wasted(seen: HeldDevices, config: Config = DEFAULT) -> tuple[NDArray[np.int64], Floats]:
    """Index in :data:`CATEGORIES`, -1 for none, and the wasted share of the GPU, both [N].

    The first matching category counts. Oversized requires known use of SMs and memory bandwidth.
    """
    with np.errstate(invalid="ignore"):
        needed = np.maximum(np.maximum(seen.sm, seen.dram) / config.meant, seen.memory)
        ways = (
            (~seen.interactive & (seen.idle_s >= config.idle_s), np.ones_like(seen.use)),
            (seen.interactive & (seen.idle_s >= config.notebook_s), np.ones_like(seen.use)),
            (seen.trains & seen.starved, 1.0 - seen.use),
            (~seen.interactive & (seen.duty < config.low_duty), 1.0 - seen.duty / config.meant),
            (needed < config.oversized, 1.0 - needed),
        )
        category, share = np.full(len(seen.use), -1), np.zeros(len(seen.use), np.float32)
        for i, (fits, part) in reversed(list(enumerate(ways))):
            fits = fits & seen.held & (part >= config.least)
            category[fits], share[fits] = i, part[fits]
    return category, share


def stranded(free: NDArray[np.int64], held: NDArray[np.int64], needed: int) -> NDArray[np.bool_]:
    """Whether the free GPUs of nodes are stranded, all [M]: beside held ones, and fewer than ``needed``.

    ``needed`` is the number of GPUs on one node that a replica of the cell takes; a few smaller replicas do not count.
    """
    return (free > 0) & (held > 0) & (free < needed)
