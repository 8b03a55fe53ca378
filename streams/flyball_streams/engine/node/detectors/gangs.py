"""Training gangs: which of them this lane sees whole, and clocks to publish for those that span lanes."""

from functools import cache
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.metrics import GPU
from flyball_contracts.records import Clocks, Demand, Member
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import Tenancy
from flyball_streams.engine.node.training import TrainingWorkloads

CLOCK = GPU.column("nvidia.gpu.clock.frequency{clock=sm}")
TEMPERATURE = GPU.column("hw.temperature{sensor=gpu}")
POWER = GPU.column("hw.power")
REPORTED_COLUMNS = [CLOCK, TEMPERATURE, POWER]
MOST_CLOCKS = 17
"""Quantiles of the clocks of one gang in one message; up to this many members are published one by one."""
SLOWEST = 4
"""Slowest members that a lane names; further stragglers are named once these are gone."""


class Members(NamedTuple):
    """Members of gangs, as long as ``tenancy``, the ``version`` of the directory and ``trains`` stay the same.

    ``whole`` [capacity] is the peer group of each slot in a whole gang, -1 for none. ``slots`` are the members of gangs
    that may span lanes, with the workload that is their ``owner``, and a number for each owner and model, their
    ``kind``.
    """

    tenancy: Tenancy
    version: int
    trains: NDArray[np.bool_]
    whole: NDArray[np.int32]
    slots: NDArray[np.int64]
    owner: NDArray[np.int32]
    kind: NDArray[np.int64]


class Gangs:
    """Which workloads are training gangs, and which of them may span lanes.

    A lane knows only the inventories of its own nodes. A gang is whole if its devices here are as many as its
    specification allows; the workload lane looks for stragglers in all others, also in gangs below full size, and in
    those without a specification, whose size is unknown.
    """

    def __init__(self, directory: FleetIndex, training: TrainingWorkloads) -> None:
        self.directory = directory
        self.training = training
        self._known: Members | None = None

    def whole(self, tenancy: Tenancy) -> NDArray[np.int32]:
        """Peer group of each slot in its gang, by model; -1 for none, and for gangs that may span lanes."""
        return self._members(tenancy).whole

    def annotate(
        self,
        demands: list[Demand],
        table: SubjectTable,
        tenancy: Tenancy,
        failing: set[str],
    ) -> list[Demand]:
        """Return all demands with the clocks of gangs that may span lanes, without ``failing`` devices."""
        _, _, _, _, slots, owner, kind = self._members(tenancy)
        if not len(slots):
            return demands
        clock = table.values[slots, CLOCK]
        here = table.mask[slots] & np.isfinite(clock)
        if failing:
            compared = np.ones(table.capacity, np.bool_)
            compared[[table.slots[device] for device in failing if device in table.slots]] = False
            here &= compared[slots]
        order = np.lexsort((clock, kind))
        order = order[here[order]]
        if not len(order):
            return demands
        slots, clock, kinds = slots[order], clock[order], kind[order]
        starts = np.concatenate([[0], (kinds[1:] != kinds[:-1]).nonzero()[0] + 1])
        begins, ends = starts.tolist(), [*starts[1:].tolist(), len(kinds)]
        owners: list[int] = owner[order[starts]].tolist()
        # A row for each gang; a gang with fewer members is filled up with those of the next.
        first = slots[np.minimum(starts[:, None] + np.arange(SLOWEST), len(slots) - 1)]
        values = table.values[first[..., None], REPORTED_COLUMNS]
        shown = values.astype(object)
        shown[~np.isfinite(values)] = None
        known: list[list[list[float | None]]] = shown.tolist()
        annotated, clocks = list(demands), clock.tolist()
        for index, begin, end, at, slowest in zip(owners, begins, ends, first.tolist(), known, strict=True):
            part = _clocks(clocks[begin:end], at[: end - begin], slowest, table, tenancy)
            annotated[index] = replace(annotated[index], clocks=(*annotated[index].clocks, part))
        return annotated

    def _members(self, tenancy: Tenancy) -> Members:
        """Members of gangs, computed again when allocations or specifications change."""
        version, trains, known = self.directory.version, self.training.of(tenancy), self._known
        if known is None or known.tenancy is not tenancy or known.version != version or known.trains is not trains:
            whole = np.zeros(len(tenancy.workloads) + 1, bool)  # the last is for free slots
            spans = whole.copy()
            owner = tenancy.workload_of_slot
            held = np.bincount(owner[owner >= 0], minlength=len(tenancy.workloads))
            for index, workload in enumerate(tenancy.workloads):
                spec = self.directory.spec(workload)
                if trains[index]:
                    whole[index] = spec is not None and held[index] >= spec.max_replicas * spec.gpus_per_replica
                    spans[index] = not whole[index]
            (slots,) = spans[owner].nonzero()
            kind = owner[slots].astype(np.int64) * (len(tenancy.models) + 1) + tenancy.model_of_slot[slots]
            group = np.where(whole[owner], tenancy.peer_group, np.int32(-1))
            known = self._known = Members(tenancy, version, trains, group, slots, owner[slots], kind)
        return known


def _clocks(
    clocks: list[float], first: list[int], values: list[list[float | None]], table: SubjectTable, tenancy: Tenancy
) -> Clocks:
    """Clocks of the members of one gang and model, sorted; ``first`` are the slots of the slowest, with ``values``."""
    slowest = [
        Member(
            device=table.names[slot],
            node=table.owner[slot],
            replica=tenancy.replica_of_slot[slot][1],
            clock_hz=clock,
            temperature_cel=temperature,
            power_w=power,
        )
        for slot, clock, (_, temperature, power) in zip(first, clocks, values, strict=False)
    ]
    quantiles = clocks if len(clocks) <= MOST_CLOCKS else [clocks[place] for place in _quantiles(len(clocks))]
    model = tenancy.models[int(tenancy.model_of_slot[first[0]])]
    return Clocks(members=len(clocks), clocks_hz=tuple(quantiles), slowest=tuple(slowest), model=model)


@cache
def _quantiles(members: int) -> list[int]:
    places: list[int] = np.round(np.linspace(0, members - 1, MOST_CLOCKS)).astype(np.int64).tolist()
    return places
