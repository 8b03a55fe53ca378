"""Converts records to line protocol: measurement, tags, fields and time."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from flyball_contracts.codec import BINDINGS
from flyball_contracts.frame import Frame
from flyball_contracts.metrics import (
    GATEWAY,
    GPU,
    GPU_DETAIL,
    GPU_SHARE,
    HOST,
    NUMA,
    SERVING,
    USAGE,
    WORKLOAD,
    layout_of,
)
from flyball_contracts.records import (
    Account,
    Anomaly,
    Capacity,
    Decision,
    Demand,
    DemandTick,
    Forecast,
    Inventory,
    Outcome,
    Part,
    Plan,
    PlatformStatus,
    Profile,
    Record,
    Snapshot,
    Waste,
    WorkloadProfile,
)
from flyball_streams.sinks.line_protocol import Field, line

MEASUREMENTS: Mapping[int, str] = {
    GPU.schema: "hw.gpu",
    HOST.schema: "system",
    WORKLOAD.schema: "flyball.workload",
    GPU_DETAIL.schema: "nvidia.gpu",
    NUMA.schema: "system.numa",
    USAGE.schema: "container",
    GPU_SHARE.schema: "nvidia.gpu.share",
    GATEWAY.schema: "flyball.gateway",
    SERVING.schema: "flyball.serving",
}


DEMAND_FIELDS = tuple(
    name for name in Demand.__struct_fields__ if name not in ("workload", "usage", "clocks", "features", "latencies")
)


class _Shape(NamedTuple):
    """Mapping of a record type to a line; `tags` maps tag keys to attributes, `fields` are attributes."""

    measurement: str
    tags: Mapping[str, str]
    fields: tuple[str, ...]


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_SHAPES: Mapping[type[Record], _Shape] = {
    Profile: _Shape(
        "flyball.profile",
        _same("cell", "node", "subject", "workload"),
        (
            *("duty_cycle", "utilization", "memory_utilization", "memory_bound", "power_w", "idle_s"),
            *("bound_by", "phase", "kind", "family"),
        ),
    ),
    WorkloadProfile: _Shape(
        "flyball.workload.profile",
        {"cell": "cell", "workload": "subject"},
        ("strangeness", "seen_s", "devices", "step_s", "cold_start_prior_s"),
    ),
    Waste: _Shape(
        "flyball.waste", _same("cell", "subject", "category"), ("gpu_hours", "usd", "devices", "action", "proposal")
    ),
    Anomaly: _Shape("flyball.anomaly", _same("cell", "node", "subject", "workload", "detector"), ("score",)),
    Capacity: _Shape(
        "flyball.capacity",
        {"cell": "cell", "workload": "subject"},
        (
            *("used_work_per_s", "source", "work_per_s", "relative_error", "proven_work_per_s"),
            *("saturated_windows", "cold_start_s"),
        ),
    ),
    Plan: _Shape(
        "flyball.plan",
        {"cell": "cell", "zone": "zone", "workload": "subject"},
        ("saving", "price_saving", "feasible"),
    ),
    Account: _Shape(
        "flyball.account",
        _same("cell", "scenario"),
        ("gpu_h", "cost_usd", "energy_j", "carbon_g", "requests", "in_time", "queued", "lost_gpu_h", "useful_gpu_h"),
    ),
    PlatformStatus: _Shape(
        "flyball.actuator.breaker", _same("driver", "cells", "actuator"), ("open", "failures", "opened", "problem")
    ),
    Outcome: _Shape(
        "flyball.outcome",
        _same("cell", "workload", "target", "type", "status", "mode", "driver", "code"),
        ("decision", "detail", "answer", "effect_after_s"),
    ),
}  # fmt: skip


def to_lines(record: Record | Frame | Snapshot, inventory: Inventory | None = None) -> list[str]:
    """Lines of one record; none for a record that is not stored (marks, specifications, snapshots, ...).

    Demand gives one line per workload. A frame gives one line per row, its fields named by metric key; `inventory`, the
    one that the frame names, gives the tags `cell, device, model, workload, replica`; without it the only tag of the
    row is `row`. A forecast gives one line per lead (first, middle, last) at the time that it is *for*, with a field
    `q<level>` for each quantile.
    """
    return [made for made in _lines(record, inventory) if made is not None]


def _lines(record: Record | Frame | Snapshot, inventory: Inventory | None) -> Iterator[str | None]:
    if isinstance(record, Frame):
        keys, rows = [metric.key for metric in layout_of(record.schema).metrics], layout_of(record.schema).rows
        for row, values in enumerate(record.values.tolist()):
            tags = {"node": record.node, **_row_tags(rows, row, inventory)}
            yield line(MEASUREMENTS[record.schema], tags, dict(zip(keys, values, strict=True)), record.time_ns)
    elif isinstance(record, Forecast):
        yield from _forecast_lines(record)
    elif isinstance(record, DemandTick):
        yield from _demand_lines(record)
    elif isinstance(record, Decision):
        yield _decision_line(record)
    elif not isinstance(record, Snapshot) and (shape := _SHAPES.get(type(record))) is not None:
        yield _shaped_line(record, shape)


def _shaped_line(record: Record, shape: _Shape) -> str | None:
    tags = {key: str(getattr(record, attribute)) for key, attribute in shape.tags.items()}
    fields: dict[str, Field] = {name: getattr(record, name) for name in shape.fields}
    return line(shape.measurement, tags, fields, BINDINGS[type(record)].time_ns(record))


def _decision_line(decision: Decision) -> str | None:
    """All numbers and texts of a decision, whatever its kind."""
    tags = {"type": type(decision).__name__} | {key: getattr(decision, key) for key in ("cell", "workload", "target")}
    if decision.subject != decision.target:  # moves of two replicas of one workload in a tick are two points
        tags["subject"] = decision.subject
    fields: dict[str, Field] = {name: getattr(decision, name) for name in ("id", "reason", "confidence", "policy")}
    fields["change"] = decision.change()
    for name, value in {**decision.content(), "expected": decision.expected}.items():
        if isinstance(value, Part):
            fields |= {f"{name}_{part}": getattr(value, part) for part in value.__struct_fields__}
        elif isinstance(value, bool | int | float | str):
            fields[name] = value
    return line("flyball.decision", tags, fields, decision.time_ns)


def _row_tags(rows: str, row: int, inventory: Inventory | None) -> dict[str, str]:
    if inventory is None:
        return {"row": str(row)}
    tags = {"cell": inventory.cell}
    if rows == "device" and row < len(inventory.devices):
        device = inventory.devices[row]
        tags |= {"device": device.id, "model": device.model}
        holders = [a for a in inventory.allocations if row in a.devices]
        if len(holders) == 1:  # a shared device has no single owner
            tags |= {"workload": holders[0].workload, "replica": holders[0].replica}
    elif rows == "allocation" and row < len(inventory.allocations):
        allocation = inventory.allocations[row]
        tags |= {"workload": allocation.workload, "replica": allocation.replica}
    elif rows == "numa" and row < len(inventory.numa):
        tags["numa"] = str(inventory.numa[row].id)
    elif rows == "gateway" and row < len(inventory.gateways):
        gateway = inventory.gateways[row]
        tags |= {"workload": gateway.workload, "gateway": gateway.name}
    elif rows != "host":
        tags["row"] = str(row)
    return tags


def _demand_lines(record: DemandTick) -> Iterator[str | None]:
    for demand in record.demands:
        tags = {"cell": record.cell, "workload": demand.workload, "source": record.source}
        fields: dict[str, Field] = {name: getattr(demand, name) for name in DEMAND_FIELDS}
        if demand.usage is not None:
            fields |= {f"usage_{name}": getattr(demand.usage, name) for name in demand.usage.__struct_fields__}
        yield line("flyball.demand", tags, fields, record.tick.end_ns)


def _forecast_lines(forecast: Forecast) -> Iterator[str | None]:
    count = len(forecast.horizon_s)
    for h in sorted({0, count // 2, count - 1} if count else ()):
        lead_s = forecast.horizon_s[h]
        tags = {"cell": forecast.cell, "workload": forecast.subject, "lead_s": f"{lead_s:g}", "model": forecast.model}
        fields: dict[str, Field] = {
            f"q{level:g}": value for level, value in zip(forecast.levels, forecast.quantiles[h], strict=False)
        }
        fields["trusted"] = forecast.trusted
        yield line("flyball.forecast", tags, fields, forecast.time_ns + round(lead_s * 1e9))
