"""Explains what this node can measure, what it cannot, and why."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flyball_collectors.agent.delivery.spooling import spool_folder
from flyball_collectors.agent.identity import look, state_folder
from flyball_collectors.agent.sources import open_sources
from flyball_collectors.attribution import AttributionCollector
from flyball_collectors.attribution.groups import find_groups
from flyball_collectors.cloud import CloudCollector
from flyball_collectors.export import NEEDS, installed
from flyball_collectors.gateway import GatewayCollector
from flyball_collectors.host import NumaCollector
from flyball_collectors.host.cgroup_v1 import hierarchy_of
from flyball_collectors.host.collector import SOURCES
from flyball_collectors.host.energy import find_zones
from flyball_collectors.kernel import text_of
from flyball_collectors.kmsg import KernelLog
from flyball_collectors.nvml import Absent, NvmlCollector, open_nvml
from flyball_collectors.nvml.binding import Binding, NoBinding
from flyball_collectors.nvml.comparison import Compared, compare
from flyball_collectors.parameters import AgentParameters, AttributionParameters
from flyball_collectors.workload import WorkloadCollector
from flyball_collectors.workload.discovery.slurm import find_jobs
from flyball_contracts.config import AgentConfig, Config
from flyball_contracts.config.constants import with_constants
from flyball_contracts.errors import ConfigError
from flyball_contracts.metrics import GPU

_SEE_PROC = "let the agent's user read /proc and /sys; in a container mount the host's and set agent.root"
_REMEDIES = {
    "psi": "use a kernel with CONFIG_PSI and boot it with psi=1",
    "clock": "run chronyd, ntpd or systemd-timesyncd, and let the agent's user call adjtimex, which only reads here",
}
_SAMPLES_S = 0.5  # long enough for new samples of utilisation


class Finding(NamedTuple):
    """One finding; ``remedy`` is empty if nothing needs to be done."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def explain(config: Config, *, wait: Callable[[float], object] = time.sleep) -> list[Finding]:
    """Check everything that the agent would measure here, for at most a second, and change nothing.

    Something that cannot work here, like the discovery of pods outside of a pod, is a finding of its own.
    """
    agent = config.agent
    try:
        sources = open_sources(agent, look(agent).node, all_or_none=False)
    except ConfigError as error:
        return [Finding("agent.root", False, str(error), "mount the host's /proc and /sys and set agent.root")]
    findings = [_state(agent), _spool(agent), *_exports(agent)]
    if "host" not in agent.disabled:
        findings += _host(Path(agent.root))
    for name, absent in sources.absent.items():
        findings.append(Finding(name, False, absent.reason, absent.remedy))
    for collector in sources.collectors:
        if isinstance(collector, NvmlCollector):
            findings += _nvml(collector, wait)
        if isinstance(collector, KernelLog):
            findings.append(Finding("kmsg", True, "the kernel's lines about GPUs, switches, memory and PCIe are read"))
        if isinstance(collector, CloudCollector):
            findings.append(_cloud(collector))
        if isinstance(collector, NumaCollector):
            nodes = len(collector.parts().numa)
            detail = f"{nodes} NUMA nodes" if nodes else "not divided: the host's row has all of it"
            findings.append(Finding("numa", True, detail))
        if isinstance(collector, WorkloadCollector):
            findings += _workload(collector, wait)
        if isinstance(collector, GatewayCollector):
            wait(_SAMPLES_S)
            findings.append(
                Finding("gateway", True, f"{len(collector.parts().gateways)} workloads are behind gateways")
            )
            findings += _unwell("gateway", collector.problems())
        if isinstance(collector, AttributionCollector):
            findings.append(_attribution(agent, collector))
    for collector in sources.collectors:
        collector.close()
    if "slurm" not in agent.workloads.discover and (jobs := len(find_jobs(Path(agent.root)))):
        remedy = "add slurm to agent.workloads.discover, and install infra/slurm/task-prolog"
        findings.append(Finding("workload.slurm", False, f"{jobs} Slurm jobs run here and may announce pages", remedy))
    return findings


def compare_gpus(config: Config, *, wait: Callable[[float], object] = time.sleep) -> tuple[list[Compared], list[str]]:
    """Read every GPU of this node twice, by our layer and by NVIDIA's own binding, and compare.

    Raises :class:`ConfigError` if one of the two is not available.
    """
    agent = config.agent
    opened = open_nvml(look(agent).node, Path(agent.root), with_constants(AgentParameters, agent).gpu)
    if isinstance(opened, Absent):
        raise ConfigError(f"{opened.reason}; {opened.remedy}")
    try:
        binding = Binding()
    except NoBinding as error:
        opened.close()
        raise ConfigError(str(error)) from None
    try:
        rows, wrong = compare(opened, binding, wait)
        notes = [
            f"GPU {one.gpu}: {one.what} is {one.ours!r} by the agent, {one.theirs!r} by nvidia-ml-py" for one in wrong
        ]
        notes += [f"{what}; see dmesg and nvidia-smi" for what in opened.unreadable]
        return rows, notes
    finally:
        binding.close()
        opened.close()


def _exports(agent: AgentConfig) -> list[Finding]:
    """Findings on the outputs other than Kafka; having none is no fault."""
    export = agent.export
    if not (export.metrics_listen or export.otlp_endpoint):
        return [Finding("agent.export", True, "Kafka is the only output; metrics_listen and otlp_endpoint are not set")]
    found: list[Finding] = []
    for key, target in (("metrics_listen", export.metrics_listen), ("otlp_endpoint", export.otlp_endpoint)):
        modules, remedy = NEEDS[key]
        lacking = [module for module in modules if not installed(module)]
        if target and lacking:
            found.append(Finding(f"agent.export.{key}", False, f"not installed: {', '.join(lacking)}", remedy))
        elif target:
            found.append(Finding(f"agent.export.{key}", True, target))
    return found


def _workload(collector: WorkloadCollector, wait: Callable[[float], object]) -> list[Finding]:
    wait(_SAMPLES_S)
    collector.read(0, 1)
    known = Finding("workload", True, f"{len(collector.parts().allocations)} replicas are known")
    return [known, *_unwell("workload", collector.problems())]


def _unwell(kind: str, problems: Mapping[str, str | None]) -> Iterator[Finding]:
    """One finding for each queried page that does not respond correctly."""
    for who, problem in problems.items():
        if problem is None:
            yield Finding(f"{kind}.{who}", False, "no answer within half a second", "look at its load")
        elif problem:
            detail, _, remedy = problem.partition("; ")
            yield Finding(f"{kind}.{who}", False, detail, remedy or "see its log")


def _attribution(agent: AgentConfig, collector: AttributionCollector) -> Finding:
    root, settings = Path(agent.root), with_constants(AttributionParameters, agent.attribution)
    if not text_of(root / "proc/1/cgroup"):
        remedy = "mount /proc without hidepid, or with gid= of the agent's group"
        return Finding("attribution", False, "whose the processes on the devices are cannot be determined", remedy)
    found, logs = hierarchy_of(root), root / settings.pod_logs.lstrip("/")
    pods = found and any(owner.runtime == "kubernetes" for owner in find_groups(found.groups, settings.groups))
    if pods and not os.access(logs, os.R_OK | os.X_OK):
        remedy = f"let the agent's user list {logs}; in a container mount it"
        return Finding("attribution", False, f"pods have no names, for {logs} cannot be listed", remedy)
    collector.read(0, 1)
    runtimes = Counter(one.runtime or "process" for one in collector.parts().allocations)
    counted = ", ".join(f"{count} of {runtime}" for runtime, count in sorted(runtimes.items())) or "none runs now"
    return Finding("attribution", True, f"pods, jobs and containers by their control groups: {counted}")


def _state(agent: AgentConfig) -> Finding:
    folder = state_folder(agent)
    if _writable(folder):
        return Finding("agent.state_dir", True, f"starts are counted in {folder}")
    detail = f"{folder} cannot be written; the start time stands in for the count of starts"
    return Finding("agent.state_dir", False, detail, "set agent.state_dir to a folder of the agent's user")


def _spool(agent: AgentConfig) -> Finding:
    if not agent.spool_bytes:
        remedy = "set agent.spool_bytes to what an outage of Kafka may fill"
        return Finding("agent.spool", False, "switched off; an outage of Kafka is bridged by memory alone", remedy)
    folder = spool_folder(agent, look(agent).node)
    if _writable(folder):
        return Finding("agent.spool", True, f"up to {agent.spool_bytes / 2**20:.4g} MiB wait in {folder} for Kafka")
    remedy = "set agent.state_dir to a folder of the agent's user"
    return Finding("agent.spool", False, f"{folder} cannot be written; an outage of Kafka loses records", remedy)


def _writable(folder: Path) -> bool:
    """Whether the folder exists, or could be created, and files in it as well."""
    while not os.path.exists(folder):  # Path.exists raises where a folder above must not be entered
        folder = folder.parent
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _host(root: Path) -> list[Finding]:
    findings: list[Finding] = []
    for name, source in SOURCES.items():
        found = source(root)
        detail = f"{len(found)} metrics" if found else "the kernel reports nothing"
        remedy = "" if found else _REMEDIES.get(name, _SEE_PROC)
        findings.append(Finding(f"host.{name}", bool(found), detail, remedy))
    return [*findings, _energy(root), _cgroup(root)]


def _cgroup(root: Path) -> Finding:
    found = hierarchy_of(root)
    if found is not None:
        version = "1, which report no pressure" if found.legacy else "2"
        return Finding("host.cgroup", True, f"what pods and jobs use of the host: control groups of version {version}")
    remedy = "in a container mount the host's /sys/fs/cgroup"
    return Finding("host.cgroup", False, "no control groups are to be seen", remedy)


def _energy(root: Path) -> Finding:
    zones = find_zones(root)
    shut = [zone.name for zone in zones if not text_of(zone.counter)]
    if not zones:
        remedy = "load intel_rapl_common on bare metal; a virtual machine has none"
        return Finding("host.energy", False, "the kernel has no RAPL zone of a CPU package", remedy)
    if shut:
        detail = f"{', '.join(shut)}: energy_uj cannot be read, by default only root may"
        return Finding(
            "host.energy", False, detail, "give the agent's unit CAP_DAC_READ_SEARCH, or its group the files"
        )
    return Finding("host.energy", True, f"RAPL counts {', '.join(zone.name for zone in zones)}")


def _cloud(collector: CloudCollector) -> Finding:
    collector.poll()
    if collector.reason:
        remedy = "let the agent reach the metadata service, or set agent.provider"
        return Finding("cloud", False, collector.reason, remedy)
    place = collector.parts().place
    where = place.availability_zone or place.region
    detail = f"{place.provider}: {place.instance_type} in {where}, {place.capacity_type}; notices are requested"
    return Finding("cloud", True, detail)


def _nvml(collector: NvmlCollector, wait: Callable[[float], object]) -> list[Finding]:
    parts = collector.parts()
    unreadable = list(collector.unreadable)
    findings = [Finding("nvml", True, f"{len(parts.devices)} GPUs, driver {parts.driver_version or 'unknown'}")]
    findings += [Finding("nvml.gpu", False, what, "see dmesg and nvidia-smi; reset the GPU") for what in unreadable]
    collector.read(0, 1)
    wait(_SAMPLES_S)
    reading = next((one for one in collector.read(0, round(_SAMPLES_S * 1e9)) if one.schema == GPU.schema), None)
    rows = [] if reading is None else [tuple(np.flatnonzero(np.isnan(row)).tolist()) for row in reading.values]
    # GPUs of one node are mostly alike: neighbours that lack the same metrics share a line.
    for missing, group in groupby(range(len(rows)), key=lambda row: rows[row]):
        ids = [parts.devices[row].index for row in group]
        name = f"nvml.gpu.{ids[0]}" if len(ids) == 1 else f"nvml.gpu.{ids[0]}-{ids[-1]}"
        if len(missing) == len(GPU):
            findings.append(Finding(name, False, "does not answer", "see dmesg and nvidia-smi; reset the GPU"))
            continue
        absent = ", ".join(GPU.metrics[column].key for column in missing) or "nothing"
        findings.append(Finding(name, True, f"{len(GPU) - len(missing)} of {len(GPU)} metrics; not reported: {absent}"))
    for call, why in collector.refused.items():
        if why:
            findings.append(Finding(f"nvml.{call}", False, "its structure is of a version that is not known", why))
        else:
            findings.append(
                Finding(f"nvml.{call}", True, "read through nvidia-ml-py, which knows the driver's version")
            )
    reason = collector.watch.reason
    remedy = "XIDs are in the kernel log; an agent outside a container may see the events" if reason else ""
    findings.append(Finding("nvml.events", not reason, reason or "XIDs, ECC errors and row remaps are watched", remedy))
    return findings
