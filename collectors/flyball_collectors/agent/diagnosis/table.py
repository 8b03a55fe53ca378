"""Measurements of a node as tables for a terminal: an overview of devices and work, then all values."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flyball_collectors.agent.diagnosis.quantity import number, quantity
from flyball_collectors.base import Reading
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
    Layout,
    Metric,
    layout_of,
)
from flyball_contracts.records import Allocation, Device, Inventory

_TITLES = {
    GATEWAY.schema: "What the gateways see",
    GPU.schema: "GPUs",
    GPU_DETAIL.schema: "GPUs in detail",
    GPU_SHARE.schema: "How the GPUs are shared",
    HOST.schema: "Host",
    NUMA.schema: "NUMA nodes",
    SERVING.schema: "How the replicas answer",
    USAGE.schema: "What the replicas use",
    WORKLOAD.schema: "What the replicas say",
}
# Columns of the overview: title, layout, metric.
_OF_DEVICE = (
    ("busy", GPU, "hw.gpu.utilization{task=general}"),
    ("SM", GPU, "nvidia.gpu.sm.activity"),
    ("tensor", GPU, "nvidia.gpu.tensor.activity"),
    ("memory", GPU, "hw.gpu.memory.usage"),
    ("of", GPU, "hw.gpu.memory.limit"),
    ("power", GPU, "hw.power"),
    ("of", GPU, "nvidia.gpu.power.limit{type=enforced}"),
    ("heat", GPU, "hw.temperature{sensor=gpu}"),
)
_OF_REPLICA = (
    ("CPU", USAGE, "container.cpu.time"),
    ("memory", USAGE, "container.memory.working_set"),
    ("GPU", USAGE, "nvidia.gpu.workload.sm.time"),
    ("GPU memory", USAGE, "nvidia.gpu.workload.memory.usage"),
    ("energy", USAGE, "nvidia.gpu.workload.energy"),
    ("requests", WORKLOAD, "flyball.workload.request.rate"),
    ("active", WORKLOAD, "flyball.workload.request.active"),
    ("queued", WORKLOAD, "flyball.workload.request.queued"),
    ("p99", WORKLOAD, "flyball.workload.latency{stat=p99}"),
    ("first token", SERVING, "gen_ai.server.time_to_first_token{stat=mean}"),
    ("per token", SERVING, "gen_ai.server.time_per_output_token{stat=mean}"),
    ("KV cache", SERVING, "flyball.workload.kv_cache.utilization"),
    ("step", WORKLOAD, "flyball.workload.step.time"),
    ("progress", WORKLOAD, "flyball.workload.progress"),
)
_ALWAYS_SHOWN = 2  # rows that are shown one by one even where they hardly fit
_QUIET_UNITS = ("{error}", "{page}", "{row}", "{event}")
_GAP = 2


class _Line(NamedTuple):
    """One metric: its values, one for each row of the frame, and whether it is an uninteresting zero."""

    metric: Metric
    values: NDArray[np.float32]
    quiet: bool


def render(readings: Sequence[Reading], inventory: Inventory, width: int) -> Group:
    """Tables for ``width`` columns; a metric without a value has no line, and uninteresting zeros share one."""
    by_schema = {reading.schema: reading.values for reading in readings if len(reading.values)}
    parts: list[RenderableType] = [_head(inventory)]
    devices = _overview(_OF_DEVICE, [_device_name(device) for device in inventory.devices], by_schema, width)
    if devices is not None:
        parts += [_title("GPUs"), devices]
    names = [f"{one.workload}/{one.replica}" for one in inventory.allocations]
    work = _overview(_OF_REPLICA, names, by_schema, width)
    if work is not None:
        parts += [_title("Replicas"), work]
    for schema, values in by_schema.items():
        layout = layout_of(schema)
        parts += [_title(f"{_TITLES[schema]}, all values"), *_details(layout, values, _rows(layout, inventory), width)]
    parts.append(Text("\n+ is the increase since a read before, at most a second ago", style="dim"))
    return Group(*parts)


def _head(inventory: Inventory) -> Text:
    models = dict.fromkeys(device.model for device in inventory.devices)
    gpus = [f"{sum(d.model == model for d in inventory.devices)} {model}" for model in models]
    place = [inventory.provider, inventory.instance_type, inventory.availability_zone or inventory.region]
    parts = [
        f"{inventory.cpu_count} CPUs" if inventory.cpu_count else "",
        f"{number(inventory.memory_bytes / 2**30)} GiB" if inventory.memory_bytes else "",
        *gpus,
        f"driver {inventory.driver_version}" if inventory.driver_version else "",
        " ".join(part for part in place if part),
    ]
    return Text.assemble((inventory.node, "bold"), "  ", (" · ".join(part for part in parts if part), "dim"))


def _title(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _device_name(device: Device) -> str:
    return f"{device.index} {device.mig_profile}" if device.mig_profile else str(device.index)


def _replica_name(one: Allocation) -> str:
    """The replica's name, after the workload's unless it begins with that."""
    named_after_workload = one.replica.startswith(one.workload.rpartition("/")[2])
    return one.replica if named_after_workload else f"{one.workload}/{one.replica}"


def _rows(layout: Layout, inventory: Inventory) -> list[str]:
    match layout.rows:
        case "device":
            return [f"GPU {_device_name(device)}" for device in inventory.devices]
        case "allocation":
            return [_replica_name(one) for one in inventory.allocations]
        case "numa":
            return [f"node {node.id}" for node in inventory.numa]
        case "gateway":
            return [f"{one.workload} at {one.name}" for one in inventory.gateways]
        case "host":
            return [""]


def _overview(
    columns: Sequence[tuple[str, Layout, str]],
    names: Sequence[str],
    by_schema: dict[int, NDArray[np.float32]],
    width: int,
) -> Table | None:
    """One line per row, with the columns that have a value and fit; ``None`` if there is none."""
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    columns_shown: list[list[str]] = []
    left = width - max(map(len, names), default=0)
    for title, layout, key in columns:
        values = by_schema.get(layout.schema)
        metric = layout.metrics[layout.column(key)]
        if values is None or len(values) != len(names) or np.isnan(values[:, layout.column(key)]).all():
            continue
        texts = [quantity(value, metric) for value in values[:, layout.column(key)].tolist()]
        left -= max(map(len, [title, *texts])) + _GAP
        if left < 0:
            break
        table.add_column(title, justify="right", no_wrap=True)
        columns_shown.append(texts)
    if not columns_shown:
        return None
    for name, *row in zip(names, *columns_shown, strict=True):
        table.add_row(name, *row)
    return table


def _details(layout: Layout, values: NDArray[np.float32], names: list[str], width: int) -> list[RenderableType]:
    lines = [
        _Line(metric, column, _is_quiet(metric, column))
        for metric, column in zip(layout.metrics, values.T, strict=True)
        if not np.isnan(column).all()
    ]
    shown = [line for line in lines if not line.quiet]
    texts = [[quantity(value, line.metric) for value in line.values.tolist()] for line in shown]
    left = max((len(line.metric.name) + len(_attributes(line.metric)) + 2 * _GAP for line in shown), default=0)
    wide = max((len(text) for row in [names, *texts] for text in row), default=0) + _GAP
    if len(names) > _ALWAYS_SHOWN and left + wide * len(names) > width:
        edges = [(np.nanmin(line.values), np.nanmax(line.values)) for line in shown]
        texts = [[quantity(float(edge), line.metric) for edge in pair] for line, pair in zip(shown, edges, strict=True)]
        names = ["lowest", "highest"]
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim", show_header=any(names))
    table.add_column("", no_wrap=True)
    table.add_column("", no_wrap=True, style="dim")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    before = ""
    for line, row in zip(shown, texts, strict=True):
        name = line.metric.name
        table.add_row("" if name == before else name, _attributes(line.metric), *row)
        before = name
    quiet = _quiet([line.metric for line in lines if line.quiet])
    return [table, Padding(Text(quiet, style="dim"), (0, 0, 0, 0))] if quiet else [table]


def _attributes(metric: Metric) -> str:
    return " ".join(metric.attributes.values())


def _is_quiet(metric: Metric, values: NDArray[np.float32]) -> bool:
    """Whether a metric that is usually zero is zero in all rows."""
    alarming = metric.instrument == "counter" or metric.unit in _QUIET_UNITS or metric.about.startswith("1 w")
    return alarming and not np.nan_to_num(values).any()


def _quiet(metrics: Sequence[Metric]) -> str:
    """One sentence for all metrics that are zero."""
    names: dict[str, list[str]] = {}
    for metric in metrics:
        names.setdefault(metric.name, []).append(_attributes(metric))
    texts = [f"{name} ({', '.join(a)})" if all(a := attributes) else name for name, attributes in names.items()]
    return f"zero: {', '.join(texts)}" if texts else ""
