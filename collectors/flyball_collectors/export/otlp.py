"""The latest readings as an OTLP request."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Gauge,
    Metric as OtlpMetric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from flyball_collectors.export.latest import View
from flyball_collectors.export.rows import column_attributes, row_attributes
from flyball_collectors.kernel import text_of
from flyball_contracts.metrics import LAYOUTS, Metric
from flyball_contracts.records import Inventory

# UpDownCounters of the semantic conventions: levels that can be added up over their rows.
_UP_DOWN = frozenset(
    {
        "hw.gpu.memory.usage",
        "hw.gpu.memory.limit",
        "hw.status",
        "system.memory.usage",
        "system.memory.limit",
        "system.memory.linux.available",
        "system.paging.usage",
        "system.process.count",
        "system.cpu.logical.count",
        "container.memory.usage",
        "container.memory.working_set",
    }
)


def host_id(root: Path) -> str:
    """Machine id of the host; empty if it has none."""
    return text_of(root / "etc/machine-id").strip()


def resource_attributes(inventory: Inventory, host: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Attributes of the node by the semantic conventions; unknown ones are left out.

    ``environment`` may describe Kubernetes by ``FLYBALL_CLUSTER``, ``FLYBALL_NODE`` and ``FLYBALL_NODE_UID``.
    """
    attributes = {
        "service.name": "flyball-agent",
        "host.name": inventory.node,
        "host.id": host,
        "host.type": inventory.instance_type,
        "cloud.provider": inventory.provider,
        "cloud.region": inventory.region,
        "cloud.availability_zone": inventory.availability_zone,
        "k8s.cluster.name": environment.get("FLYBALL_CLUSTER", ""),
        "k8s.node.name": environment.get("FLYBALL_NODE", ""),
        "k8s.node.uid": environment.get("FLYBALL_NODE_UID", ""),
        "flyball.cell": inventory.cell,
    }
    return {key: value for key, value in attributes.items() if value}


def request_of(view: View, resource: Mapping[str, str]) -> ExportMetricsServiceRequest:
    """All values of a view; counters are cumulative since the agent's first frame of the row."""
    metrics: dict[str, OtlpMetric] = {}
    for block in view.blocks:
        rows = [_key_values(attributes) for attributes in row_attributes(block.layout, view.inventory)]
        known = ~np.isnan(block.values)
        starts_ns = block.starts_ns.tolist()
        for place, (metric, attributes) in enumerate(_columns(block.layout.schema)):
            otlp = metrics.get(metric.name)
            if otlp is None:
                otlp = metrics[metric.name] = _empty(metric)
            cumulative = otlp.HasField("sum")
            points = otlp.sum.data_points if cumulative else otlp.gauge.data_points
            values = block.values[:, place].tolist()
            for row in np.flatnonzero(known[:, place]).tolist():
                points.append(
                    NumberDataPoint(
                        attributes=[*rows[row], *attributes],
                        time_unix_nano=block.time_ns,
                        start_time_unix_nano=starts_ns[row] if cumulative else 0,
                        as_double=values[row],
                    )
                )
    filled = [otlp for otlp in metrics.values() if otlp.sum.data_points or otlp.gauge.data_points]
    scope = ScopeMetrics(scope=InstrumentationScope(name="flyball.agent", version=_version()), metrics=filled)
    where = ResourceMetrics(resource=Resource(attributes=_key_values(resource)), scope_metrics=[scope])
    return ExportMetricsServiceRequest(resource_metrics=[where])


def _empty(metric: Metric) -> OtlpMetric:
    unit = metric.unit
    cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    if metric.instrument == "counter":
        return OtlpMetric(name=metric.name, unit=unit, sum=Sum(aggregation_temporality=cumulative, is_monotonic=True))
    if metric.name in _UP_DOWN:
        return OtlpMetric(name=metric.name, unit=unit, sum=Sum(aggregation_temporality=cumulative))
    return OtlpMetric(name=metric.name, unit=unit, gauge=Gauge())


@cache
def _columns(schema: int) -> tuple[tuple[Metric, list[KeyValue]], ...]:
    layout = LAYOUTS[schema]
    return tuple((metric, _key_values(column_attributes(layout, metric))) for metric in layout.metrics)


def _key_values(attributes: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in attributes.items()]


@cache
def _version() -> str:
    return version("flyball")
