"""Replicas that find no room in free capacity or in machines already bought."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from flyball_contracts.records import WorkloadSpec
from flyball_streams.engine.cell.actions.limits import SLACK, accepts
from flyball_streams.engine.cell.cycle import Cycle
from flyball_streams.engine.cell.pools.machines import Shape, needed
from flyball_streams.engine.cell.pools.wants import Want


class Machine(msgspec.Struct):
    """A machine that has not started yet, and its GPUs that are still free."""

    shape: Shape
    free: float

    def take(self, spec: WorkloadSpec) -> bool:
        """Reserve room for one replica; whether there was any."""
        needs = needed(spec)
        if not accepts(spec, self.shape.model) or self.free < needs - SLACK:
            return False
        self.free -= needs
        return True


class Lacking(NamedTuple):
    """The ``replicas`` of a workload's ``want`` that have no room."""

    want: Want
    spec: WorkloadSpec
    replicas: int


def uncovered(cycle: Cycle, wants: dict[str, Want], coming: Sequence[Machine]) -> list[Lacking]:
    """Replicas without room, the most important workload first.

    They first take free room in this tick's placement, then room in the machines that are ``coming``.
    """
    left: list[Lacking] = []
    for name in sorted(wants, key=lambda n: (-cycle.priority(n), n)):
        want, spec = wants[name], cycle.spec(name)
        if spec is None:
            continue
        replicas = want.replicas
        while replicas and cycle.placement.place(spec) is not None:
            replicas -= 1
        while replicas and any(machine.take(spec) for machine in coming):
            replicas -= 1
        if replicas:
            left.append(Lacking(want, spec, replicas))
    return left
