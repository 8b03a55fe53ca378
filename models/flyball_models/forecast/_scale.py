"""Conversion between the unit of the values, series first, and the models' log(1 + y), series last."""

from collections.abc import Sequence

import jax.numpy as jnp

from flyball_models._arrays import Array, Input, as_array


def between(change: Sequence[Array], judged: tuple[int, ...], horizons: int) -> Array:
    """Return the changes [H, N] of `change`, one [N] per judged horizon: linear between them, flat after the last.

    The change is 0 at the origin.
    """
    rows: list[Array] = []
    knots = (0, *judged)
    for h in range(1, horizons + 1):
        j = next((i for i, knot in enumerate(judged) if knot >= h), None)
        if j is None:
            rows.append(change[-1])
        else:
            share = (h - knots[j]) / (knots[j + 1] - knots[j])
            rows.append(share * change[j] + ((1.0 - share) * change[j - 1] if j else 0.0))
    return jnp.stack(rows)


def in_units(logs: Array) -> Array:
    """Return forecasts [N, H, ...] in the unit of y from log(1 + y) [..., H, N].

    Two programs: an exponential merged into a transposition is rounded by the place in the loop, and a series' bits
    must not depend on its slot.
    """
    return jnp.expm1(logs).T if logs.ndim == 2 else jnp.expm1(logs).transpose(2, 1, 0)


def as_logs(forecasts: Input) -> Array:
    """Return log(1 + y) [..., H, N] of forecasts [..., N, H] in the unit of y; what is below 0 counts as 0."""
    rows = jnp.swapaxes(as_array(forecasts), -1, -2)
    return jnp.log1p(jnp.where(rows < 0, 0.0, rows))


def experts_of(parts: Sequence[Array]) -> list[Array]:
    """Return the forecasts of each expert, [H, N] or [1, N] for all horizons, from arrays of one or more experts."""
    rows: list[Array] = []
    for part in parts:
        rows += [part] if part.ndim == 2 else [part[g] for g in range(part.shape[0])]
    return rows


def ahead_of(rows: Array, horizon: int) -> Array:
    """Return the forecast [N] of one expert, `horizon` ticks ahead."""
    return rows[min(horizon, rows.shape[0]) - 1]
