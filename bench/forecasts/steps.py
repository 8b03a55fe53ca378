"""One step of any forecast model in the unit of the values, series first: the benchmarks' data are so."""

from typing import Any, NamedTuple

import jax.numpy as jnp

from flyball_models.forecast import conformal, ensemble, last, weighting
from flyball_models.forecast._scale import as_logs, in_units


class Combined(NamedTuple):
    """The forecast [N, H], and the weights [N, J, K] that it was made with."""

    forecast: Any
    weights: Any


def step(model: Any, state: Any, y: Any, mask: Any, *inputs: Any, config: Any) -> tuple[Any, Any]:
    """Update with `y[N]` where `mask[N]`; return forecasts [N, H] or [N, H, G], quantiles [N, H, Q] or a `Combined`.

    ``inputs`` are forecasts at this tick: [K - 1, N, H] for ``weighting``, [N, H] for ``conformal``; what ``pooled``
    takes is as its ``ahead`` has it.
    """
    if model is conformal:
        state, bands = conformal.around(state, y, mask, as_logs(inputs[0]), config=config)
        return state, bands._replace(quantiles=in_units(bands.quantiles), coverage=bands.coverage.T)
    if model is weighting:
        state, combined = weighting.combine(state, y, mask, (as_logs(inputs[0]),), config=config)
    elif model is ensemble:
        state, combined = ensemble.ahead(state, y, mask, config)
    else:
        state, logs = model.ahead(state, y, mask, *inputs, config=config)
        if model is last:
            logs = jnp.broadcast_to(logs, (len(logs), config.horizons, logs.shape[-1]))
        return state, in_units(logs)
    return state, Combined(in_units(combined.logs), combined.weights.transpose(2, 1, 0))
