"""Type aliases of model inputs and outputs, and array constructors with fixed types.

The constructors state float32 or int32 explicitly, so that no process-wide JAX setting changes a model. They give the
type checkers a signature without JAX's untyped device argument.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np

Array: TypeAlias = jax.Array
"""Type of a model's results."""

Input: TypeAlias = jax.Array | np.ndarray[Any, Any]
"""Type of a model's arguments: the call copies a host array to the device."""


def as_array(value: Input | Sequence[float]) -> Array:
    """Return the value as a JAX array, host floats as float32."""
    return jnp.asarray(value)  # pyright: ignore[reportUnknownMemberType]


def to_device(value: np.ndarray[Any, Any]) -> Array:
    """Return the host array as a JAX array for a new state.

    Arrays of states are made on the host: each operation of JAX would be compiled for each shape.
    """
    return cast("Array", jax.device_put(value))  # pyright: ignore[reportUnknownMemberType]


def full(shape: int | tuple[int, ...], value: float) -> Array:
    """Return a new float32 array filled with `value`, for a new state."""
    return to_device(np.full(shape, value, np.float32))


def counts(shape: int | tuple[int, ...], dtype: type[np.integer[Any]] = np.int32) -> Array:
    """Return a new array of int32 zeros, for a new state."""
    return to_device(np.zeros(shape, dtype))


def constant(shape: int | tuple[int, ...], value: float) -> Array:
    """Return a float32 array filled with `value`, within a compiled step."""
    return jnp.full(shape, value, jnp.float32)  # pyright: ignore[reportUnknownMemberType]


def arange(start: int, stop: int) -> Array:
    """Return int32 start..stop-1."""
    return jnp.arange(start, stop, dtype=jnp.int32)  # pyright: ignore[reportUnknownMemberType]


def mean_of_known(rows: Sequence[Array]) -> Array:
    """Return the elementwise mean of the known rows; NaN if none is known."""
    total, known = constant(rows[0].shape, 0.0), constant(rows[0].shape, 0.0)
    for row in rows:
        has = jnp.isfinite(row)
        total, known = total + jnp.where(has, row, 0.0), known + has
    return jnp.where(known > 0, total / jnp.maximum(known, 1.0), jnp.nan)
