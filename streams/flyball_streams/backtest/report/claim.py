"""Equal service, honest intervals: the relative cost of two policies that both meet the objective.

Settings are tuned on the first half of the blocks; only those on its Pareto front run on the second half. There the
cost at a target attainment is interpolated on the lower envelope. Intervals come from a paired bootstrap: both policies
get the same days and the same seeds, and are interpolated again in each draw.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_streams.backtest.kernel import Floats
from flyball_streams.backtest.sweep import BILLED, LATE, REQUESTS, Result

DRAWS = 400
Indices = NDArray[np.int64]


class Cost(NamedTuple):
    """Cost at a target [replica-hours], NaN if not reached; ``limited``: even the cheapest setting exceeds it."""

    value: float
    limited: bool


class Ratio(NamedTuple):
    """Ratio of costs with its 95 % interval; NaN if one side did not reach the target."""

    value: float
    low: float
    high: float

    def percent(self) -> str:
        """Return the change in percent with its interval."""
        if math.isnan(self.value):
            return "not reached"
        return f"{100 * (self.value - 1):+.1f} % [{100 * (self.low - 1):+.1f}, {100 * (self.high - 1):+.1f}]"


class Frozen(NamedTuple):
    """The setting tuned on the first half, and its result on the second: hours billed and attainment.

    ``kept`` is false if no setting met the target on the first half; then it is the one that came nearest.
    """

    setting: int
    name: str
    billed_hours: float
    attainment: float
    kept: bool


def front(cost: Floats, attained: Floats) -> Indices:
    """Indexes of the Pareto-optimal settings by cost and attainment, by ascending attainment."""
    order = np.lexsort((-attained, cost))
    best = np.maximum.accumulate(attained[order])
    kept = order[np.r_[True, attained[order][1:] > best[:-1]]]
    return kept.astype(np.int64)


def cost_at(cost: Floats, attained: Floats, target: float) -> Cost:
    """Cost at a target attainment, interpolated on the lower envelope."""
    kept = front(cost, attained)
    x, y = attained[kept], cost[kept]
    if not len(x) or x[-1] < target:
        return Cost(math.nan, False)
    if x[0] >= target:
        return Cost(float(y[0]), bool(x[0] > target))
    return Cost(float(np.interp(target, x, y)), False)


def halves(result: Result) -> tuple[Floats, Floats]:
    """Block sums for tuning and testing: the first and the second half of the blocks."""
    middle = result.block_sums.shape[2] // 2
    return result.block_sums[:, :, :middle], result.block_sums[:, :, middle:]


def measured(block_sums: Floats, weights: Floats | None = None) -> tuple[Floats, Floats]:
    """Billed hours (mean over seeds) and attainment of each setting, float64 [settings].

    With `weights` [draws, seeds, blocks], which repeat blocks, both are float64 [draws, settings].
    """
    settings, seeds, blocks = block_sums.shape[:3]
    flat = block_sums[..., : LATE + 1].reshape(settings, seeds * blocks, LATE + 1)
    each = np.ones((1, seeds * blocks)) if weights is None else weights.reshape(len(weights), -1)
    sums = np.moveaxis(np.tensordot(each, flat, axes=(1, 1)), 2, 0)
    cost, attained = sums[BILLED] / 3600 / seeds, 1.0 - sums[LATE] / np.maximum(sums[REQUESTS], 1e-9)
    return (cost[0], attained[0]) if weights is None else (cost, attained)


def tuned(result: Result) -> Indices:
    """Settings on the Pareto front of the first half."""
    return front(*measured(halves(result)[0]))


def frozen(result: Result, target: float) -> Frozen:
    """The cheapest setting that met the target on the first half, else the one that came nearest."""
    train, test = halves(result)
    cost, attained = measured(train)
    kept = attained >= target
    at = int(np.where(kept, cost, np.inf).argmin() if kept.any() else attained.argmax())
    cost, attained = measured(test)
    return Frozen(at, result.names[at], float(cost[at]), float(attained[at]), bool(kept.any()))


def draws(seeds: int, blocks: int, count: int = DRAWS, seed: int = 0) -> Floats:
    """Weights of a paired bootstrap over blocks and seeds, float64 [count, seeds, blocks]."""
    rng = np.random.default_rng(seed)
    days = rng.multinomial(blocks, np.full(blocks, 1 / blocks), count)
    arrivals = rng.multinomial(seeds, np.full(seeds, 1 / seeds), count)
    return (arrivals[:, :, None] * days[:, None, :]).astype(np.float64)


def costs(result: Result, target: float, weights: Floats) -> tuple[Cost, Floats]:
    """Cost on the second half, and in each draw of the bootstrap float64 [draws]."""
    kept = tuned(result)
    test = halves(result)[1][kept]
    point = cost_at(*measured(test), target)
    drawn = [cost_at(cost, attained, target).value for cost, attained in zip(*measured(test, weights), strict=True)]
    return point, np.array(drawn)


def ratio(ours: tuple[Cost, Floats], other: tuple[Cost, Floats]) -> tuple[Ratio, Floats]:
    """Cost of `ours` relative to `other`, and of each draw.

    Draws in which either side missed the target are omitted.
    """
    each = ours[1] / other[1]
    if not math.isfinite(ours[0].value / other[0].value):
        return Ratio(math.nan, math.nan, math.nan), each
    return Ratio(ours[0].value / other[0].value, *interval(each)), each


def gap_closed(ours: float, base: float, oracle: float) -> float:
    """Share of the gap between a baseline and the oracle that is closed; NaN if the oracle is not cheaper."""
    return (base - ours) / (base - oracle) if base > oracle else math.nan


def interval(values: Floats) -> tuple[float, float]:
    """The middle 95 % of the finite values; NaN without any."""
    known = values[np.isfinite(values)]
    if not len(known):
        return math.nan, math.nan
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)
