"""Gangs that train in step: those that this lane sees whole, and what it tells of those that it does not."""

from functools import cache
from math import isfinite

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.metrics import GPU
from flyball_contracts.records import Clocks, Demand, Member
from flyball_streams.engine.known import Known
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import Tenancy

CLOCK = GPU.column("nvidia.gpu.clock.frequency{clock=sm}")
TEMPERATURE = GPU.column("hw.temperature{sensor=gpu}")
POWER = GPU.column("hw.power")
TOLD = [CLOCK, TEMPERATURE, POWER]
MOST_CLOCKS = 17
"""Quantiles of the clocks of one gang in one message; fewer members are told one by one."""
SLOWEST = 4
"""Members that a lane names: of more stragglers on a few nodes, the slowest come first and the others later."""


class Gangs:
    """Which workloads train, and which of them other lanes may see a part of.

    A lane knows the inventories of its own nodes only. A gang is whole here when as many devices are as its
    specification allows; of any other, also of one that is not at its full size, the workload lane judges.
    """

    def __init__(self, directory: Known) -> None:
        self.directory = directory
        self._known: tuple[Tenancy, int, NDArray[np.int32], NDArray[np.bool_]] | None = None

    def whole(self, tenancy: Tenancy) -> NDArray[np.int32]:
        """Group of each slot's peers in its gang, those of its model; -1 for none, and for gangs that span lanes."""
        return self._look(tenancy)[0]

    def told(
        self,
        demands: list[Demand],
        table: SubjectTable,
        tenancy: Tenancy,
        sick: set[str],
    ) -> list[Demand]:
        """Demands with the clocks of the gangs that this lane sees a part of; devices that are ``sick`` left out."""
        spans = self._look(tenancy)[1]
        if not spans.any():
            return demands
        (held,) = (spans[tenancy.workload_of_slot] & table.mask & np.isfinite(table.values[:, CLOCK])).nonzero()
        if sick:
            held = held[~np.isin(held, [table.slots[device] for device in sick if device in table.slots])]
        if not len(held):
            return demands
        owner = tenancy.workload_of_slot[held]
        kind = owner.astype(np.int64) * (len(tenancy.models) + 1) + tenancy.model_of_slot[held]
        order = np.lexsort((table.values[held, CLOCK], kind))
        slots, owners, kinds = held[order], owner[order], kind[order]
        ends: list[int] = [*((kinds[1:] != kinds[:-1]).nonzero()[0] + 1).tolist(), len(kinds)]
        shown, begin = list(demands), 0
        for end in ends:
            index = int(owners[begin])
            part = _clocks(slots[begin:end], table, tenancy)
            shown[index] = replace(shown[index], clocks=(*shown[index].clocks, part))
            begin = end
        return shown

    def _look(self, tenancy: Tenancy) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """Made anew when who holds what changes."""
        version = self.directory.version
        if self._known is None or self._known[0] is not tenancy or self._known[1] != version:
            whole = np.zeros(len(tenancy.workloads) + 1, bool)  # the last is of slots that nobody holds
            spans = whole.copy()
            owner = tenancy.workload_of_slot
            held = np.bincount(owner[owner >= 0], minlength=len(tenancy.workloads))
            for index, workload in enumerate(tenancy.workloads):
                spec = self.directory.spec(workload)
                if spec is not None and spec.kind == "training":
                    whole[index] = held[index] >= spec.max_replicas * spec.gpus_per_replica
                    spans[index] = not whole[index]
            self._known = tenancy, version, np.where(whole[owner], tenancy.alike, np.int32(-1)), spans
        return self._known[2], self._known[3]


def _clocks(slots: NDArray[np.int64], table: SubjectTable, tenancy: Tenancy) -> Clocks:
    """What is told of the members in some slots, of one model, the slowest first."""
    clocks = table.values[slots, CLOCK]
    first: list[int] = slots[:SLOWEST].tolist()
    told: list[list[float]] = table.values[slots[:SLOWEST, None], TOLD].tolist()
    slowest = [
        Member(
            device=table.names[slot],
            node=table.owner[slot],
            replica=tenancy.replica_of_slot[slot][1],
            clock_hz=clock,
            temperature_cel=_known(temperature),
            power_w=_known(power),
        )
        for slot, (clock, temperature, power) in zip(first, told, strict=True)
    ]
    shown = clocks if len(clocks) <= MOST_CLOCKS else clocks[_quantiles(len(clocks))]
    model = tenancy.models[int(tenancy.model_of_slot[first[0]])]
    return Clocks(members=len(slots), clocks_hz=tuple(shown.tolist()), slowest=tuple(slowest), model=model)


@cache
def _quantiles(members: int) -> NDArray[np.int64]:
    return np.round(np.linspace(0, members - 1, MOST_CLOCKS)).astype(np.int64)


def _known(value: float) -> float | None:
    return value if isfinite(value) else None
