"""Kind and bottleneck of a workload, from the features of its GPUs: plain linear discriminant analysis.

A class is a kind, model family and bottleneck. Each is a centre in the feature space; all share one covariance.
With z the standardised features that are known and S the covariance of those alone,

    d2_c = (z - m_c)' S^-1 (z - m_c),   p(c) ~ w_c exp(-d2_c / 2 T)

so that unmeasured features are left out exactly and not imputed. Probabilities of kinds, families and bottlenecks are
sums over the classes; T, one for each of the three, makes them calibrated. A workload farther from all centres than
nearly all training data belongs to no known family. Fisher, "The use of multiple measurements in taxonomic problems",
Annals of Eugenics 7(2), 1936; McLachlan, "Discriminant Analysis and Statistical Pattern Recognition", 1992, chapters 3
and 6.

The table is made by ``bench/profiles/train.py`` and published as ``kinds.json`` beside this file.
"""

import json
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.profile.course import FEATURES

Doubles = NDArray[np.float64]
LEAST_KNOWN = 5
"""Minimum number of known features for a classification."""


@dataclass(frozen=True, eq=False)
class Table:
    """A trained table of C classes over the F features of :data:`~flyball_models.profile.course.FEATURES`.

    ``mean`` and ``scale`` [F] standardise; ``centres`` [C, F], ``weights`` [C] and ``covariance`` [F, F] are those
    above. ``kind_of``, ``family_of`` and ``bound_of`` [C] are places in ``kinds``, ``families`` and ``bounds``;
    ``temperatures`` are theirs. ``novel`` is the d2 per known feature above which work belongs to no known family.
    """

    kinds: tuple[str, ...]
    families: tuple[str, ...]
    bounds: tuple[str, ...]
    mean: Doubles
    scale: Doubles
    centres: Doubles
    weights: Doubles
    covariance: Doubles
    kind_of: NDArray[np.int64]
    family_of: NDArray[np.int64]
    bound_of: NDArray[np.int64]
    temperatures: tuple[float, float, float]
    novel: float


class Classes(NamedTuple):
    """Probabilities ``kind`` [K, N], ``family`` [M, N] and ``bound`` [B, N]; NaN where too little is known.

    ``strangeness`` [N] is the distance to the nearest class, relative to the distance from which on work belongs to no
    known family: above 1 it belongs to none.
    """

    kind: Doubles
    family: Doubles
    bound: Doubles
    strangeness: Doubles


def classify(features: NDArray[np.float32], table: Table) -> Classes:
    """Classes of N devices or workloads from their features, float32[F, N], NaN where unknown.

    Work on one GPU cannot wait for links between several.
    """
    d2, known = distances(features, table)
    nearest = d2.min(axis=1, initial=np.inf)
    d2 = d2 - nearest[:, None]
    enough = known >= LEAST_KNOWN
    alone = features[_GANG] < _TWO
    shared, members = _members(table)
    if alone.any():
        d2[np.ix_(alone, shared)] = np.inf
    found: list[Doubles] = []
    for of_class, temperature in zip(members, table.temperatures, strict=True):
        p = table.weights * np.exp(-0.5 * d2 / temperature)
        sums = (p / p.sum(axis=1, keepdims=True)) @ of_class
        sums[~enough] = np.nan
        found.append(np.ascontiguousarray(sums.T))
    strangeness = np.where(enough, nearest / np.maximum(known, 1) / table.novel, np.nan)
    return Classes(found[0], found[1], found[2], strangeness)


def distances(features: NDArray[np.float32], table: Table) -> tuple[Doubles, NDArray[np.int64]]:
    """d2 to each class, float64[N, C], and the number of known features [N]; devices with the same gaps go together."""
    z = (features.T.astype(np.float64) - table.mean) / table.scale
    z = np.clip(z, -_FAR, _FAR)
    known = np.isfinite(z)
    d2 = np.zeros((len(z), len(table.centres)))
    alike: dict[bytes, list[int]] = {}
    flags, width = known.tobytes(), known.shape[1]
    for row in range(len(known)):
        alike.setdefault(flags[row * width : (row + 1) * width], []).append(row)
    for pattern, in_order in alike.items():
        rows, columns = np.array(in_order), np.flatnonzero(np.frombuffer(pattern, bool))
        if len(columns):
            whiten, centres, squares = _whitened(table, pattern)
            white = z[rows[:, None], columns] @ whiten
            d2[rows] = np.maximum((white**2).sum(axis=1)[:, None] + squares - 2.0 * white @ centres, 0.0)
    return d2, known.sum(axis=1)


@lru_cache(maxsize=16)
def _members(table: Table) -> tuple[NDArray[np.bool_], tuple[Doubles, ...]]:
    """Which classes are bound by links between GPUs, [C]; the classes of each kind, family and bottleneck, 0 or 1."""
    shared = np.isin(table.bound_of, [i for i, name in enumerate(table.bounds) if name in _BETWEEN])
    parts = (table.kinds, table.kind_of), (table.families, table.family_of), (table.bounds, table.bound_of)
    return shared, tuple((of[:, None] == np.arange(len(names))).astype(np.float64) for names, of in parts)


@lru_cache(maxsize=256)
def _whitened(table: Table, pattern: bytes) -> tuple[Doubles, Doubles, Doubles]:
    """Whitening transform of the known features, [K, K], the whitened centres, [K, C], and their squares [C]."""
    columns = np.flatnonzero(np.frombuffer(pattern, bool))
    lower = np.linalg.cholesky(table.covariance[np.ix_(columns, columns)])
    whiten = np.asarray(np.linalg.inv(lower).T, np.float64)
    centres = np.asarray((table.centres[:, columns] @ whiten).T, np.float64)
    return whiten, centres, np.asarray((centres**2).sum(axis=0), np.float64)


def standardised(features: NDArray[np.float32], table: Table) -> Doubles:
    """The features in standard deviations of all work, float64[F, N]; NaN where unknown."""
    z = (features.astype(np.float64) - table.mean[:, None]) / table.scale[:, None]
    return np.asarray(np.clip(z, -_FAR, _FAR), np.float64)


def from_json(text: str) -> Table:
    """Table from its document; raises ``ValueError`` when it was trained on other features."""
    raw = json.loads(text)
    if tuple(raw["features"]) != FEATURES:
        raise ValueError("kinds.json was trained on other features; run bench/profiles/train.py")
    half = np.zeros((len(FEATURES), len(FEATURES)))
    half[np.tril_indices(len(FEATURES))] = raw["covariance"]
    classes = raw["classes"]
    kinds, families, bounds = (tuple(raw[name]) for name in ("kinds", "families", "bounds"))
    return Table(
        kinds=kinds,
        families=families,
        bounds=bounds,
        mean=np.array(raw["mean"]),
        scale=np.array(raw["scale"]),
        centres=np.array([one["centre"] for one in classes]),
        weights=np.array([one["weight"] for one in classes]),
        covariance=half + np.tril(half, -1).T,
        kind_of=np.array([kinds.index(one["kind"]) for one in classes]),
        family_of=np.array([families.index(one["family"]) for one in classes]),
        bound_of=np.array([bounds.index(one["bound"]) for one in classes]),
        temperatures=(raw["temperatures"][0], raw["temperatures"][1], raw["temperatures"][2]),
        novel=raw["novel"],
    )


@cache
def shipped() -> Table:
    """The table that comes with the package."""
    return from_json(files("flyball_models.profile").joinpath("kinds.json").read_text())


_GANG = FEATURES.index("gang")
_TWO = np.log10(2.5) / 3.0
"""A workload of one GPU has less than this value of the feature, one of two GPUs more."""
_BETWEEN = ("interconnect", "network")
_FAR = 8.0
"""Features are clipped to this many standard deviations."""
