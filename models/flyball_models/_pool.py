"""Sums over all series that do not depend on the slots of the series or the width of the padding.

Floating-point sums depend on their order; sums of whole numbers below 2^24 do not. So values are rounded to multiples
of 1/16 within +-5, and multiplied as whole numbers in blocks of 2,048 series, which is exact and as fast as any matrix
product; the blocks are added as int32.

Shared values have a last axis of 1 in the states, where the others have the series axis.
"""

import jax.numpy as jnp

from flyball_models._arrays import Array, constant

_STEPS = 16.0
_MOST = 5 * _STEPS
_BLOCK = 2048
_FINE = 2.0**10
_WIDEST = 2.0**15 - 1


def products_over_series(values: Array) -> Array:
    """Return the sums [F, F] over N of the products of values [F, N], clipped to +-5."""
    f, n = values.shape
    width = min(n, _BLOCK)
    whole = jnp.clip(jnp.round(values * _STEPS), -_MOST, _MOST)
    rest = constant((f, -n % width), 0.0)
    whole = jnp.concatenate([whole, rest], axis=1).reshape(f, -1, width)
    sums = jnp.matmul(whole.transpose(1, 0, 2), whole.transpose(1, 2, 0)).astype(jnp.int32).sum(axis=0)
    return sums.astype(jnp.float32) / _STEPS**2


def mean_over_series(values: Array, known: Array, prior: Array) -> Array:
    """Return the mean [..., 1] of values [..., N] within +-32 where known [..., N]; `prior` [..., 1] if none is known.

    Rounded to multiples of 2^-10; exact for up to 65,536 series.
    """
    count = known.astype(jnp.int32).sum(axis=-1, keepdims=True)
    whole = jnp.clip(jnp.round(values * _FINE), -_WIDEST, _WIDEST).astype(jnp.int32)
    total = jnp.where(known, whole, 0).sum(axis=-1, keepdims=True)
    return jnp.where(count > 0, total / (jnp.maximum(count, 1) * _FINE), prior)
