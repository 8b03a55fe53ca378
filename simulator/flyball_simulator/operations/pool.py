"""Scale of a pool: buys and returns machines."""

from msgspec.structs import replace

from flyball_contracts.records import AnyDecision, Scale, SubjectState
from flyball_simulator.cell.plant import Plant
from flyball_simulator.operations.base import Progress, Refused


class PoolTask:
    """Done when the requested number of machines is present; only empty machines are returned, named ones first."""

    names: tuple[str, ...] = ()

    def __init__(self, plant: Plant, pool: str, decision: AnyDecision) -> None:
        if not isinstance(decision, Scale):
            raise Refused("invalid", f"pool {pool!r} can be scaled, nothing else")
        machines = plant.machines
        self._plant, self._pool, self._wanted = plant, pool, decision.replicas
        known, most = machines.pool(pool), len(machines.managed[pool])
        if not known.nodes <= self._wanted <= most:
            raise Refused(
                "invalid",
                f"{self._wanted} machines lie outside {known.nodes} to {most}, nodes and max_nodes of pool {pool!r}",
            )
        fewer = machines.requested(pool) - self._wanted
        self._victims = self._chosen(decision, fewer) if fewer > 0 else []

    def expected(self, before: SubjectState) -> SubjectState:
        """The requested machines, all present."""
        return replace(before, replicas=self._wanted, ready=self._wanted, version="", cost_usd_per_hour=None)

    def begin(self) -> None:
        """Order machines, and close those to be returned."""
        self._plant.machines.resize(self._pool, self._wanted, self._victims, self._plant.now_ns)

    def advance(self) -> Progress:
        """Count the machines."""
        ready = self._plant.machines.observe(self._pool).ready or 0
        if ready == self._wanted:
            return Progress("done", f"pool {self._pool} has {ready} machines")
        return Progress("running", f"pool {self._pool}: {ready} of {self._wanted} machines are there")

    def supersede(self) -> bool:
        """Ordered machines still arrive, unless a newer decision returns them."""
        return False

    def _chosen(self, decision: Scale, count: int) -> list[int]:
        plant = self._plant
        idle = plant.machines.idle(self._pool)
        if len(idle) < count:
            raise Refused(
                "conflict",
                f"{count} machines of pool {self._pool!r} are to go, and only {len(idle)} are empty; move the work off "
                "others, or return fewer",
            )
        named = [node for node in idle if plant.site.nodes[node].name in decision.victims]
        return [*named, *(node for node in idle if node not in named)][:count]
