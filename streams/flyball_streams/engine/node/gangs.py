"""Gangs that train in step: those that this lane sees whole, and what it tells of those that it does not."""

from collections.abc import Sequence
from math import isfinite

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.metrics import GPU
from flyball_contracts.records import Clocks, Demand, Member
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import Tenancy

CLOCK = GPU.column("nvidia.gpu.clock.frequency{clock=sm}")
TEMPERATURE = GPU.column("hw.temperature{sensor=gpu}")
POWER = GPU.column("hw.power")
MOST_CLOCKS = 17
"""Quantiles of the clocks of one gang in one message; fewer members are told one by one."""
SLOWEST = 4
"""Members that a lane names: of more stragglers on a few nodes, the slowest come first and the others later."""


class Gangs:
    """Which workloads train, and which of them other lanes may see a part of.

    A lane knows the inventories of its own nodes only. A gang is whole here when as many devices are as its
    specification allows; of any other, also of one that is not at its full size, the workload lane judges.
    """

    def __init__(self, directory: Directory) -> None:
        self.directory = directory
        self._known: tuple[Tenancy, int, NDArray[np.int32], dict[int, str]] | None = None

    def whole(self, tenancy: Tenancy) -> NDArray[np.int32]:
        """Index of the gang of each slot, -1 for none and for those of which other lanes see a part."""
        return self._look(tenancy)[0]

    def told(
        self,
        demands: list[Demand],
        table: SubjectTable,
        tenancy: Tenancy,
        sick: set[str],
    ) -> list[Demand]:
        """Demands with the clocks of the gangs that this lane sees a part of; devices that are ``sick`` left out."""
        spanning = self._look(tenancy)[1]
        if not spanning:
            return demands
        shown = list(demands)
        for index in spanning:
            held: list[int] = np.flatnonzero(
                (tenancy.workload_of_slot == index) & table.mask & np.isfinite(table.values[:, CLOCK])
            ).tolist()
            slots = [slot for slot in held if table.names[slot] not in sick]
            if slots:
                shown[index] = replace(shown[index], clocks=(_clocks(slots, table, tenancy),))
        return shown

    def _look(self, tenancy: Tenancy) -> tuple[NDArray[np.int32], dict[int, str]]:
        """Made anew when who holds what changes."""
        version = self.directory.version
        if self._known is None or self._known[0] is not tenancy or self._known[1] != version:
            whole: list[bool] = []
            spanning: dict[int, str] = {}
            owner = tenancy.workload_of_slot
            held = np.bincount(owner[owner >= 0], minlength=len(tenancy.workloads))
            for index, workload in enumerate(tenancy.workloads):
                spec = self.directory.spec(workload)
                trains = spec is not None and spec.kind == "training"
                here = trains and spec is not None and held[index] >= spec.max_replicas * spec.gpus_per_replica
                whole.append(here)
                if trains and not here:
                    spanning[index] = workload
            group = np.where(np.array([*whole, False], bool)[owner], owner, np.int32(-1))
            self._known = tenancy, version, group, spanning
        return self._known[2], self._known[3]


def _clocks(slots: list[int], table: SubjectTable, tenancy: Tenancy) -> Clocks:
    values = table.values[slots]
    order: list[int] = np.argsort(values[:, CLOCK], kind="stable").tolist()
    at: Sequence[int] = range(len(order))
    if len(order) > MOST_CLOCKS:
        at = np.round(np.linspace(0, len(order) - 1, MOST_CLOCKS)).astype(np.int64).tolist()
    slowest = [
        Member(
            device=table.names[slots[i]],
            node=table.owner[slots[i]],
            replica=tenancy.replica_of_slot[slots[i]][1],
            clock_hz=float(values[i, CLOCK]),
            temperature_cel=_known(values[i, TEMPERATURE]),
            power_w=_known(values[i, POWER]),
        )
        for i in order[:SLOWEST]
    ]
    clocks = tuple(float(values[order[i], CLOCK]) for i in at)
    return Clocks(members=len(slots), clocks_hz=clocks, slowest=tuple(slowest))


def _known(value: np.float32) -> float | None:
    return number if isfinite(number := float(value)) else None
