"""Memory of jobs over some hours: leaks, and what must not be taken for one; and when the guard warns of them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.profile import filling
from flyball_streams.engine.node.profile.memory_guard import HORIZON_S

SAMPLE_S = 5.0
SHAPES = ("leak", "leak in steps", "pool that fills", "flat", "sawtooth", "epochs")


class Warned(NamedTuple):
    """One shape: of so many jobs, those that ran out, those warned before that, and the lead times in seconds."""

    shape: str
    jobs: int
    hours: float
    ran_out: int
    warned_before: int
    false: int
    lead_s: tuple[float, ...]


def courses(shape: str, n: int, hours: float, random: np.random.Generator) -> NDArray[np.float32]:
    """Share of memory that is used, float32[T, N]; what passes 1 has run out."""
    t = np.arange(0.0, hours * 3600.0, SAMPLE_S)[:, None]
    base = random.uniform(0.3, 0.8, n)
    noise = random.uniform(0.0005, 0.004, n) * random.standard_normal((len(t), n))
    if shape.startswith("leak"):
        full_s = np.exp(random.uniform(np.log(1800.0), np.log(0.9 * hours * 3600.0), n))
        begins_s = random.uniform(0.0, 0.1, n) * hours * 3600.0
        grown = (1.0 - base) * np.maximum(t - begins_s, 0.0) / np.maximum(full_s - begins_s, 600.0)
        if shape == "leak in steps":  # an allocator takes memory in blocks
            block = random.uniform(0.002, 0.02, n)
            grown = np.floor(grown / block) * block
        x = base + grown + noise
    elif shape == "pool that fills":
        tau_s = np.exp(random.uniform(np.log(60.0), np.log(900.0), n))
        x = base * 0.5 + (random.uniform(0.7, 0.96, n) - base * 0.5) * -np.expm1(-t / tau_s) + noise
    elif shape == "sawtooth":
        every_s = np.exp(random.uniform(np.log(120.0), np.log(3600.0), n))
        x = base + random.uniform(0.05, 0.18, n) * ((t / every_s + random.random(n)) % 1.0) + noise
    elif shape == "epochs":
        every_s = random.uniform(600.0, 3600.0, n)
        x = base + 0.1 * (np.floor(t / every_s) % 2.0) * random.random(n) + noise
    else:
        x = base + noise
    return x.astype(np.float32)


def judged(shape: str, n: int, hours: float, seed: int) -> Warned:
    """Feed courses to the guard's model as the engine does; a job that ran out sends nothing more."""
    x = courses(shape, n, hours, np.random.default_rng([seed, *map(ord, shape)]))
    out = np.where((x >= 1.0).any(axis=0), (x >= 1.0).argmax(axis=0) * SAMPLE_S, np.inf)
    first, everyone = np.full(n, np.inf), np.ones(n, bool)
    state = filling.init(n)
    for i, row in enumerate(x):
        now_s = i * SAMPLE_S
        state, whole = filling.step(state, np.where(now_s < out, row, np.float32(np.nan)), everyone, now_s)
        if whole:
            lead = filling.summarize(state).lead_s
            loud = (lead < HORIZON_S) & (now_s < out) & ~np.isfinite(first)
            first[loud] = now_s
    before = np.isfinite(out) & (first < out)
    return Warned(
        shape=shape,
        jobs=n,
        hours=n * hours,
        ran_out=int(np.isfinite(out).sum()),
        warned_before=int(before.sum()),
        false=int((np.isfinite(first) & ~np.isfinite(out)).sum()),
        lead_s=tuple((out[before] - first[before]).tolist()),
    )
