"""Variation of a device's recent use: its time scale, regularity and burstiness.

A window of W = 2^L values is split by the orthonormal Haar wavelet into details of L scales; those of scale k are
differences between means of neighbouring stretches of 2^(k-1) ticks:

    a_k = (a_{k-1}[2i] + a_{k-1}[2i+1]) / sqrt 2,   d_k = (a_{k-1}[2i] - a_{k-1}[2i+1]) / sqrt 2
    energy_k = sum d_k^2 / sum over all scales

The period is the lag at which the autocorrelation r, and that at twice the lag, are strongest after its first zero; the
Fourier transform of the window gives all of them at once (Wiener-Khinchin). Mallat, "A theory for multiresolution
signal decomposition", IEEE Transactions on Pattern Analysis and Machine Intelligence 11(7), 1989.

A tick only writes a value into the window; the results are computed on demand.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from flyball_models._arrays import Array, Input, arange, counts, full
from flyball_models._compile import compiled_step

_REGULAR = 0.3
"""Minimum autocorrelation of a period."""
_QUIET = 1e-4
"""Variance (of 1 % variation) below which there is no scale and no period."""


class Config(NamedTuple):
    """The window has 2^`scales` ticks; `known` is the share of it that must be known."""

    scales: int = 7
    known: float = 0.9

    @property
    def length(self) -> int:
        """Ticks in the window."""
        return 1 << self.scales


DEFAULT = Config()


class State(NamedTuple):
    """tick []; ring [W, N] of the newest values, NaN where there was none.

    A state that a step was given must not be used again.
    """

    tick: Input
    ring: Input


class Swings(NamedTuple):
    """energy [N, L]: share of the variance by scale, finest first; the rest [N]. NaN where unknown.

    scale_ticks is the length of the stretches that differ most from their neighbours.
    period_ticks is NaN also where nothing repeats itself three times in the window; regularity is the autocorrelation
    at the period. burstiness is the share of energy in the three finest scales times the kurtosis of their details,
    divided by 3, the kurtosis of normal noise.
    """

    energy: Array
    scale_ticks: Array
    period_ticks: Array
    regularity: Array
    burstiness: Array


def init(n: int, config: Config = DEFAULT) -> State:
    """Return the state of `n` devices without data."""
    if config.scales < 4:
        raise ValueError(f"waves: scales is {config.scales}; pass 4 or more")
    return State(counts(()), full((config.length, n), jnp.nan))


def step(state: State, x: Input, mask: Input, config: Config = DEFAULT) -> State:
    """Add `x` [N] where `mask` [N], or T ticks, both [T, N]; the ring is on the host and changed in place."""
    at, ring = int(state.tick), state.ring
    if not (isinstance(ring, np.ndarray) and ring.flags.writeable):
        ring = np.array(ring)
    x = np.atleast_2d(np.asarray(x))
    ring[np.arange(at, at + len(x)) % config.length] = np.where(
        np.asarray(mask) & np.isfinite(x), x, np.float32(np.nan)
    )
    return State(np.asarray((at + len(x)) % config.length, np.int32), ring)


def haar(window: Array) -> tuple[list[Array], Array]:
    """Return the details of each scale, finest first, [W / 2^k, N], and the last mean [1, N], of window [W, N]."""
    details: list[Array] = []
    while window.shape[0] > 1:
        even, odd = window[0::2], window[1::2]
        details.append((even - odd) * 0.5**0.5)
        window = (even + odd) * 0.5**0.5
    return details, window


def _summarize(state: State, config: Config = DEFAULT) -> Swings:
    """Return the results of the windows."""
    w = config.length
    window = state.ring[(state.tick + arange(0, w)) % w]
    known = jnp.isfinite(window)
    share = known.sum(axis=0) / w
    mean = jnp.where(known, window, 0.0).sum(axis=0) / jnp.maximum(known.sum(axis=0), 1)
    centred = jnp.where(known, window - mean, 0.0)
    variance = (centred * centred).sum(axis=0) / w
    seen = (share >= config.known) & (variance > _QUIET)

    details, _ = haar(centred)
    energies = jnp.stack([(d * d).sum(axis=0) for d in details])
    energy = energies / jnp.maximum(energies.sum(axis=0), _QUIET)
    fine = jnp.concatenate(details[:3])
    fourth, second = (fine**4).mean(axis=0), (fine**2).mean(axis=0)
    burstiness = energy[:3].sum(axis=0) * fourth / jnp.maximum(second * second, _QUIET**3) / 3.0

    spectrum = jnp.abs(jnp.fft.rfft(centred, n=2 * w, axis=0)) ** 2
    reach = w // 3 + 1
    products = jnp.fft.irfft(spectrum, n=2 * w, axis=0)[: 2 * reach]
    # Divided by the number of values that meet at a lag; otherwise longer periods would seem weaker.
    r = products / (w - arange(0, 2 * reach))[:, None] / jnp.maximum(variance, _QUIET)
    crossed = jnp.cumsum(r[:reach] < 0, axis=0) > 0
    # A true period repeats at twice its lag; bursts that happen to lie the same lag apart do not.
    r = jnp.where(crossed, jnp.minimum(r[:reach], r[0 : 2 * reach : 2]), -1.0)
    best = jnp.argmax(r, axis=0)
    strength = jnp.clip(r.max(axis=0), 0.0, 1.0)
    # A multiple of the period is as strong as the period, which is the first lag that is a peak and nearly the best.
    peak = (r >= 0.9 * strength) & (r >= jnp.roll(r, 1, axis=0)) & (r >= jnp.roll(r, -1, axis=0)) & crossed
    first = jnp.where(peak.any(axis=0), jnp.argmax(peak, axis=0), best)
    period = jnp.where(strength >= _REGULAR, first, jnp.nan)
    return Swings(
        energy=jnp.where(seen, energy, jnp.nan).T,
        scale_ticks=jnp.where(seen, 2.0 ** jnp.argmax(energy, axis=0), jnp.nan),
        period_ticks=jnp.where(seen, period, jnp.nan),
        regularity=jnp.where(seen, strength, jnp.nan),
        burstiness=jnp.where(seen, burstiness, jnp.nan),
    )


summarize = compiled_step(_summarize, donate=False)
