"""Grants that inventories may not show yet, by tenant."""

from collections import Counter, defaultdict

from flyball_actuators.guard.grants.grant import Grant
from flyball_actuators.guard.grants.kept import KeptGrants

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
        self._newest: dict[str, Grant] = {}

    def _add(self, grant: Grant) -> None:
        tenant, gpus = self._of(grant)
        if grant.replicas is not None:
            self._forget(tenant, grant.workload)
            self._newest[grant.workload] = grant
            self.replicas[tenant][grant.workload] = grant.replicas, gpus
            self._sum_up(tenant, grant.replicas, gpus)
        if grant.starts is not None:
            self.starts[tenant][grant.starts, gpus] += 1

    def _drop(self, grant: Grant) -> None:
        tenant, gpus = self._of(grant)
        if self._newest.get(grant.workload) is grant:
            self._forget(tenant, grant.workload)
        if grant.starts is not None:
            starts = self.starts[tenant]
            starts[grant.starts, gpus] -= 1
            if not starts[grant.starts, gpus]:
                del starts[grant.starts, gpus]

    def _forget(self, tenant: str, workload: str) -> None:
        replicas, gpus = self.replicas[tenant].pop(workload, (0, 0.0))
        self._newest.pop(workload, None)
        self._sum_up(tenant, -replicas, gpus)

    def _sum_up(self, tenant: str, replicas: int, gpus: float) -> None:
        had, used = self.total.get(tenant, (0, 0.0))
        self.total[tenant] = had + replicas, used + replicas * gpus
