"""Which collectors a configuration asks for, and which of them are to be had here."""

from pathlib import Path
from typing import NamedTuple

from flyball_collectors.base import Collector
from flyball_collectors.host import HostCollector
from flyball_collectors.nvml import Absent, open_nvml
from flyball_contracts.config import AgentConfig
from flyball_contracts.errors import ConfigError


class Sources(NamedTuple):
    """Collectors, and by name why the others are absent."""

    collectors: list[Collector]
    absent: dict[str, Absent]


def open_sources(config: AgentConfig, node: str) -> Sources:
    """Open every collector that is switched on.

    Raises :class:`ConfigError` when ``root`` has no ``/proc``: then nothing could be told.
    """
    root = Path(config.root)
    if not (root / "proc").is_dir():
        raise ConfigError(f"agent.root: {root / 'proc'} is not a folder; mount the host's /proc there")
    collectors: list[Collector] = []
    absent: dict[str, Absent] = {}
    if config.nvml:
        nvml = open_nvml(node, root)
        if isinstance(nvml, Absent):
            absent["nvml"] = nvml
        else:
            collectors.append(nvml)
    else:
        absent["nvml"] = Absent("switched off", "set agent.nvml to true")
    if config.host:
        collectors.append(HostCollector(root))
    else:
        absent["host"] = Absent("switched off", "set agent.host to true")
    return Sources(collectors, absent)
