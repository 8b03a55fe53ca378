"""Replicas that find no room in free capacity or in machines already bought."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from flyball_contracts.records import WorkloadSpec
from flyball_streams.engine.cell.actions.limits import SLACK, accepts
from flyball_streams.engine.cell.cycle import Cycle
from flyball_streams.engine.cell.pools.machines import Machines, Shape, needed
from flyball_streams.engine.cell.pools.wants import UnmetDemand


class Machine(msgspec.Struct):
    """A machine of a pool that has not started yet, and its GPUs that are still free."""

    pool: str
    shape: Shape
    free: float

    def take(self, spec: WorkloadSpec) -> bool:
        """Reserve room for one replica; return whether there was any."""
        needs = needed(spec)
        if not accepts(spec, self.shape.model) or self.free < needs - SLACK:
            return False
        self.free -= needs
        return True


class Lacking(NamedTuple):
    """The ``replicas`` of a workload's ``want`` that have no room; ``pool`` is the one chosen for them, if any."""

    want: UnmetDemand
    spec: WorkloadSpec
    replicas: int
    pool: str = ""


def uncovered(
    cycle: Cycle, machines: Machines, wants: dict[str, UnmetDemand], coming: Sequence[Machine]
) -> list[Lacking]:
    """Replicas without room, the most important workload first.

    They first take free room in this tick's placement, then room in the machines that are ``coming``.
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
