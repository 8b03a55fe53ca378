"""How the replicas of language models answer, by workload: what their servers say of a tick."""

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.metrics import SERVING
from flyball_contracts.records import Demand

_FIRST, _FIRST_P99, _NEXT = (
    SERVING.column(f"gen_ai.server.{key}")
    for key in ("time_to_first_token{stat=mean}", "time_to_first_token{stat=p99}", "time_per_output_token{stat=mean}")
)
_CACHE = SERVING.column("flyball.workload.kv_cache.utilization")


class Answers:
    """What was said in the tick that is open; a node without such a server costs nothing."""

    def __init__(self) -> None:
        self._rows: list[tuple[NDArray[np.int32], NDArray[np.float32]]] = []

    def note(self, owners: NDArray[np.int32], values: NDArray[np.float32]) -> None:
        """Take a node's frame: ``values`` [allocations, metrics] of the workloads ``owners`` [allocations]."""
        self._rows.append((owners, values))

    def told(self, demands: list[Demand]) -> list[Demand]:
        """Demands of all workloads in their order, with what was noted of each; it is forgotten then."""
        rows, self._rows = self._rows, []
        if not rows:
            return demands
        owners = np.concatenate([owner for owner, _ in rows])
        values = np.concatenate([value for _, value in rows]).astype(np.float64)
        spoke = np.isfinite(values).any(axis=1) & (owners >= 0)
        shown = list(demands)
        spoken: list[int] = np.unique(owners[spoke]).tolist()
        for index in spoken:
            mine = values[(owners == index) & spoke]
            shown[index] = replace(
                shown[index],
                first_token_s=_mean(mine[:, _FIRST]),
                first_token_p99_s=_most(mine[:, _FIRST_P99]),
                output_token_s=_mean(mine[:, _NEXT]),
                kv_cache=_mean(mine[:, _CACHE]),
            )
        return shown


def _mean(values: NDArray[np.float64]) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _most(values: NDArray[np.float64]) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.max()) if len(known) else None
