"""Baseline: the recommendations of the Kubernetes vertical pod autoscaler.

Percentiles 90, 50 and 95 of a decaying histogram, times 1.15; the lower bound is lowered and the upper one raised while
history is short (kubernetes/autoscaler, vertical-pod-autoscaler/pkg/recommender/logic).
"""

from typing import NamedTuple

import numpy as np

from flyball_models.rightsizing.histogram import Floats, Grid, percentile
from flyball_models.rightsizing.usage import Config

DAY_S = 86_400.0
CPU = Config(Grid(0.01, 1.05, 1_000.0), DAY_S)
"""Cores, by samples; the original weighs a sample by the request in force, which a series does not have."""
MEMORY = Config(Grid(1e7, 1.05, 1e12), DAY_S, DAY_S)
"""Bytes, by the peak of each day."""


class Settings(NamedTuple):
    """Percentiles of the three recommendations, and the margin on all of them."""

    target: float = 0.9
    lower: float = 0.5
    upper: float = 0.95
    margin: float = 0.15


class Recommendation(NamedTuple):
    """Recommended request and its bounds, all [S]; NaN without data."""

    lower: Floats
    target: Floats
    upper: Floats


DEFAULT = Settings()


def recommend(weights: Floats, age_s: Floats, grid: Grid, settings: Settings = DEFAULT) -> Recommendation:
    """Recommendation from the weights [B, S] of the past and the age [S] of each series."""
    days = np.maximum(age_s, 60.0) / DAY_S
    lower, target, upper = (
        percentile(weights, p, grid) * (1.0 + settings.margin)
        for p in (settings.lower, settings.target, settings.upper)
    )
    return Recommendation(lower * (1.0 + 0.001 / days) ** -2.0, target, upper * (1.0 + 1.0 / days))
