"""Latencies of replicas: one value for each, once a minute, so that the workload lane can compare them."""

from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.metrics import SERVING
from flyball_contracts.records import Demand, Latencies
from flyball_models.anomaly.latency import LEAST_S, MOST_S
from flyball_streams.engine.node.tenancy import ACTIVE, LATENCY, QUEUED, READY, Tenancy
from flyball_streams.engine.node.window import AT_ONCE
from flyball_streams.engine.rows import known

_TOKEN = SERVING.column("gen_ai.server.time_per_output_token{stat=mean}")
_COLUMNS = [LATENCY, ACTIVE, QUEUED, READY]
_REQUEST, _OUTPUT_TOKEN, _OPEN, _UNREADY = range(4)
"""Sums of a replica: logarithms of both latencies, requests in service or waiting, ticks in which it was not ready."""
MOST_REPLICAS = 4000
"""Most replicas of one workload and model that one lane compares; a message has no room for more."""
Sums = NDArray[np.float64]


class ReplicaLatencies:
    """Latencies of the replicas of one cell on this partition's nodes since the last report.

    ``total`` and ``count`` [allocations, 4] sum up the known values of each allocation row.
    """

    def __init__(self) -> None:
        self._places: list[tuple[str, str, str]] = []
        self.total, self.count = _nothing(0), _nothing(0)
        self._kept: list[NDArray[np.float32]] = []
        self._tokens: NDArray[np.float32] | None = None

    def follow(self, tenancy: Tenancy) -> None:
        """Follow a change of allocations; those that are gone are dropped."""
        self._add_kept()
        self._tokens = None
        row = {place: i for i, place in enumerate(self._places)}
        self._places = _places(tenancy)
        old = np.array([row.get(place, len(row)) for place in self._places], np.int64)
        self.total, self.count = (np.vstack([sums, _nothing(1)])[old] for sums in (self.total, self.count))

    def note_tokens(self, first: int, values: NDArray[np.float32]) -> None:
        """Add a node's serving metrics, float32[rows, metrics] from an allocation row on, to the open tick."""
        if self._tokens is None:
            self._tokens = np.full(len(self._places), np.nan, np.float32)
        self._tokens[first : first + len(values)] = values[:, _TOKEN]

    def note(self, values: NDArray[np.float32]) -> None:
        """Close a tick with its workload rows, float32[allocations, metrics], NaN where missing."""
        tokens, self._tokens = self._tokens, None
        shown = values[:, _COLUMNS]
        if tokens is None:
            if np.isnan(shown).all():
                return  # nothing was reported
            tokens = np.full(len(values), np.nan, np.float32)
        self._kept.append(np.column_stack([shown, tokens]))
        if len(self._kept) == AT_ONCE:
            self._add_kept()

    def drain(self, demands: list[Demand], tenancy: Tenancy) -> list[Demand]:
        """Return all demands with the latencies of their replicas, and start a new minute.

        Replicas that report nothing about requests, or that were not ready for the whole minute, are left out.
        """
        self._add_kept()
        total, count = self.total, self.count
        self.total, self.count = _nothing(len(total)), _nothing(len(total))
        serving = count[:, : _OPEN + 1].any(axis=1) & ~(count[:, _UNREADY] > 0)
        if not serving.any():
            return demands
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = total / count
        by_token = np.zeros(len(demands), np.bool_)
        by_token[tenancy.workload_of_allocation[count[:, _OUTPUT_TOKEN] > 0]] = True
        (rows,) = serving.nonzero()
        owner, model = tenancy.workload_of_allocation[rows], tenancy.model_of_allocation[rows]
        # Replicas that answer requests but report no output token are kept apart from those that answer nothing.
        tokens = by_token[owner] & ((count[rows, _OUTPUT_TOKEN] > 0) | (count[rows, _REQUEST] == 0))
        order = np.lexsort((rows, tokens, model, owner))
        rows, owner, model, tokens = rows[order], owner[order], model[order], tokens[order]
        key = np.stack([owner, model, tokens])
        starts = np.flatnonzero(np.append(True, (np.diff(key, axis=1) != 0).any(axis=0)))
        annotated = list(demands)
        begins: list[int] = starts.tolist()
        for begin, end in zip(begins, [*begins[1:], len(rows)], strict=True):
            workload, of = int(owner[begin]), rows[begin:end][:MOST_REPLICAS]
            latency_s = np.exp(mean[of, _OUTPUT_TOKEN if tokens[begin] else _REQUEST])
            numbers: list[int] = of.tolist()
            places = [self._places[row] for row in numbers]
            found = Latencies(
                replicas=tuple(replica for _, replica, _ in places),
                nodes=tuple(node for node, _, _ in places),
                latency_s=tuple(map(known, latency_s.tolist())),
                requests=tuple(map(known, mean[of, _OPEN].tolist())),
                model=tenancy.models[int(model[begin])] if model[begin] >= 0 else "",
                per="output_token" if tokens[begin] else "request",
            )
            demand = annotated[workload]
            annotated[workload] = replace(demand, latencies=(*demand.latencies, found))
        return annotated

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        self._add_kept()
        return {"total": self.total, "count": self.count}

    def load(self, state: dict[str, Any], tenancy: Tenancy) -> None:
        """Replace the state by that of a snapshot made under this tenancy."""
        self.total, self.count = state["total"], state["count"]
        self._places, self._kept, self._tokens = _places(tenancy), [], None

    def _add_kept(self) -> None:
        """Add the kept ticks together, as in :class:`~flyball_streams.engine.node.window.Window`."""
        if not self._kept:
            return
        x = np.array(self._kept, np.float64)  # [ticks, allocations, columns]
        self._kept.clear()
        request, active, queued, ready, token = (x[:, :, column] for column in range(x.shape[2]))
        timed = np.stack([request, token], axis=2)
        with np.errstate(invalid="ignore"):
            timed = np.where((timed >= LEAST_S) & (timed <= MOST_S), timed, np.nan)
            both = np.where(np.isnan(active), queued, active + np.nan_to_num(queued))
            unready = np.where(ready <= 0.0, 1.0, np.nan)
        x = np.concatenate([np.log(timed), both[..., None], unready[..., None]], axis=2)
        known = np.isfinite(x)
        for one, has in zip(np.where(known, x, 0.0), known, strict=True):  # in the order of the ticks, however batched
            self.total += one
            self.count += has


def _places(tenancy: Tenancy) -> list[tuple[str, str, str]]:
    """Node, replica and workload of each allocation row."""
    owners: list[int] = tenancy.workload_of_allocation.tolist()
    return [
        (node, replica, tenancy.workloads[owner]) for (node, replica), owner in zip(tenancy.places, owners, strict=True)
    ]


def _nothing(rows: int) -> Sums:
    return np.zeros((rows, 4))
