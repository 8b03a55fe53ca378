"""The platform's own recovery from dead GPUs, after timeouts."""

from flyball_contracts.ids import NS_PER_S
from flyball_simulator.cell.placement import Replica
from flyball_simulator.cell.plant import Plant


class Healing:
    """Nothing is placed on a lost GPU until it is back. Its replicas are restarted elsewhere after a while.

    A gang hangs until its collective times out, then resumes from its last checkpoint. Stragglers are not detected.
    """

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self._since_ns: dict[Replica, int] = {}
        self._closed: set[int] = set()

    def advance(self) -> None:
        """Check all replicas; called after a tick has begun."""
        plant, config = self._plant, self._plant.config
        placement = plant.placement
        for row in sorted(plant.lost):
            placement.cordon(row, lost=True)
        for row in sorted(self._closed - plant.lost - placement.cordoned_by_request):
            placement.uncordon(row)
        self._closed = set(plant.lost)
        broken = [r for placed in plant.placement.placed for r in placed if plant.broken(r) and not r.stopping]
        self._since_ns = {r: self._since_ns.get(r, plant.now_ns) for r in broken}
        for replica in broken:
            gang = plant.placement.workloads[replica.workload].gang
            timeout_s = config.collective_timeout_s if gang else config.pod_timeout_s
            if plant.now_ns - self._since_ns[replica] >= round(timeout_s * NS_PER_S):
                self._restart(replica, gang)

    def _restart(self, replica: Replica, gang: bool) -> None:
        plant, w = self._plant, replica.workload
        if not gang:
            plant.stop(replica)
            plant.versions[w] += 1
            return
        node = plant.placement.node_for(w)
        if node is not None:
            plant.resume(w, saved=False)
            plant.placement.move(replica, node, plant.now_ns)
            plant.versions[w] += 1
