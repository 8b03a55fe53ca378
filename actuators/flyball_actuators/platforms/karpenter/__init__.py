"""Driver ``karpenter``: limits of NodePools as pools of machines, and protection of pods from disruption."""

from flyball_actuators.platforms.base import Promises
from flyball_actuators.platforms.karpenter.disruption import DisruptionBlocker, SpecLookup as SpecLookup
from flyball_actuators.platforms.karpenter.node_pool import NodePool
from flyball_actuators.platforms.kubernetes.api import Api
from flyball_actuators.platforms.pools.backing import Backing
from flyball_actuators.platforms.pools.platform import PoolPlatform
from flyball_contracts.config import PlatformConfig
from flyball_contracts.errors import ConfigError

RBAC = "infra/kubernetes/karpenter.yaml"


class KarpenterPlatform(PoolPlatform):
    """Sets how many machines Karpenter may have in each NodePool; Karpenter buys and returns them.

    Pods in the entry's namespaces that must not be moved are protected from disruption, if ``spec_for`` returns the
    specification of their workload. Raises :class:`ConfigError` for what cannot be served.
    """

    capabilities = PoolPlatform.capabilities._replace(promises=Promises(dry_run="platform"))

    def __init__(self, entry: PlatformConfig, where: str, spec_for: SpecLookup) -> None:
        if not entry.pools and not entry.namespaces:
            raise ConfigError(f"{where}.pools: none is named; list the NodePools that Flyball limits")
        for i, pool in enumerate(entry.pools):
            if pool.kind != "node_pool":
                raise ConfigError(f"{where}.pools[{i}].kind: karpenter has no {pool.kind}; use node_pool")
        api = Api(entry.kubeconfig, entry.timeout_s, where, RBAC)
        backings: dict[str, Backing] = {pool.name: NodePool(api, pool) for pool in entry.pools}
        super().__init__(entry, backings)
        self._blocker = DisruptionBlocker(api, entry.namespaces, spec_for, entry.poll_s) if entry.namespaces else None

    def close(self) -> None:
        """Stop protecting pods; existing annotations stay."""
        if self._blocker is not None:
            self._blocker.close()
