"""The reconfigurable part of a run: the collectors, and the outputs other than Kafka."""

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from flyball_collectors.agent.late import LateGpus
from flyball_collectors.agent.reload import applicable, changed_keys
from flyball_collectors.agent.sources import NVML, Sources, connect, open_sources, unchanged, with_source
from flyball_collectors.base import Collector
from flyball_collectors.export import Exports
from flyball_collectors.nvml import Absent
from flyball_collectors.parameters import AgentParameters
from flyball_contracts.config import Config
from flyball_contracts.config.constants import with_constants
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import NodeEvent

_LOG = logging.getLogger(__name__)
LATER = Absent("NVML is opened while the agent runs", "it is measured once it is open")


class Setup:
    """Collectors and outputs that ``config`` selects; given ``collectors`` are never replaced.

    Raises :class:`ConfigError` for an invalid configuration.
    """

    def __init__(self, config: Config, node: str, collectors: Sequence[Collector] | None = None) -> None:
        _need_an_output(config)
        self.config = config
        self._parting: list[NodeEvent] = []
        self._node = node
        self._given = collectors is not None
        if collectors is None:
            self._sources = open_sources(config.agent, node)
            _log_absent(self._sources)
        else:
            self._sources = Sources({str(place): one for place, one in enumerate(collectors)}, {})
        self.collectors: list[Collector] = self._sources.collectors
        try:
            self.exports = Exports(config.agent)
        except BaseException:
            _close(self.collectors)
            raise
        absent = self._sources.absent.get(NVML.name)
        self._late = None if absent is None or NVML.switch in config.agent.disabled else self._late_gpus(absent)

    def look_again(self, passed_ns: int) -> None:
        """Add the GPUs once NVML is open, if it was not before; ``passed_ns`` is the time since the agent began."""
        found = self._late.poll(passed_ns) if self._late is not None else None
        if found is not None:
            self._late = None
            self._sources = with_source(self._sources, NVML, found)
            self.collectors = self._sources.collectors
            _LOG.warning("the GPUs are measured from now on")

    def change(self, config: Config) -> str:
        """Apply ``config``; return the changes as text, with those that need a restart.

        Only changed parts are opened, before anything is closed: on :class:`ConfigError` nothing has changed.
        """
        new, waiting = applicable(self.config, config)
        _need_an_output(new)
        changed = changed_keys(self.config.agent, new.agent, "agent")
        changed += changed_keys(self.config.kafka, new.kafka, "kafka")
        sources = self._sources
        if not self._given:
            same = unchanged(self.config.agent, new.agent)
            kept: dict[str, Collector | Absent] = {n: one for n, one in self._sources.by_name.items() if n in same}
            if NVML.name not in kept and NVML.switch not in new.agent.disabled:
                kept[NVML.name] = LATER  # its start may take long or hang: it is opened beside the loop
            sources = open_sources(new.agent, self._node, kept)
        try:
            self.exports.reconfigure(new.agent)
        except BaseException:
            connect(self._sources)
            _close(one for one in sources.collectors if one not in self.collectors)
            raise
        left = [one for one in self.collectors if one not in sources.collectors]
        self.config, self._sources = new, sources
        self.collectors = sources.collectors
        self._parting += [event for one in left for event in one.events()]
        _close(left)
        _log_absent(sources)
        if sources.absent.get(NVML.name) is not LATER:
            if self._late is not None:
                self._late.drop()
            self._late = None
        else:
            self._late = self._late or self._late_gpus(None)
            self._late.try_now()
        message = f"changed: {', '.join(changed)}" if changed else "nothing changed for the agent"
        return f"{message}; after a restart only: {', '.join(waiting)}" if waiting else message

    def events(self) -> list[NodeEvent]:
        """Events since the last call, including those of collectors that were closed since."""
        parting, self._parting = self._parting, []
        return [*parting, *(event for one in self.collectors for event in one.events())]

    def close(self) -> None:
        """Close the collectors and the outputs."""
        self.exports.close()
        if self._late is not None:
            self._late.drop()
        _close(self.collectors)

    def _late_gpus(self, absent: Absent | None) -> LateGpus:
        agent = self.config.agent
        period_s = with_constants(AgentParameters, agent).gpu.retry_period_s
        return LateGpus(absent, partial(NVML.open, agent, self._node), Path(agent.root), period_s)


def _need_an_output(config: Config) -> None:
    export = config.agent.export
    if not (config.kafka.bootstrap or export.metrics_listen or export.otlp_endpoint):
        raise ConfigError(
            "kafka.bootstrap is empty and agent.export names no output: no reader would receive what is measured; "
            "set one of kafka.bootstrap, agent.export.metrics_listen and agent.export.otlp_endpoint"
        )


def _close(collectors: Iterable[Collector]) -> None:
    for collector in collectors:
        collector.close()


def _log_absent(sources: Sources) -> None:
    for name, absent in sources.absent.items():
        _LOG.info("no %s: %s; %s", name, absent.reason, absent.remedy)
