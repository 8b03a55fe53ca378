"""VUS-PR against its definition, one threshold and one point at a time, and against average precision."""

from typing import Any

import numpy as np
import pytest
from bench.anomalies.budget import precision
from bench.anomalies.vus import anomalies, areas, vus_pr

Floats = np.ndarray[Any, Any]


def slowly(score: Floats, label: Floats, width: int, thresholds: int) -> float:
    """The area for one buffer, by the words of the definition."""
    n, runs = len(score), [(int(a), int(b)) for a, b in anomalies(label)]
    soft: list[float] = []
    for i in range(n):
        near = [max(a - i, i - b, 0) for a, b in runs]
        inside = [np.sqrt(1 - d / width) for d in near if 0 < d <= width // 2]
        soft.append(1.0 if 0 in near else min(1.0, sum(inside)))
    places: list[list[int]] = []
    for a, b in runs:
        around = list(range(max(a - width // 2, 0), min(b + width // 2, n - 1) + 1))
        if places and places[-1][-1] >= a - width // 2:
            places[-1] += around
        else:
            places.append(around)
    area, before = 0.0, 0.0
    for rank in np.linspace(0, n - 1, thresholds).astype(int):
        least = sorted(score, reverse=True)[rank]
        found = [i for i in range(n) if score[i] >= least]
        hits = sum(soft[i] for i in found)
        beside = sum(soft[i] for i in found if not label[i])
        share = sum(any(score[i] >= least for i in place) for place in places) / len(places)
        recall = min(1.0, hits / ((2 * label.sum() + beside) / 2)) * share
        area, before = area + (recall - before) * hits / len(found), recall
    return area


@pytest.mark.parametrize("seed", range(4))
def test_areas_are_those_of_the_definition(seed: int) -> None:
    random = np.random.default_rng(seed)
    label = np.zeros(120, bool)
    for first in random.choice(115, 4, replace=False):
        label[first : first + random.integers(1, 8)] = True
    score = np.round(random.normal(size=120) + label, 1)  # with ties
    expected = [slowly(score, label, width, 25) for width in range(13)]
    np.testing.assert_allclose(areas(score, label, 12, 25), expected, rtol=1e-12)
    assert vus_pr(score, label, 12, 25) == pytest.approx(np.mean(expected))


def test_one_anomaly_without_a_buffer_has_the_average_precision() -> None:
    random = np.random.default_rng(5)
    label = np.zeros(300, bool)
    label[100:130] = True
    score = random.normal(size=300) + label
    assert areas(score, label, 0, 300)[0] == pytest.approx(precision(score, label))
    assert vus_pr(label.astype(float), label, 0) == pytest.approx(1.0)
