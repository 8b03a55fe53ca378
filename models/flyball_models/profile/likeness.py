"""Similarity of workloads, by their features."""

import numpy as np
from numpy.typing import NDArray

from flyball_models.profile.course import FEATURES
from flyball_models.profile.kinds import Table

Doubles = NDArray[np.float64]
LEAST_COMMON = 8
"""Minimum number of features that both must have."""
_SIZE = [FEATURES.index("gang")]
"""Features of a workload's size, which do not show its kind."""


def similarities(one: Doubles, others: Doubles, table: Table) -> Doubles:
    """Similarity 0..1 of one workload, standardised features [F], to M others [F, M]; 1 is the same.

    ``exp(-d2 / 2)`` with d2 the mean, over the features that both have, of the squared difference in units of the
    spread within a class of the table.
    """
    spread = np.diag(table.covariance)[:, None]
    apart = (others - one[:, None]) ** 2 / spread
    apart[_SIZE] = np.nan
    known = np.isfinite(apart)
    common = known.sum(axis=0)
    d2 = np.where(known, apart, 0.0).sum(axis=0) / np.maximum(common, 1)
    return np.where(common >= LEAST_COMMON, np.exp(-0.5 * d2), 0.0)
