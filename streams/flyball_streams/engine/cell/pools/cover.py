"""Which replicas still find no room once all that is free, and all that was bought, is taken into account."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from flyball_contracts.records import WorkloadSpec
from flyball_streams.engine.cell.actions.limits import SLACK, accepts
from flyball_streams.engine.cell.cycle import Cycle
from flyball_streams.engine.cell.pools.machines import Machines, Shape, needed
from flyball_streams.engine.cell.pools.wants import Want


class Machine(msgspec.Struct):
    """A machine of a pool that is not there yet: GPUs of it that are still free."""

    pool: str
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
    """Replicas of a workload without room, of those that it wants; ``pool`` is the one chosen for them, if any was."""

    want: Want
    spec: WorkloadSpec
    replicas: int
    pool: str = ""


def uncovered(cycle: Cycle, machines: Machines, wants: dict[str, Want], coming: Sequence[Machine]) -> list[Lacking]:
    """Replicas without room, the most important workload first.

    What is free now is kept for them on the copy of this tick. Then they fill the machines that are ``coming``.
    """
    left: list[Lacking] = []
    for name in sorted(wants, key=lambda n: (-cycle.priority(n), n)):
        want, spec = wants[name], cycle.spec(name)
        if spec is None:
            continue
        for pool, replicas in want.pools.items() or (("", want.replicas),):
            nodes = frozenset(node.node for node in machines.nodes(pool)) if pool else None
            there = [machine for machine in coming if pool in ("", machine.pool)]
            lacking = replicas
            while lacking and cycle.placement.place(spec, nodes) is not None:
                lacking -= 1
            while lacking and any(machine.take(spec) for machine in there):
                lacking -= 1
            if lacking:
                left.append(Lacking(want, spec, lacking, pool))
    return left
