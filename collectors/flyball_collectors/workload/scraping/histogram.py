"""Quantiles of histograms, as Prometheus interpolates them."""

from collections.abc import Mapping

from flyball_collectors.base import NAN


def quantile(q: float, buckets: Mapping[float, float]) -> float:
    """The ``q`` quantile of observations with cumulative counts by upper bound, the last of which is infinite.

    Linear within a bucket, whose lower bound is the one below, or 0 for the lowest if its bound is above 0. Values
    beyond the last finite bound are reported as that bound. NaN without observations or without an infinite bound.
    """
    bounds = sorted(buckets)
    if len(bounds) < 2 or bounds[-1] != float("inf"):
        return NAN
    counts: list[float] = []
    for bound in bounds:  # a bucket that is read a moment later may be ahead of the next
        counts.append(max(buckets[bound], counts[-1] if counts else 0.0))
    if not counts[-1] > 0:
        return NAN
    rank = q * counts[-1]
    place = next(i for i, counted in enumerate(counts) if counted >= rank)
    if place == len(bounds) - 1:
        return bounds[-2]
    if place == 0 and bounds[0] <= 0:
        return bounds[0]
    low, below = (bounds[place - 1], counts[place - 1]) if place else (0.0, 0.0)
    inside = counts[place] - below
    return bounds[place] if inside <= 0 else low + (bounds[place] - low) * (rank - below) / inside
