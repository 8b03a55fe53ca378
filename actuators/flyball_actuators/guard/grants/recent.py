"""Grants that inventories may not show yet, by tenant."""

from collections import Counter, defaultdict

from flyball_actuators.guard.grants.grant import Grant
from flyball_actuators.guard.grants.kept import KeptGrants, remove_end

Start = tuple[str, float]
"""Node on which a grant starts replicas, empty for any, and the GPUs that each requests."""


class RecentGrants(KeptGrants):
    """``replicas[tenant][workload]`` is how many replicas the newest grant gives a workload, and the GPUs of each.

    ``total[tenant]`` are the sums of these: replicas and GPUs. ``starts[tenant][start]`` is how many grants start such
    replicas.
    """

    def _clear(self) -> None:
        self.replicas: dict[str, dict[str, tuple[int, float]]] = defaultdict(dict)
        self.starts: dict[str, Counter[Start]] = defaultdict(Counter)
        self.total: dict[str, tuple[int, float]] = {}
        self._by_workload: dict[str, list[Grant]] = defaultdict(list)

    def _add(self, grant: Grant) -> None:
        tenant, gpus = self._of(grant)
        if grant.replicas is not None:
            self._by_workload[grant.workload].append(grant)
            self._set(grant.workload, tenant, gpus)
        if grant.starts is not None:
            self.starts[tenant][grant.starts, gpus] += 1

    def _drop(self, grant: Grant) -> None:
        tenant, gpus = self._of(grant)
        if grant.replicas is not None:
            remove_end(self._by_workload[grant.workload], grant)
            self._set(grant.workload, tenant, gpus)
        if grant.starts is not None:
            starts = self.starts[tenant]
            starts[grant.starts, gpus] -= 1
            if not starts[grant.starts, gpus]:
                del starts[grant.starts, gpus]

    def _set(self, workload: str, tenant: str, gpus: float) -> None:
        """Update the replicas that the newest grant gives a workload."""
        had, _ = self.replicas[tenant].pop(workload, (0, gpus))
        now, left = 0, self._by_workload[workload]
        if left:
            now = left[-1].replicas or 0
            self.replicas[tenant][workload] = now, gpus
        else:
            del self._by_workload[workload]
        replicas, used = self.total.get(tenant, (0, 0.0))
        self.total[tenant] = replicas + now - had, used + (now - had) * gpus
