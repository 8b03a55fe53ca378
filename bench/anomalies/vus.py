"""Volume under the surface of precision, recall and a buffer around each anomaly (VUS-PR), without point adjustment.

Paparrizos, Boniol, Palpanas, Tsay, Elmore and Franklin, "Volume under the surface: a new accuracy evaluation measure
for time-series anomaly detection", PVLDB 15(11), 2022. A buffer of w points is half before and half after each anomaly;
in it the label falls as sqrt(1 - d / w) with the distance d. For a threshold that n points reach,

    precision = sum of their labels / n
    recall    = min(1, sum of their labels / P) * (share of anomalies with their buffers that have such a point)
    P         = anomalous points + half of the sum of labels of such points in buffers

and the area under the curve of a buffer is the sum of the steps of recall times precision. The volume is the mean area
over w = 0 .. longest. With one anomaly and no buffer the area is the average precision.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST, THRESHOLDS = 200, 250
"""As in TSB-AD: twice a window of 100 points, and thresholds at as many ranks."""
Floats = NDArray[np.float64]


def anomalies(label: NDArray[np.bool_]) -> NDArray[np.int64]:
    """First and last point of each run of true labels, [n, 2]."""
    steps = np.diff(np.concatenate([[0], label.astype(np.int8), [0]]))
    return np.stack([np.flatnonzero(steps == 1), np.flatnonzero(steps == -1) - 1], axis=1)


def buffered(label: NDArray[np.bool_], runs: NDArray[np.int64], width: int) -> Floats:
    """Labels in 0..1 with a buffer of ``width`` points around each run."""
    found, half, n = label.astype(np.float64), width // 2, len(label)
    spans: list[tuple[int, int]] = runs.tolist()
    for first, last in spans:
        after: NDArray[np.int64] = np.arange(last + 1, min(last + half + 1, n))
        before: NDArray[np.int64] = np.arange(max(first - half, 0), first)
        if width:
            found[after] += np.sqrt(1.0 - (after - last) / width)
            found[before] += np.sqrt(1.0 - (first - before) / width)
    return np.minimum(found, 1.0)


def areas(
    score: NDArray[np.floating[Any]], label: NDArray[np.bool_], longest: int = LONGEST, thresholds: int = THRESHOLDS
) -> Floats:
    """Area under precision and recall for each buffer of 0 .. ``longest`` points; scores and labels are [T]."""
    runs, n = anomalies(label), len(score)
    order = np.argsort(-score, kind="stable")
    ranked = score[order]
    least = ranked[np.linspace(0, n - 1, thresholds).astype(int)]
    reached = np.searchsorted(-ranked, -least, side="right")
    found = np.zeros(longest + 1)
    for width in range(longest + 1):
        half, soft = width // 2, buffered(label, runs, width)
        hits = np.cumsum(soft[order])[reached - 1]
        beside = np.cumsum(np.where(label, 0.0, soft)[order])[reached - 1]
        apart = np.append(True, runs[:-1, 1] + half < runs[1:, 0] - half)
        begins, ends = runs[apart, 0] - half, np.append(runs[:-1, 1][apart[1:]], runs[-1, 1]) + half
        tops = np.sort([score[max(a, 0) : b + 1].max() for a, b in zip(begins.tolist(), ends.tolist(), strict=True)])
        detected = (len(tops) - np.searchsorted(tops, least, side="left")) / len(tops)
        recall = np.minimum(hits / (label.sum() + beside / 2.0), 1.0) * detected
        found[width] = float((np.diff(recall, prepend=0.0) * hits / reached).sum())
    return found


def vus_pr(
    score: NDArray[np.floating[Any]], label: NDArray[np.bool_], longest: int = LONGEST, thresholds: int = THRESHOLDS
) -> float:
    """The volume, 0..1."""
    return float(areas(score, label, longest, thresholds).mean())
