"""Padded capacity: a few fixed sizes, so that a growing fleet compiles each model a few times only."""

from collections.abc import Callable
from typing import TypeVar

import jax
import numpy as np

from flyball_models._arrays import Input, as_array

State = TypeVar("State")


def bucket(n: int) -> int:
    """Return the padded capacity for `n` series: the smallest of 64, 96, 128, 192, 256, ... that holds them.

    At most a third of it is padding, which costs as much as series do. It is at least 64: the compiler unrolls smaller
    loops and rounds them differently, so results would change with growth.
    """
    if n < 0:
        raise ValueError(f"bucket: the number of series is {n}; pass 0 or more")
    size = 64
    while size < n:
        size *= 2
    return size * 3 // 4 if 64 < n <= size * 3 // 4 else size


def grow(state: State, n: int, fresh: Callable[[int], State]) -> State:
    """Return `fresh(n)` with the content of `state` in its first slots along the series axis, the last one.

    Clocks, and values that all series share (a last axis of 1), are copied. Raises ValueError when `n` is smaller than
    the capacity, or when the two states differ in anything but capacity (their settings differ).
    """

    def copy(old: Input, new: Input) -> Input:
        # On the host: each operation of JAX would be compiled again for each pair of sizes, a second for each growth.
        host = isinstance(new, np.ndarray)
        if not old.ndim or old.shape[-1] == 1 == new.shape[-1]:
            same = np.array(old)  # the state may be donated and the grown one must live on
            return same if host else as_array(same)
        have = old.shape[-1]
        if n < have:
            raise ValueError(f"resize: {n} slots cannot hold the {have} in use; pass {have} or more")
        if old.shape[:-1] != new.shape[:-1]:
            raise ValueError(
                f"resize: the state has shape {old.shape}, its configuration gives {new.shape}; "
                "pass the configuration that the state was made with"
            )
        grown = np.array(new)
        grown[..., :have] = np.asarray(old)
        return grown if host else as_array(grown)

    larger: State = jax.tree.map(copy, state, fresh(n))
    return larger
