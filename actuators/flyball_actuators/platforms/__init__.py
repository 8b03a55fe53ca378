"""Platforms carry out decisions; a cell uses the first platform of the configuration whose pattern matches it."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from flyball_actuators.platforms.autoscaler import AutoscalerPlatform as AutoscalerPlatform
from flyball_actuators.platforms.base import (
    Abandoning as Abandoning,
    Capabilities as Capabilities,
    Done as Done,
    Failed as Failed,
    Handle as Handle,
    Held as Held,
    Platform as Platform,
    PlatformError as PlatformError,
    Progress as Progress,
    Promises as Promises,
    Rejected as Rejected,
    Running as Running,
    Serving as Serving,
    Subject as Subject,
    Superseded as Superseded,
    TakingBack as TakingBack,
)
from flyball_actuators.platforms.docker import DockerPlatform as DockerPlatform
from flyball_actuators.platforms.inventory import InventoryPlatform as InventoryPlatform, ReplicaNodes as ReplicaNodes
from flyball_actuators.platforms.karpenter import KarpenterPlatform, SpecLookup
from flyball_actuators.platforms.kubernetes import KubernetesPlatform as KubernetesPlatform
from flyball_actuators.platforms.kueue import KueuePlatform as KueuePlatform
from flyball_actuators.platforms.live import check_live
from flyball_actuators.platforms.pools import CLOUDS as CLOUDS, POOLED, Busy as Busy, cloud, pools_of as pools_of
from flyball_actuators.platforms.simulated import SimulatedPlatform as SimulatedPlatform
from flyball_actuators.platforms.slurm import SlurmPlatform as SlurmPlatform, power_pools
from flyball_actuators.platforms.webhook import WebhookPlatform as WebhookPlatform, token_of
from flyball_actuators.world.kill_switch import stop_reason
from flyball_contracts.config import ActuatorConfig, PlatformConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import AnyDecision, WorkloadSpec
from flyball_contracts.records.subjects import covered, node_of, pool_of

Declared = Callable[[str], WorkloadSpec | None]
"""Returns the specification of a workload, ``None`` if it has none."""
_NOTHING = PlatformConfig()
POLL_S = _NOTHING.poll_s
CLUSTERS = ("kubernetes", "autoscaler", "kueue", "karpenter")
_KEYS = {
    "url": ("simulated", "webhook", "docker", *CLOUDS),
    "token_env": ("webhook",),
    "kubeconfig": CLUSTERS,
    "namespaces": CLUSTERS,
    "conf": ("slurm",),
    "partitions": ("slurm",),
    "scaler": ("autoscaler",),
    "check": ("kubernetes", "slurm"),
    "region": ("aws",),
    "account": ("gcp", "azure"),
    "pools": (*POOLED, "slurm", "simulated"),
    "budget_usd_per_hour": (*POOLED, "slurm", "simulated"),
}
"""Keys of a platform that only some drivers use."""


class Served(NamedTuple):
    """A platform, the glob patterns of the cells it runs, and the seconds between two polls of an operation.

    ``workloads`` are glob patterns, too: the platform handles only workloads that match one.
    """

    cells: tuple[str, ...]
    platform: Platform
    poll_s: float
    workloads: tuple[str, ...] = ("*",)


class Platforms:
    """The platforms of one actuator."""

    def __init__(self, served: Sequence[Served], *, live: bool) -> None:
        self._served = tuple(served)
        self._live = live

    def of(self, decision: AnyDecision) -> Served | Rejected:
        """Return the platform for a decision, or the reason why there is none."""
        workload = decision.workload
        subject: Subject = "pool" if pool_of(workload) else "node" if node_of(workload) else "workload"
        found = next(
            (
                served
                for served in self._served
                if subject in served.platform.capabilities.about
                and any(fnmatchcase(decision.cell, pattern) for pattern in served.cells)
                and any(fnmatchcase(decision.workload, pattern) for pattern in served.workloads)
            ),
            None,
        )
        if found is None:
            return Rejected(
                "no_platform",
                f"no platform carries out decisions about a {subject} of cell {decision.cell!r}; add one to "
                "actuator.platforms",
            )
        kind, kinds = type(decision).__name__, found.platform.capabilities.kinds
        if self._live and kind not in kinds:
            can = f"can do {', '.join(sorted(kinds))}" if kinds else "can plan, not act"
            return Rejected(
                "unsupported",
                f"platform {found.platform.name} of cell {decision.cell!r} {can}: it cannot {kind.lower()} "
                f"{decision.workload!r}; name a platform that can in actuator.platforms, or set actuator.mode to "
                "dry_run",
            )
        return found

    def driver_of(self, decision: AnyDecision) -> str:
        """Name of the platform that carries out a decision, empty if none does."""
        found = self.of(decision)
        return found.platform.name if isinstance(found, Served) else ""

    def keeps_to_node(self, decision: AnyDecision) -> bool:
        """Whether the platform for a decision starts a replica on the node that the decision names, or not at all."""
        found = self.of(decision)
        return isinstance(found, Served) and found.platform.capabilities.promises.node

    @property
    def abandoning(self) -> list[tuple[str, Abandoning]]:
        """The platforms whose operations hold something, each with its name."""
        found = ((served.platform.name, served.platform) for served in self._served)
        return [(name, platform) for name, platform in found if isinstance(platform, Abandoning)]

    def close(self) -> None:
        """Close the platforms that serve."""
        for served in self._served:
            if isinstance(served.platform, Serving):
                served.platform.close()

    @property
    def named(self) -> str:
        """Names of the platforms and their cells, for the log."""
        return ", ".join(f"{s.platform.name} for {'|'.join(s.cells)}" for s in self._served) or "none"


def make_platforms(
    config: ActuatorConfig,
    replica_nodes: ReplicaNodes,
    busy: Busy = lambda _: frozenset(),
    declared: Declared = lambda _: None,
) -> Platforms:
    """Make the platforms of a configuration.

    ``replica_nodes`` returns the replicas that inventories show, ``busy`` the nodes in use, ``declared`` the
    specification of a workload. In dry run, cells without an entry are planned on the inventories.
    Raises :class:`ConfigError`, also for a configuration that :func:`check_live` rejects.
    """
    check_live(config)

    def spec_for(workload: str) -> WorkloadSpec | None:
        """Specification of a workload if a platform may act on it between decisions, by the same rules as decisions."""
        if config.mode != "live" or stop_reason(config.kill_switch) or not covered(workload, config.allow or ()):
            return None
        return declared(workload)

    served: list[Served] = []
    try:
        for i, entry in enumerate(config.platforms):
            where = f"actuator.platforms[{i}]"
            platform = _platform(entry, where, replica_nodes, busy, spec_for, live=config.mode == "live")
            served.append(Served(entry.cells, platform, entry.poll_s, entry.workloads))
            if entry.driver == "slurm" and entry.pools:
                served.append(Served(entry.cells, power_pools(entry, where), entry.poll_s))
    except Exception:
        Platforms(served, live=False).close()
        raise
    if config.mode != "live":
        served.append(Served(("*",), InventoryPlatform(replica_nodes), POLL_S))
    return Platforms(served, live=config.mode == "live")


def _platform(
    entry: PlatformConfig, where: str, replica_nodes: ReplicaNodes, busy: Busy, spec_for: SpecLookup, *, live: bool
) -> Platform:
    for key, drivers in _KEYS.items():
        if getattr(entry, key) != getattr(_NOTHING, key) and entry.driver not in drivers:
            raise ConfigError(
                f"{where}.{key}: driver {entry.driver} does not use it; leave it out, or set driver: "
                f"{' or '.join(drivers)}"
            )
    if entry.driver in CLOUDS:
        return cloud(entry, where, busy)
    if entry.driver == "karpenter":
        return KarpenterPlatform(entry, where, spec_for)
    if entry.driver == "autoscaler":
        return AutoscalerPlatform(entry, where)
    if entry.driver == "kubernetes":
        return KubernetesPlatform(entry, where)
    if entry.driver == "kueue":
        return KueuePlatform(entry, where, live=live)
    if entry.driver == "slurm":
        return SlurmPlatform(entry, where)
    if entry.driver == "docker":
        return DockerPlatform(entry, where)
    if entry.driver == "inventory":
        return InventoryPlatform(replica_nodes)
    if entry.driver == "webhook":
        return WebhookPlatform(entry.url, entry.timeout_s, where, token=token_of(entry, where))
    return SimulatedPlatform(entry.url, entry.timeout_s, where)
