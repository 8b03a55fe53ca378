"""Latencies and cache use of language-model servers in a tick, by workload."""

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.metrics import SERVING
from flyball_contracts.records import Demand
from flyball_streams.engine.rows import known

_FIRST, _FIRST_P99, _NEXT = (
    SERVING.column(f"gen_ai.server.{key}")
    for key in ("time_to_first_token{stat=mean}", "time_to_first_token{stat=p99}", "time_per_output_token{stat=mean}")
)
_CACHE = SERVING.column("flyball.workload.kv_cache.utilization")


class ServingMetrics:
    """Serving metrics of the open tick; nodes without such servers cost nothing."""

    def __init__(self) -> None:
        self._rows: list[tuple[NDArray[np.int32], NDArray[np.float32]]] = []

    def note(self, owners: NDArray[np.int32], values: NDArray[np.float32]) -> None:
        """Add a node's frame: ``values`` [allocations, metrics] of the workloads ``owners`` [allocations]."""
        self._rows.append((owners, values))

    def annotate(self, demands: list[Demand]) -> list[Demand]:
        """Return all demands with the metrics of their workloads, and clear the metrics."""
        rows, self._rows = self._rows, []
        if not rows:
            return demands
        owners = np.concatenate([owner for owner, _ in rows])
        values = np.concatenate([value for _, value in rows]).astype(np.float64)
        mean, has_values = _means(owners, values, len(demands))
        most = np.full(len(demands), np.nan)
        np.fmax.at(most, owners[owners >= 0], values[owners >= 0, _FIRST_P99])
        annotated = list(demands)
        indexes: list[int] = has_values.nonzero()[0].tolist()
        for index in indexes:
            annotated[index] = replace(
                annotated[index],
                first_token_s=known(mean[index, _FIRST]),
                first_token_p99_s=known(most[index]),
                output_token_s=known(mean[index, _NEXT]),
                kv_cache=known(mean[index, _CACHE]),
            )
        return annotated


def _means(
    owners: NDArray[np.int32], values: NDArray[np.float64], workloads: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Mean of each workload's known values [workloads, metrics], NaN where none is, and whether it has any."""
    known = np.isfinite(values) & (owners >= 0)[:, None]
    columns = values.shape[1]
    row, column = known.nonzero()
    bins: NDArray[np.int64] = np.add(owners[row].astype(np.int64) * columns, column, dtype=np.int64)
    total = np.bincount(bins, values[known], workloads * columns).reshape(workloads, columns)
    count = np.bincount(bins, minlength=workloads * columns).reshape(workloads, columns)
    with np.errstate(invalid="ignore"):
        return total / count, np.asarray(count.any(axis=1))
