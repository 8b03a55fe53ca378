"""Draws parameters of generated work from fifths of their ranges, to separate training from held-out data."""

from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Part = Literal["trained", "held_out", "inner", "outer"]
FIFTHS: dict[Part, tuple[int, ...]] = {"trained": (0, 2, 4), "held_out": (1, 3), "inner": (1, 2, 3), "outer": (0, 4)}
"""Fifths of each range by part: ``held_out`` lies between the trained fifths, ``outer`` beyond ``inner``."""


class Draws:
    """Draws one value for each of ``count`` workloads; parameters are independent and from the same part."""

    def __init__(self, random: Generator, count: int, part: Part) -> None:
        self.random, self.count, self.part = random, count, part
        self._fifths = np.array(FIFTHS[part], np.float64)

    def __call__(self, low: Any, high: Any, log: bool = False) -> Doubles:
        """Uniform in the part of a range, or of its logarithm; ``low`` and ``high`` are numbers or ``[count]``."""
        fifth = self._fifths[self.random.integers(len(self._fifths), size=self.count)]
        u = (fifth + self.random.random(self.count)) / 5.0
        low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        if log:
            return np.asarray(low * (high / low) ** u, np.float64)
        return np.asarray(low + (high - low) * u, np.float64)

    def chance(self, share: Any) -> NDArray[np.bool_]:
        """True with a probability, which is the same for all parts."""
        return np.asarray(self.random.random(self.count) < share, np.bool_)
