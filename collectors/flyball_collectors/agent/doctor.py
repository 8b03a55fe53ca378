"""What this node can measure, what it cannot, and why."""

import os
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flyball_collectors.agent.identity import look, state_folder
from flyball_collectors.agent.sources import open_sources
from flyball_collectors.agent.spooling import spool_folder
from flyball_collectors.host.collector import SOURCES
from flyball_collectors.nvml import NvmlCollector
from flyball_contracts.config import AgentConfig, Config
from flyball_contracts.errors import ConfigError
from flyball_contracts.metrics import GPU

_SEE_PROC = "let the agent's user read /proc and /sys; in a container mount the host's and set agent.root"
_REMEDIES = {"psi": "use a kernel with CONFIG_PSI and boot it with psi=1"}
_SAMPLES_S = 0.5  # long enough for new samples of utilisation


class Finding(NamedTuple):
    """One thing that was looked at; ``remedy`` is empty where nothing needs to be done."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


def explain(config: Config, *, wait: Callable[[float], object] = time.sleep) -> list[Finding]:
    """Look at everything that the agent would measure here, for at most a second, and change nothing."""
    agent = config.agent
    try:
        sources = open_sources(agent, look(agent).node)
    except ConfigError as error:
        return [Finding("agent.root", False, str(error), "mount the host's /proc and /sys and set agent.root")]
    findings = [_state(agent), _spool(agent)]
    if agent.host:
        findings += _host(Path(agent.root))
    for name, absent in sources.absent.items():
        findings.append(Finding(name, False, absent.reason, absent.remedy))
    for collector in sources.collectors:
        if isinstance(collector, NvmlCollector):
            findings += _nvml(collector, wait)
        collector.close()
    return findings


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
    remedy = "set agent.spool_dir to a folder of the agent's user"
    return Finding("agent.spool", False, f"{folder} cannot be written; an outage of Kafka loses records", remedy)


def _writable(folder: Path) -> bool:
    """Whether the folder is there, or could be made, and files in it, too."""
    while not folder.exists():
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _host(root: Path) -> list[Finding]:
    findings: list[Finding] = []
    for name, source in SOURCES.items():
        found = source(root)
        detail = f"{len(found)} metrics" if found else "the kernel tells nothing"
        remedy = "" if found else _REMEDIES.get(name, _SEE_PROC)
        findings.append(Finding(f"host.{name}", bool(found), detail, remedy))
    return findings


def _nvml(collector: NvmlCollector, wait: Callable[[float], object]) -> list[Finding]:
    parts = collector.parts()
    unreadable = list(collector.unreadable)
    findings = [Finding("nvml", True, f"{len(parts.devices)} GPUs, driver {parts.driver_version or 'unknown'}")]
    findings += [Finding("nvml.gpu", False, what, "see dmesg and nvidia-smi; reset the GPU") for what in unreadable]
    collector.read(0, 1)
    wait(_SAMPLES_S)
    (reading,) = collector.read(0, round(_SAMPLES_S * 1e9)) or (None,)
    rows = [] if reading is None else [tuple(np.flatnonzero(np.isnan(row)).tolist()) for row in reading.values]
    # GPUs of one node are mostly alike: neighbours that lack the same are told of together.
    for missing, group in groupby(range(len(rows)), key=lambda row: rows[row]):
        ids = [parts.devices[row].index for row in group]
        name = f"nvml.gpu.{ids[0]}" if len(ids) == 1 else f"nvml.gpu.{ids[0]}-{ids[-1]}"
        if len(missing) == len(GPU):
            findings.append(Finding(name, False, "does not answer", "see dmesg and nvidia-smi; reset the GPU"))
            continue
        absent = ", ".join(GPU.metrics[column].key for column in missing) or "nothing"
        findings.append(Finding(name, True, f"{len(GPU) - len(missing)} of {len(GPU)} metrics; not told: {absent}"))
    reason = collector.watch.reason
    remedy = "XIDs are in the kernel log; an agent outside a container may see the events" if reason else ""
    findings.append(Finding("nvml.events", not reason, reason or "XIDs, ECC errors and row remaps are watched", remedy))
    return findings
