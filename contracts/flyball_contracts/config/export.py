"""Configuration of the agent's outputs other than Kafka."""

from typing import Annotated

import msgspec

from flyball_contracts.config.base import Section

Listen = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^$|^(\[[0-9A-Fa-f:.]+\]|[^\[\]:\s/]+):[0-9]{1,5}$", description="HOST:PORT, e.g. 127.0.0.1:9400"
    ),
]
Endpoint = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^$|^https?://[^/@?#\s]+(/[^?#@\s]*)?$", description="a URL like http://127.0.0.1:4318/v1/metrics"
    ),
]


class ExportConfig(Section, frozen=True):
    """Outputs other than Kafka; both are off by default.

    ``metrics_listen`` is ``HOST:PORT`` of ``/metrics`` and ``/health``; ``dcgm`` adds the names of NVIDIA's exporter.
    ``otlp_endpoint`` receives OTLP over HTTP. Its headers are read from the variable OTEL_EXPORTER_OTLP_HEADERS,
    comma-separated ``name=value``. Readings are sent every ten seconds.
    """

    metrics_listen: Listen = ""
    dcgm: bool = False
    otlp_endpoint: Endpoint = ""
