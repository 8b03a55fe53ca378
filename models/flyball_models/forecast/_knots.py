"""Changes at a few judged horizons, interpolated to all horizons."""

from collections.abc import Sequence

import jax.numpy as jnp

from flyball_models._arrays import Array


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
