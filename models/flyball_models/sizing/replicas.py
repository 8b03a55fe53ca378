"""Replicas that demand requires, and the band in which the present number stays."""

import jax.numpy as jnp

from flyball_models._arrays import Array, Input, as_array
from flyball_models._compile import compiled

UNKNOWN = -1
"""The number of replicas when the demand or the capacity is not known."""
_ROUNDING = 1e-6
"""Slack in `ceil`: an exact fit must not cost a replica because of float32."""


@compiled
def required(
    quantile: Input,
    capacity_per_replica: Input,
    target_utilisation: Input,
    minimum: Input,
    maximum: Input,
) -> Array:
    """Return ceil(quantile / (capacity * target)) within minimum..maximum, int32 [N].

    `quantile` [N] is the demand to serve and `capacity_per_replica` [N] what one replica serves, in the same
    unit; `target_utilisation` [N] is a share above 0. UNKNOWN where any of these is missing or not positive
    (demand may be 0): hold then.
    """
    quantile = as_array(quantile)
    capacity = as_array(capacity_per_replica) * as_array(target_utilisation)
    maximum = as_array(maximum)
    known = jnp.isfinite(quantile) & (quantile >= 0) & jnp.isfinite(capacity) & (capacity > 0)
    replicas = jnp.ceil(quantile / jnp.where(known, capacity, 1.0) * (1.0 - _ROUNDING))
    # Compared as float first: a huge quotient has no int32.
    whole = jnp.where(replicas >= maximum, maximum, replicas.astype(jnp.int32))
    return jnp.where(known, jnp.clip(whole, minimum, maximum), UNKNOWN).astype(jnp.int32)


@compiled
def band(current: Input, up: Input, down: Input) -> Array:
    """Return `current` moved into up..down, int32 [N]: the lead-time band.

    `up` is the requirement once a replica ordered now is ready, `down` the maximum requirement from now until one
    ordered after that would be; between them acting gains nothing, so hysteresis follows from the lead time. An UNKNOWN
    side does not bind. Where up > down, up wins.
    """
    current, up, down = as_array(current), as_array(up), as_array(down)
    lowered = jnp.where(down == UNKNOWN, current, jnp.minimum(current, down))
    return jnp.maximum(lowered, up).astype(jnp.int32)
