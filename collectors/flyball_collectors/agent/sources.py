"""Collectors that a configuration selects, and which of them are available here.

Collectors that most nodes do not use are imported only when they are selected, because each costs memory.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from flyball_collectors.attribution import AttributionCollector
from flyball_collectors.base import Collector
from flyball_collectors.cloud import open_cloud
from flyball_collectors.host import HostCollector, NumaCollector
from flyball_collectors.kmsg import open_kmsg
from flyball_collectors.nvml import Absent, NvmlCollector, open_nvml
from flyball_collectors.parameters import AgentParameters
from flyball_contracts.config import AgentConfig
from flyball_contracts.config.constants import with_constants
from flyball_contracts.errors import ConfigError


class SourceKind(NamedTuple):
    """One kind of source; it is reopened when one of its ``settings``, keys of ``agent``, changes, and only then.

    ``switch`` is its name in ``agent.disabled``. ``opened`` takes the configuration and the node's name. It may raise
    :class:`ConfigError`.
    """

    name: str
    settings: tuple[str, ...]
    opened: Callable[[AgentConfig, str], Collector | Absent]
    switch: str = ""

    def open(self, config: AgentConfig, node: str) -> Collector | Absent:
        """The collector, or why it is absent."""
        if self.switch in config.disabled:
            return Absent("switched off", f"take {self.switch} away from agent.disabled")
        return self.opened(config, node)

    def same(self, old: AgentConfig, new: AgentConfig) -> bool:
        """Whether both configurations open this source with the same settings, or do not open it."""
        switched = (self.switch in old.disabled) != (self.switch in new.disabled)
        return not switched and all(getattr(old, key) == getattr(new, key) for key in self.settings)


class Sources(NamedTuple):
    """Open collectors by the kind's name, in the order of their readings; and by name why the others are absent."""

    by_name: dict[str, Collector]
    absent: dict[str, Absent]

    @property
    def collectors(self) -> list[Collector]:
        """The open ones."""
        return list(self.by_name.values())


def _nvml(config: AgentConfig, node: str) -> Collector | Absent:
    return open_nvml(node, Path(config.root), with_constants(AgentParameters, config).gpu)


def _host(config: AgentConfig, _: str) -> Collector:
    return HostCollector(Path(config.root))


def _numa(config: AgentConfig, _: str) -> Collector:
    return NumaCollector(Path(config.root))


def _kmsg(config: AgentConfig, node: str) -> Collector | Absent:
    return open_kmsg(node, Path(config.root))


def _workload(config: AgentConfig, node: str) -> Collector | Absent:
    known = config.workloads
    if not (any(one.workload for one in known.targets) or known.logs or known.listen or known.discover):
        return Absent("no source is configured", "name targets, logs, listen or discover in agent.workloads")
    from flyball_collectors.workload import WorkloadCollector

    return WorkloadCollector(config.workloads, node, root=Path(config.root), attribution=config.attribution)


def _gateway(config: AgentConfig, node: str) -> Collector | Absent:
    if not any(one.workloads for one in config.workloads.targets):
        return Absent("no source is configured", "name workloads of a gateway in agent.workloads.targets")
    from flyball_collectors.gateway import GatewayCollector, gateways_of

    return GatewayCollector(gateways_of(config.workloads, node))


def _cloud(config: AgentConfig, node: str) -> Collector | Absent:
    return open_cloud(config.provider, node, Path(config.root), with_constants(AgentParameters, config).cloud)


def _attribution(config: AgentConfig, node: str) -> Collector:
    return AttributionCollector(config.attribution, node, Path(config.root))


NVML = SourceKind("nvml", ("root",), _nvml, "nvml")
SOURCES = (
    NVML,
    SourceKind("kmsg", ("root",), _kmsg, "kmsg"),
    SourceKind("cloud", ("root", "provider"), _cloud),
    SourceKind("host", ("root",), _host, "host"),
    SourceKind("numa", ("root",), _numa, "host"),
    SourceKind("workload", ("root", "workloads", "attribution", "node"), _workload),
    SourceKind("gateway", ("workloads", "node"), _gateway),
    SourceKind("attribution", ("root", "attribution", "node"), _attribution, "attribution"),
)


def open_sources(
    config: AgentConfig, node: str, kept: Mapping[str, Collector | Absent] | None = None, *, all_or_none: bool = True
) -> Sources:
    """Open every enabled collector, except those of ``kept``, which stay as they are.

    Raises :class:`ConfigError` when ``root`` has no ``/proc``: then nothing could be measured. On any error the
    collectors opened here are closed again, and ``kept`` is unchanged. Without ``all_or_none`` a kind with unusable
    settings is absent, and the others are open.
    """
    root = Path(config.root)
    if not (root / "proc").is_dir():
        raise ConfigError(f"agent.root: {root / 'proc'} is not a folder; mount the host's /proc there")
    kept = kept or {}
    sources = Sources({}, {})
    try:
        for kind in SOURCES:
            try:
                opened = kept[kind.name] if kind.name in kept else kind.open(config, node)
            except ConfigError as error:
                if all_or_none:
                    raise
                reason, _, remedy = str(error).partition("; ")
                opened = Absent(reason, remedy or "correct this setting")
            if isinstance(opened, Absent):
                sources.absent[kind.name] = opened
            else:
                sources.by_name[kind.name] = opened
    except BaseException:
        for name, collector in sources.by_name.items():
            if name not in kept:
                collector.close()
        raise
    connect(sources)
    return sources


def with_source(sources: Sources, kind: SourceKind, collector: Collector) -> Sources:
    """The sources with one that was absent; the others continue."""
    by_name = {**sources.by_name, kind.name: collector}
    in_order = {kind.name: by_name[kind.name] for kind in SOURCES if kind.name in by_name}
    found = Sources(in_order, {name: absent for name, absent in sources.absent.items() if name not in by_name})
    connect(found)
    return found


def connect(sources: Sources) -> None:
    """Connect collectors that use others."""
    attribution, nvml = sources.by_name.get("attribution"), sources.by_name.get("nvml")
    if isinstance(attribution, AttributionCollector):
        others = [sources.by_name[name] for name in ("workload",) if name in sources.by_name]
        attribution.attach(nvml if isinstance(nvml, NvmlCollector) else None, others)


def unchanged(old: AgentConfig, new: AgentConfig) -> set[str]:
    """Names of the kinds that a change of the configuration does not affect."""
    return {kind.name for kind in SOURCES if kind.same(old, new)}
