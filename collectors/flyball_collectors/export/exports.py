"""The outputs that a configuration selects, fed by the tick loop."""

import importlib.util
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flyball_collectors.export.latest import Framed, Latest
from flyball_collectors.parameters import ExportParameters
from flyball_contracts.config import AgentConfig, ExportConfig
from flyball_contracts.config.constants import with_constants
from flyball_contracts.errors import ConfigError
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Inventory, NodeEvent

if TYPE_CHECKING:  # imported when they are requested: they cost memory
    from flyball_collectors.export.prometheus import PrometheusPages
    from flyball_collectors.export.sender import OtlpSender
    from flyball_collectors.export.server import MetricsServer

_LOG = logging.getLogger(__name__)
_ILL_PERIODS = 3
_ILL_S = 3.0
NEEDS = {
    "metrics_listen": (("prometheus_client",), "pip install 'flyball[agent]'"),
    "otlp_endpoint": (("opentelemetry.proto", "google.protobuf", "urllib3"), "pip install 'flyball[otlp]'"),
}
"""Modules that each key of ``agent.export`` needs, and the command that installs them."""


class Exports:
    """Outputs that never wait for a client or an endpoint.

    Raises :class:`ConfigError` for an invalid output.
    """

    def __init__(
        self,
        config: AgentConfig,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._config = ExportParameters()
        self._period_s = config.period_s
        self._monotonic = monotonic
        self._environment = environment
        self._latest = Latest()
        self._ticked_s: float | None = None
        self._sent_passed_ns: int | None = None
        self._pages: PrometheusPages | None = None
        self._server: MetricsServer | None = None
        self._sender: OtlpSender | None = None
        self._failed = False
        self._before = 0, 0  # requests taken and lost by senders that are closed
        self.reconfigure(config)

    @property
    def port(self) -> int | None:
        """Port of the metrics; ``None`` when they are off."""
        return None if self._server is None else self._server.port

    @property
    def requests(self) -> tuple[int, int]:
        """Number of OTLP requests delivered and lost."""
        taken, lost = self._before
        return (taken, lost) if self._sender is None else (taken + self._sender.taken, lost + self._sender.lost)

    def reconfigure(self, config: AgentConfig) -> None:
        """Open, change and close outputs that differ; on an error nothing has changed."""
        new, old = with_constants(ExportParameters, config.export), self._config
        server, sender = self._server, self._sender
        if new.metrics_listen != old.metrics_listen:
            server = self._open_server(new) if new.metrics_listen else None
        try:
            if _otlp(new) != _otlp(old):
                sender = self._open_sender(config) if new.otlp_endpoint else None
        except ConfigError:
            if server is not None and server is not self._server:
                server.close()
            raise
        closing = [
            one
            for one, stays in ((self._server, server), (self._sender, sender))
            if one is not None and one is not stays
        ]
        self._server, self._sender, old_sender = server, sender, self._sender
        for one in closing:
            one.close()
        if old_sender is not None and old_sender is not sender:
            self._before = self._before[0] + old_sender.taken, self._before[1] + old_sender.lost
        if self._pages is not None:
            self._pages.dcgm = new.dcgm
        self._config, self._period_s = new, config.period_s

    def take(
        self,
        time_ns: int,
        passed_ns: int,
        frames: Sequence[Framed],
        inventory: Inventory,
        events: Sequence[NodeEvent] = (),
    ) -> None:
        """Add one tick, see :meth:`Latest.take`."""
        if self._server is None and self._sender is None:
            return
        self._ticked_s = self._monotonic()
        try:
            self._latest.take(time_ns, passed_ns, frames, inventory, events)
        except Exception:  # a fault of ours here must not cost the stream to Kafka
            if not self._failed:
                _LOG.exception("the outputs beside Kafka stay as they were; report it")
            self._failed = True
            return
        before_ns = self._sent_passed_ns
        due = before_ns is None or passed_ns - before_ns >= self._config.otlp_period_s * NS_PER_S
        if self._sender is not None and due and self._latest.view is not None:
            self._sender.put(self._latest.view)
            self._sent_passed_ns = passed_ns

    def close(self) -> None:
        """Close all outputs."""
        for one in (self._server, self._sender):
            if one is not None:
                one.close()
        if self._sender is not None:
            self._before = self._before[0] + self._sender.taken, self._before[1] + self._sender.lost
        self._server = self._sender = None

    def _open_server(self, config: ExportConfig) -> "MetricsServer":
        _need("metrics_listen")
        from flyball_collectors.export.prometheus import PrometheusPages
        from flyball_collectors.export.server import MetricsServer

        if self._pages is None:
            self._pages = PrometheusPages(self._latest, dcgm=config.dcgm)
        return MetricsServer(config.metrics_listen, self._pages, self._illness)

    def _open_sender(self, config: AgentConfig) -> "OtlpSender":
        _need("otlp_endpoint")
        from flyball_collectors.export.otlp import host_id
        from flyball_collectors.export.sender import OtlpSender

        return OtlpSender(
            with_constants(ExportParameters, config.export), host_id(Path(config.root)), self._environment
        )

    def _illness(self) -> str:
        """Text of ``/health`` on current problems."""
        if self._ticked_s is None:
            return "no tick yet"
        quiet_s = self._monotonic() - self._ticked_s
        if quiet_s > max(_ILL_PERIODS * self._period_s, self._period_s + _ILL_S):
            return f"no tick for {quiet_s:.1f} s"
        return ""


def _otlp(config: ExportParameters) -> tuple[object, ...]:
    """Settings of a sender."""
    return config.otlp_endpoint, config.otlp_headers_env, config.otlp_queue, config.otlp_timeout_s


def installed(module: str) -> bool:
    """Whether a module could be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False
    except ValueError:  # the module is imported, and has replaced itself, as Faust does
        return True


def _need(key: str) -> None:
    modules, remedy = NEEDS[key]
    if lacking := [module for module in modules if not installed(module)]:
        raise ConfigError(f"agent.export.{key}: needs more packages: {remedy} (missing: {', '.join(lacking)})")
