"""Training and judging of profiles: features of generated work, and the table that is fitted to them."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from bench.profiles.draws import Part
from bench.profiles.labels import BOUNDS, FAMILIES, KINDS
from bench.profiles.series import Series, generate
from numpy.typing import NDArray

from flyball_models.profile import course, kinds, signals
from flyball_models.profile.course import FEATURES

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
CHUNK = 500
SHRINKAGE = 0.02
"""Part of the pooled covariance that is taken from the diagonal."""
KNOWN_SHARE = 0.99
"""Part of known work that must not be called strange."""


class Labelled(NamedTuple):
    """Features float32[F, N] and the labels of N workloads."""

    x: Floats
    kind: NDArray[np.str_]
    family: NDArray[np.str_]
    bound: NDArray[np.str_]

    def only(self, chosen: NDArray[np.bool_]) -> "Labelled":
        """Some of them."""
        return Labelled(self.x[:, chosen], self.kind[chosen], self.family[chosen], self.bound[chosen])


def labelled(count: int, seed: int, part: Part, families: tuple[str, ...] = FAMILIES, seconds: int = 300) -> Labelled:
    """Generate workloads and their features after some seconds of telemetry."""
    parts: list[Series] = []
    features: list[Floats] = []
    for i in range(0, count, CHUNK):
        series = generate(min(CHUNK, count - i), seed + i, families=families, part=part, seconds=seconds)
        parts.append(series._replace(gpu=series.gpu[:0], host=series.host[:0], page=series.page[:0]))
        features.append(features_of(series))
    names = [np.array([x for one in parts for x in of(one)]) for of in (_kind, _family, _bound)]
    return Labelled(np.concatenate(features, axis=1), names[0], names[1], names[2])


def _kind(series: Series) -> list[str]:
    return series.kind


def _family(series: Series) -> list[str]:
    return series.family


def _bound(series: Series) -> list[str]:
    return series.bound


def features_of(series: Series) -> Floats:
    """Features of each workload of a series at its end, float32[F, N]."""
    n = len(series.kind)
    state, everyone = course.init(n), np.ones(n, bool)
    unknown = np.full(n, np.nan, np.float32)
    on_node, gang = series.on_node.astype(np.float32), series.devices.astype(np.float32)
    elapsed_s = float(series.times_s[1] - series.times_s[0])
    for gpu, host, page in zip(series.gpu, series.host, series.page, strict=True):
        reading = signals.Reading(gpu, host, page, unknown, on_node, gang, 1.0)
        state = course.step(state, signals.signals(reading), everyone, elapsed_s)
    return course.summarize(state)


def fit(data: Labelled, held: Labelled) -> kinds.Table:
    """Fit a table to ``data``; temperatures and the bound of strangeness are those of ``held``, which it was not."""
    x = data.x.T.astype(np.float64)
    mean, scale = moments(x)
    z = np.clip((x - mean) / scale, -8.0, 8.0)
    names = np.char.add(np.char.add(np.char.add(np.char.add(data.kind, "|"), data.family), "|"), data.bound)
    classes, of = np.unique(names, return_inverse=True)
    centres = np.zeros((len(classes), z.shape[1]))
    for i in range(len(classes)):
        mine = z[of == i]
        seen = np.isfinite(mine).any(axis=0)
        centres[i, seen] = np.nanmean(mine[:, seen], axis=0)
    rest = np.nan_to_num(np.where(np.isfinite(z), z - centres[of], 0.0))
    both = np.isfinite(z).astype(np.float64)
    covariance = rest.T @ rest / np.maximum(both.T @ both, 1.0)
    covariance = _positive((1.0 - SHRINKAGE) * covariance + SHRINKAGE * np.diag(np.diag(covariance)))
    parts = [str(name).split("|") for name in classes]
    known = [sorted({p[i] for p in parts}, key=order.index) for i, order in enumerate((KINDS, FAMILIES, BOUNDS))]
    table = kinds.Table(
        kinds=tuple(known[0]),
        families=tuple(known[1]),
        bounds=tuple(known[2]),
        mean=mean,
        scale=scale,
        centres=centres,
        weights=np.bincount(of) / len(of),
        covariance=covariance,
        kind_of=np.array([known[0].index(p[0]) for p in parts]),
        family_of=np.array([known[1].index(p[1]) for p in parts]),
        bound_of=np.array([known[2].index(p[2]) for p in parts]),
        temperatures=(1.0, 1.0, 1.0),
        novel=1.0,
    )
    return _calibrated(table, held)


def moments(x: Doubles) -> tuple[Doubles, Doubles]:
    """Mean and standard deviation of the known values of each column; 0 and 1 where none is known."""
    known = np.isfinite(x)
    n = known.sum(axis=0)
    mean = np.where(known, x, 0.0).sum(axis=0) / np.maximum(n, 1)
    square = np.where(known, (x - mean) ** 2, 0.0).sum(axis=0) / np.maximum(n, 1)
    return mean, np.where(n > 0, np.sqrt(square) + 1e-3, 1.0)


def _positive(covariance: Doubles) -> Doubles:
    """The nearest matrix without directions of (nearly) no variance: pairs were seen together unequally often."""
    values, vectors = np.linalg.eigh(covariance)
    found: Doubles = (vectors * np.maximum(values, 0.01)) @ vectors.T
    return found


def _calibrated(table: kinds.Table, held: Labelled) -> kinds.Table:
    """Temperatures with the least logarithmic loss, and the distance that all but a hundredth keep."""
    best: list[float] = []
    for at, names in enumerate((held.kind, held.family, held.bound)):
        losses: list[tuple[float, float]] = []
        for temperature in (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0):
            tried = replace(table, temperatures=(temperature, temperature, temperature))
            p = kinds.classify(held.x, tried)[at]
            order = (table.kinds, table.families, table.bounds)[at]
            true = p[[order.index(str(name)) for name in names], np.arange(len(names))]
            losses.append((float(-np.log(np.maximum(true, 1e-9)).mean()), temperature))
        best.append(min(losses)[1])
    far = kinds.classify(held.x, table).strangeness
    return replace(table, temperatures=(best[0], best[1], best[2]), novel=float(np.quantile(far, KNOWN_SHARE)))


def document(table: kinds.Table) -> dict[str, object]:
    """What is published of a table, rounded to four digits: it is judged as it is published."""

    def short(values: Doubles) -> list[float]:
        return [float(f"{x:.4g}") for x in values.tolist()]

    return {
        "features": list(FEATURES),
        "kinds": list(table.kinds),
        "families": list(table.families),
        "bounds": list(table.bounds),
        "temperatures": list(table.temperatures),
        "novel": float(f"{table.novel:.4g}"),
        "mean": short(table.mean),
        "scale": short(table.scale),
        "covariance": short(table.covariance[np.tril_indices(len(FEATURES))]),
        "classes": [
            {
                "kind": table.kinds[table.kind_of[i]],
                "family": table.families[table.family_of[i]],
                "bound": table.bounds[table.bound_of[i]],
                "weight": float(f"{table.weights[i]:.4g}"),
                "centre": short(table.centres[i]),
            }
            for i in range(len(table.centres))
        ],
    }
