"""NAB by its own rules: earlier detections in a window count more, false ones less the nearer they follow a window.

Lavin and Ahmad, "Evaluating Real-time Anomaly Detection Algorithms", ICMLA 2015. Reimplemented; on the published scores
and thresholds it gives the figures of the benchmark's own scorer.
"""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

PUBLISHED = ("contextOSE", "numenta", "randomCutForest", "windowedGaussian")
PROFILES = ("standard", "reward_low_FP_rate", "reward_low_FN_rate")
Floats = NDArray[np.float64]


class Series(NamedTuple):
    """One labelled series: its values, seconds of a step, windows as pairs of rows, and published raw scores."""

    name: str
    values: Floats
    step_s: float
    windows: list[tuple[int, int]]
    published: dict[str, Floats]

    @property
    def probation(self) -> int:
        """Rows at the start that are not scored."""
        return math.floor(0.15 * min(len(self.values), 5000))


def read(folder: Path) -> list[Series]:
    """All series that are there, by name."""
    keys = ["category", "series"]
    points = pl.read_parquet(folder / "points.parquet").with_columns(pl.col(keys).cast(str))
    windows = pl.read_parquet(folder / "windows.parquet").with_columns(pl.col(keys).cast(str))
    scores = pl.read_parquet(folder / "published_detector_scores.parquet").with_columns(pl.col(keys).cast(str))
    found: list[Series] = []
    for (category, series), part in points.group_by(keys, maintain_order=True):
        same = (pl.col("category") == category) & (pl.col("series") == series)
        time = part["timestamp"].to_numpy().astype("datetime64[us]")
        there = windows.filter(same)
        left = np.searchsorted(time, there["start"].cast(pl.Datetime("us")).to_numpy())
        right = np.searchsorted(time, there["end"].cast(pl.Datetime("us")).to_numpy(), "right") - 1
        spans: list[tuple[int, int]] = list(zip(left.tolist(), right.tolist(), strict=True))
        rows = scores.filter(same).sort("i")
        step_s = float(np.median(np.diff(time).astype(np.float64))) / 1e6
        published = {name: rows[name].to_numpy() for name in PUBLISHED}
        found.append(Series(f"{category}/{series}", part["value"].to_numpy(), step_s, sorted(spans), published))
    return sorted(found, key=lambda s: s.name)


def weights(folder: Path) -> dict[str, dict[str, float]]:
    """Weights of each profile."""
    document: dict[str, Any] = json.loads((folder / "profiles.json").read_text())
    return {name: document[name]["CostMatrix"] for name in PROFILES}


def thresholds(folder: Path) -> dict[str, dict[str, float]]:
    """Published threshold of each detector and profile."""
    document: dict[str, Any] = json.loads((folder / "published_thresholds.json").read_text())
    return {d: {p: float(document[d][p]["threshold"]) for p in PROFILES} for d in PUBLISHED}


def score(series: Series, detected: NDArray[np.bool_], cost: dict[str, float]) -> float:
    """Raw score of one series."""
    total, at, first = 0.0, np.flatnonzero(detected), series.probation
    at = at[at >= first]
    inside = np.zeros(len(at), bool)
    for left, right in series.windows:
        mine = (at >= left) & (at <= right)
        inside |= mine
        if mine.any():
            place = -(right - int(at[mine][0]) + 1) / (right - left + 1)
            total += cost["tpWeight"] * _sigmoid(place) / _sigmoid(-1.0)
        else:
            total -= cost["fnWeight"]
    for i in at[~inside].tolist():
        before = [(left, right) for left, right in series.windows if right < i]
        if before:
            left, right = before[-1]
            total += cost["fpWeight"] * _sigmoid((i - right) / max(right - left, 1))
        else:
            total -= cost["fpWeight"]
    return total


def normalised(all_series: list[Series], detected: list[NDArray[np.bool_]], cost: dict[str, float]) -> float:
    """Score in 0..100 where 0 is a detector that reports nothing and 100 one that reports each window at once."""
    count = sum(len(s.windows) for s in all_series)
    least = -cost["fnWeight"] * count
    total = sum(score(s, d, cost) for s, d in zip(all_series, detected, strict=True))
    return 100.0 * (total - least) / (cost["tpWeight"] * count - least)


def held_out(
    all_series: list[Series], scores: list[Floats], cost: dict[str, float], grid: Floats
) -> tuple[float, float, float]:
    """Scores with the threshold of each half from the other half, of each category from the others, and the best."""
    halves = [i % 2 for i in range(len(all_series))]
    categories = [s.name.split("/")[0] for s in all_series]
    totals = np.array(
        [[score(s, x >= at, cost) for at in grid.tolist()] for s, x in zip(all_series, scores, strict=True)]
    )
    count = sum(len(s.windows) for s in all_series)
    least, most = -cost["fnWeight"] * count, cost["tpWeight"] * count

    def apart(part: list[Any]) -> float:
        folds = [np.array([p == one for p in part]) for one in sorted(set(part))]
        return float(sum(totals[f][:, int(totals[~f].sum(axis=0).argmax())].sum() for f in folds))

    found = apart(halves), apart(categories), float(totals.sum(axis=0).max())
    first, second, third = (100.0 * (total - least) / (most - least) for total in found)
    return first, second, third


def _sigmoid(x: float) -> float:
    return -1.0 if x > 3.0 else 2.0 / (1.0 + math.exp(5.0 * x)) - 1.0
