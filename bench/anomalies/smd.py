"""SMD without point adjustment: hosts by all their series together, streamed, against PCA fitted on the first half.

Ours streams the first half and then the scored half of each machine, and sees nothing that comes later. PCA is fitted
on the first half. Constants of ours were chosen on the machines of :func:`tuned`, so those have rows of their own.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from bench.anomalies.vus import areas
from numpy.typing import NDArray

from flyball_models.anomaly import subspace

Floats = NDArray[np.float64]
TICK_S, NOISE = 60.0, 0.01
"""Series are scaled to 0..1: one in a hundred of what they had means nothing."""
DRAWS = 2000
REFERENCE = "PCA, rank 8, SPE"


class Machine(NamedTuple):
    """Series of the first and the scored half, [T, M], and the labels of the second, [T]."""

    name: str
    before: Floats
    scored: Floats
    label: NDArray[np.bool_]


def read(folder: Path) -> list[Machine]:
    """All machines that are there, by name."""
    halves = [
        pl.read_parquet(folder / f"{part}.parquet").with_columns(pl.col("machine").cast(str)).sort("machine", "t_min")
        for part in ("train", "test")
    ]
    series = [c for c in halves[0].columns if c not in ("machine", "t_min", "label")]
    found: list[Machine] = []
    for name in halves[0]["machine"].unique().sort().to_list():
        before, scored = (half.filter(pl.col("machine") == name) for half in halves)
        old, new = (half.select(series).to_numpy().astype(np.float64) for half in (before, scored))
        found.append(Machine(name, old, new, scored["label"].to_numpy().astype(bool)))
    return found


def tuned(machines: list[Machine]) -> set[str]:
    """Half of the machines, by a fixed seed: those that were looked at while constants were chosen."""
    order: list[int] = np.random.default_rng(16).permutation(len(machines)).tolist()
    return {machines[i].name for i in order[: len(machines) // 2]}


def streamed(machines: list[Machine], config: subspace.Config = subspace.DEFAULT) -> list[Floats]:
    """Scores of the scored half of each machine, all streamed side by side."""
    both = [np.concatenate([m.before, m.scored]) for m in machines]
    x = np.full((max(map(len, both)), both[0].shape[1], len(both)), np.nan, np.float32)
    for i, values in enumerate(both):
        x[: len(values), :, i] = values
    state, noise = subspace.init(len(both), x.shape[1]), np.full(x.shape[1], NOISE, np.float32)
    scores = np.zeros((len(x), len(both)))
    for tick, window in enumerate(x):
        state, found = subspace.step(state, window, noise, TICK_S, config)
        scores[tick] = found.score
    return [scores[len(m.before) : len(values), i] for i, (m, values) in enumerate(zip(machines, both, strict=True))]


def pca(rank: float, t2: bool = False, event_s: float = 0.0) -> Callable[[Machine], Floats]:
    """Reconstruction error (SPE) of PCA; a ``rank`` below 1 is a share of the variance.

    With ``t2`` the distance within the subspace is added, each in multiples of its mean. ``event_s`` is the time
    constant of a running mean, 0 for none.
    """

    def scores(machine: Machine) -> Floats:
        mean, scale = machine.before.mean(axis=0), np.maximum(machine.before.std(axis=0), 1e-3)
        old, new = (machine.before - mean) / scale, np.clip((machine.scored - mean) / scale, -50.0, 50.0)
        found, vectors = np.linalg.eigh(np.cov(old.T))
        values, vectors = found[::-1], vectors[:, ::-1]
        kept = int(rank) if rank >= 1 else int((np.cumsum(values) < rank * values.sum()).sum()) + 1
        basis = vectors[:, :kept]

        def parts(z: Floats) -> tuple[Floats, Floats]:
            inside = z @ basis
            return ((z - inside @ basis.T) ** 2).sum(axis=1), (inside**2 / values[:kept]).sum(axis=1)

        spe, within = parts(new)
        if t2:
            usual = parts(old)
            spe = spe / usual[0].mean() + within / usual[1].mean()
        return smoothed(spe, event_s) if event_s else spe

    return scores


def smoothed(score: Floats, event_s: float) -> Floats:
    """The running mean of a score."""
    gain, found = -np.expm1(-TICK_S / event_s), score.copy()
    for i in range(1, len(score)):
        found[i] = found[i - 1] + gain * (score[i] - found[i - 1])
    return found


RIVALS: dict[str, Callable[[Machine], Floats]] = {
    REFERENCE: pca(8),
    "PCA, 90 % of the variance, SPE": pca(0.9),
    "PCA, rank 4, SPE and T2": pca(4, t2=True),
    "PCA, rank 8, SPE and T2": pca(8, t2=True),
    "PCA, rank 8, SPE, running mean": pca(8, event_s=subspace.DEFAULT.event_s),
    "PCA, rank 4, SPE and T2, running mean": pca(4, t2=True, event_s=subspace.DEFAULT.event_s),
}


def rows(data: Path, quick: bool) -> Iterator[dict[str, Any]]:
    """VUS-PR and area without a buffer of each detector, mean over machines, and the ratio to PCA with its spread.

    ``quick`` takes two machines of either half.
    """
    machines = read(data / "smd")
    looked_at = tuned(machines)
    if quick:
        machines = [m for group in (True, False) for m in [m for m in machines if (m.name in looked_at) == group][:2]]
    mine, random = streamed(machines), np.random.default_rng(1)
    scores = {
        "subspace, which ships": mine,
        "subspace, without running mean": streamed(machines, subspace.DEFAULT._replace(event_s=1e-3)),
        **{name: [rival(m) for m in machines] for name, rival in RIVALS.items()},
        "random": [random.uniform(size=len(m.label)) for m in machines],
    }
    surfaces = {k: np.array([areas(s, m.label) for s, m in zip(v, machines, strict=True)]) for k, v in scores.items()}
    for group in ("held out", "looked at"):
        at = np.array([(m.name in looked_at) == (group == "looked at") for m in machines])
        group_of = [machines[i] for i in np.flatnonzero(at).tolist()]
        reference = surfaces[REFERENCE][at].mean(axis=1)
        draws = np.random.default_rng(2).integers(0, len(reference), (DRAWS, len(reference)))
        for name, surface in surfaces.items():
            volume = surface[at].mean(axis=1)
            ratios = volume[draws].mean(axis=1) / reference[draws].mean(axis=1)
            yield {
                "part": "vus",
                "machines": group,
                "detector": name,
                "vus_pr": float(volume.mean()),
                "no_buffer": float(surface[at, 0].mean()),
                "by_machine": {m.name: v for m, v in zip(group_of, volume.tolist(), strict=True)},
                "ratio": float(volume.mean() / reference.mean()),
                "ratio_90": np.quantile(ratios, (0.05, 0.95)).tolist(),
                "better_on": int((volume > reference).sum()),
            }


TITLES = ("machines", "detector", "VUS-PR", "no buffer", "of PCA (90 %)", "better on")


def rows_of(found: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Lines of the table."""
    for r in found:
        if r["part"] == "vus":
            low, high = r["ratio_90"]
            yield (
                f"{r['machines']}, {len(r['by_machine'])}",
                r["detector"],
                f"{r['vus_pr']:.3f}",
                f"{r['no_buffer']:.3f}",
                f"{r['ratio']:.2f} ({low:.2f} to {high:.2f})",
                f"{r['better_on']} of {len(r['by_machine'])}",
            )
