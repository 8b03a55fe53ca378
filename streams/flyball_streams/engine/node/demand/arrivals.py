"""Arrivals at the gateways in a tick, by workload."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import GATEWAY
from flyball_contracts.records import Arrivals, Gateway

_RATE, _QUEUED, _ACTIVE = (GATEWAY.column(f"flyball.gateway.request.{key}") for key in ("rate", "queued", "active"))


def arrivals(frames: Iterable[tuple[tuple[Gateway, ...], NDArray[np.float32]]]) -> list[Arrivals]:
    """Sums over the gateways of each workload, by name; a value that no gateway reported stays unknown.

    ``frames`` are pairs of a node's gateways and their rows, ``float32[gateways, metrics]``.
    """
    sums: dict[str, list[float | None]] = {}
    for gateways, values in frames:
        for gateway, row in zip(gateways, values[:, (_RATE, _QUEUED, _ACTIVE)].tolist(), strict=True):
            known = sums.get(gateway.workload, [None, None, None])
            sums[gateway.workload] = [
                a if b != b or abs(b) == np.inf else (a or 0.0) + b for a, b in zip(known, row, strict=True)
            ]
    return [
        Arrivals(workload=workload, request_rate=rate, queued=queued, active=active)
        for workload, (rate, queued, active) in sorted(sums.items())
    ]
