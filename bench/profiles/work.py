"""Workloads with drawn parameters: kind, family and bottleneck, and the stages of an iteration."""

from typing import NamedTuple

import numpy as np
from bench.profiles.draws import Doubles, Draws
from bench.profiles.labels import BOUNDS, KINDS
from bench.profiles.traits import TRAITS, Traits
from numpy.typing import NDArray

STAGES = ("compute", "memory_bandwidth", "interconnect", "network", "storage", "input", "memory_capacity")
"""Bottlenecks of an iteration, in the order of :attr:`Traits.stages`; the last is offloading to the host."""
MARGIN = 1.35
"""The longest stage is at least this many times the next longest."""
PLAUSIBLE: dict[str, tuple[str, ...]] = {
    "molecular_dynamics": ("batch", "interactive"),
    "reinforcement": ("training", "fine_tuning", "interactive"),
}
"""Kinds of families that do not occur in all kinds."""
ALLOWED: dict[str, tuple[str, ...]] = {
    "training": STAGES,
    "fine_tuning": STAGES,
    "inference": ("compute", "memory_bandwidth", "interconnect", "input", "memory_capacity", "idle"),
    "batch": ("compute", "memory_bandwidth", "storage", "input", "memory_capacity"),
    "interactive": ("compute", "memory_bandwidth", "input", "idle"),
}


class Work(NamedTuple):
    """N workloads, each represented by one of its GPUs.

    ``kind``, ``family`` and ``bound`` are labels; ``stages`` [7, N] sums to 1; ``devices`` are the workload's GPUs and
    ``on_node`` those of its node. ``traits`` [N] are the families' rows.
    """

    kind: list[str]
    family: list[str]
    bound: list[str]
    stages: Doubles
    devices: Doubles
    on_node: Doubles
    traits: list[Traits]

    def of(self, name: str) -> tuple[Doubles, Doubles]:
        """Lower and upper bounds of one trait, ``[N]`` each."""
        ranges = np.array([getattr(one, name) for one in self.traits], np.float64)
        return ranges[:, 0], ranges[:, 1]

    def is_kind(self, *names: str) -> NDArray[np.bool_]:
        """Whether each workload is of one of some kinds."""
        return np.isin(self.kind, names)


def drawn(draws: Draws, families: tuple[str, ...]) -> Work:
    """Draw kinds, families, sizes and bottlenecks, evenly over all possible ones."""
    random, n = draws.random, draws.count
    chosen: list[int] = random.integers(len(families), size=n).tolist()
    family = [families[i] for i in chosen]
    kind = [_pick(PLAUSIBLE.get(f, KINDS), u) for f, u in zip(family, random.random(n).tolist(), strict=True)]
    devices = np.empty(n)
    size = draws(0.0, 1.0)
    for name, (low, high) in {
        "training": (2.0, 10.0),
        "fine_tuning": (0.0, 3.0),
        "inference": (0.0, 6.0),
        "batch": (0.0, 6.0),
        "interactive": (0.0, 0.4),
    }.items():
        of = np.array([k == name for k in kind])
        devices[of] = np.exp2(np.round(low + (high - low) * size[of]))
    traits = [TRAITS[f] for f in family]
    bound: list[str] = []
    for k, held, draw in zip(kind, devices.tolist(), random.random(n).tolist(), strict=True):
        allowed = [b for b in ALLOWED[k] if _possible(b, held)]
        bound.append(_pick(tuple(allowed), draw))
    stages = _shares(draws, kind, bound, devices, traits)
    return Work(kind, family, bound, stages, devices, np.minimum(devices, 8.0), traits)


def _shares(draws: Draws, kind: list[str], bound: list[str], devices: Doubles, traits: list[Traits]) -> Doubles:
    """Share of an iteration in each stage; idle workloads compute when they run."""
    n = draws.count
    weights = np.array([t.stages for t in traits], np.float64).T
    weights = weights * np.exp(0.5 * draws.random.standard_normal(weights.shape))
    for i, stage in enumerate(STAGES):
        may = np.array([stage in ALLOWED[k] and _possible(stage, d) for k, d in zip(kind, devices, strict=True)])
        weights[i, ~may] = 0.0
    weights[STAGES.index("memory_capacity")] = 0.0  # what does not offload does not offload a little
    at = np.array([STAGES.index(b) if b in STAGES else 0 for b in bound])
    most = draws(0.45, 0.80)
    weights[at, np.arange(n)] = 0.0
    weights *= (1.0 - most) / np.maximum(weights.sum(axis=0), 1e-9)
    weights = np.minimum(weights, most / MARGIN)
    weights[at, np.arange(n)] = most
    shares: Doubles = weights / weights.sum(axis=0)
    return shares


def _possible(bound: str, devices: float) -> bool:
    """Whether this many GPUs can have the bottleneck: one GPU has no peer links, one node no network between GPUs."""
    return bound not in ("interconnect", "network") or devices > (1 if bound == "interconnect" else 8)


def _pick(names: tuple[str, ...], draw: float) -> str:
    return names[min(int(draw * len(names)), len(names) - 1)]


assert set(STAGES) | {"idle"} == set(BOUNDS)
