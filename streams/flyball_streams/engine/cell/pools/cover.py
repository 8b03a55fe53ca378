"""Which replicas still find no room once all that is free, and all that was bought, is taken into account."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from flyball_contracts.records import WorkloadSpec
from flyball_streams.engine.cell.actions.limits import SLACK, accepts
from flyball_streams.engine.cell.cycle import Cycle
from flyball_streams.engine.cell.pools.machines import Shape, needed
from flyball_streams.engine.cell.pools.wants import Want


class Machine(msgspec.Struct):
    """A machine that is not there yet: GPUs of it that are still free."""

    shape: Shape
    free: float

    def take(self, spec: WorkloadSpec) -> bool:
        """Take room for one replica; whether there was any."""
        needs = needed(spec)
        if not accepts(spec, self.shape.model) or self.free < needs - SLACK:
            return False
        self.free -= needs
        return True


class Lacking(NamedTuple):
    """Replicas of a workload without room, of those that it wants."""

    want: Want
    spec: WorkloadSpec
    replicas: int


def uncovered(cycle: Cycle, wants: dict[str, Want], coming: Sequence[Machine]) -> list[Lacking]:
    """Replicas without room, the most important workload first.

    What is free now is kept for them on the copy of this tick. Then they fill the machines that are ``coming``.
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
