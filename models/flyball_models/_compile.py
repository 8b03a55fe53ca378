"""Compilation of the models: once per shape and per static argument, with their signatures."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import jax

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of arrays only."""
    return cast("Callable[P, R]", jax.jit(function))  # pyright: ignore[reportUnknownMemberType]


def compiled_step(
    step: Callable[P, R], *, static: tuple[str, ...] = ("config",), donate: bool = True
) -> Callable[P, R]:
    """Compile a step; its first argument, the state, is donated and must not be used again."""
    jitted = jax.jit(  # pyright: ignore[reportUnknownMemberType]
        step, static_argnames=static, donate_argnums=(0,) if donate else ()
    )
    return cast("Callable[P, R]", jitted)


def apart(values: R) -> R:
    """Keep the compiler from fusing the computation of values with their use.

    Otherwise the last bits would depend on the rest of the program.
    """
    barrier = cast("Callable[[R], R]", jax.lax.optimization_barrier)  # pyright: ignore[reportUnknownMemberType]
    return barrier(values)
