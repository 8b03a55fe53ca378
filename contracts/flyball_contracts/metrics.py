"""Metric layouts: which column of a frame's block is which metric.

A layout is identified by the ``schema`` number in a frame. Names follow the OpenTelemetry semantic
conventions; what those lack is under ``nvidia.gpu.*`` or ``flyball.*``. Units are UCUM as in
OpenTelemetry. A *counter* column carries the increase since the node's previous frame (delta
temporality): float32 holds a delta exactly where it could not hold a counter since boot.
Columns are only ever appended under a new schema number, never moved.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

import msgspec

from flyball_contracts.errors import UnknownSchema

Instrument = Literal["gauge", "counter"]
Rows = Literal["device", "host", "allocation"]


class Metric(msgspec.Struct, frozen=True):
    """One column: OpenTelemetry name, UCUM unit, instrument, attributes and what it means."""

    name: str
    unit: str
    instrument: Instrument
    about: str
    attributes: Mapping[str, str] = {}

    @property
    def key(self) -> str:
        """Name with its attributes, unique in a layout: ``hw.gpu.io{direction=receive}``."""
        if not self.attributes:
            return self.name
        inside = ",".join(f"{k}={v}" for k, v in sorted(self.attributes.items()))
        return f"{self.name}{{{inside}}}"


class Layout(msgspec.Struct, frozen=True, dict=True):
    """The columns of one kind of frame, in order.

    ``rows`` says what a row is: a device of the inventory, the host (one row), or an allocation of
    the inventory (one replica of a workload on this node).
    """

    schema: int
    name: str
    rows: Rows
    metrics: tuple[Metric, ...]

    @cached_property
    def columns(self) -> dict[str, int]:
        """Column of each metric by :attr:`Metric.key`."""
        return {metric.key: i for i, metric in enumerate(self.metrics)}

    def column(self, key: str) -> int:
        """Column of one metric; ``KeyError`` when the layout has no such metric."""
        return self.columns[key]

    def __len__(self) -> int:
        return len(self.metrics)


def _gauge(name: str, unit: str, about: str, **attributes: str) -> Metric:
    return Metric(name, unit, "gauge", about, attributes)


def _count(name: str, unit: str, about: str, **attributes: str) -> Metric:
    return Metric(name, unit, "counter", about, attributes)


GPU = Layout(
    1,
    "gpu",
    "device",
    (
        _gauge("hw.gpu.utilization", "1", "mean share of time with a kernel running", task="general"),
        _gauge("nvidia.gpu.utilization.min", "1", "lowest sample in the period"),
        _gauge("nvidia.gpu.utilization.max", "1", "highest sample in the period"),
        _gauge("nvidia.gpu.utilization.p95", "1", "95th percentile of the samples in the period"),
        _count("nvidia.gpu.busy.time", "s", "time with a kernel running"),
        _gauge("hw.gpu.utilization", "1", "video encoder", task="encoder"),
        _gauge("hw.gpu.utilization", "1", "video decoder", task="decoder"),
        _gauge("nvidia.gpu.memory.controller.utilization", "1", "time with a memory access"),
        _gauge("hw.gpu.memory.usage", "By", "memory in use"),
        _gauge("hw.gpu.memory.limit", "By", "memory of the device"),
        _gauge("nvidia.gpu.memory.reserved", "By", "memory held by the driver and firmware"),
        _gauge("hw.gpu.memory.utilization", "1", "memory in use over memory of the device"),
        _gauge("nvidia.gpu.bar1.usage", "By", "BAR1 aperture in use"),
        _gauge("nvidia.gpu.sm.activity", "1", "cycles with a warp resident on an SM"),
        _gauge("nvidia.gpu.sm.occupancy", "1", "resident warps over the most possible"),
        _gauge("nvidia.gpu.tensor.activity", "1", "cycles with a tensor pipe active"),
        _gauge("nvidia.gpu.dram.bandwidth.utilization", "1", "memory bandwidth over the peak"),
        _gauge("nvidia.gpu.fp.activity", "1", "FP64 pipe", precision="64"),
        _gauge("nvidia.gpu.fp.activity", "1", "FP32 pipe", precision="32"),
        _gauge("nvidia.gpu.fp.activity", "1", "FP16 pipe", precision="16"),
        _gauge("nvidia.gpu.int.activity", "1", "integer pipe"),
        _gauge("nvidia.gpu.graphics.activity", "1", "graphics or compute engine"),
        _gauge("hw.power", "W", "instantaneous board power"),
        _gauge("nvidia.gpu.power.average", "W", "one-second average of the driver"),
        _count("hw.energy", "J", "energy used"),
        _gauge("nvidia.gpu.power.limit", "W", "power limit in force", type="enforced"),
        _gauge("hw.temperature", "Cel", "GPU die", sensor="gpu"),
        _gauge("hw.temperature", "Cel", "memory", sensor="memory"),
        _gauge("nvidia.gpu.temperature.margin", "Cel", "distance to the slowdown temperature"),
        _gauge("nvidia.gpu.clock.frequency", "Hz", "SM clock", clock="sm"),
        _gauge("nvidia.gpu.clock.frequency", "Hz", "memory clock", clock="mem"),
        _gauge("nvidia.gpu.clock.event.active", "1", "1 while slowed by heat", reason="thermal"),
        _gauge("nvidia.gpu.clock.event.active", "1", "1 while slowed by power", reason="power"),
        _count("nvidia.gpu.throttle.time", "s", "time slowed by heat", reason="thermal"),
        _count("nvidia.gpu.throttle.time", "s", "time slowed by power", reason="power"),
        _gauge("nvidia.gpu.pstate", "1", "performance state, 0 is the fastest"),
        _gauge("hw.fan.speed_ratio", "1", "fan speed over its maximum"),
        _count("hw.gpu.io", "By", "PCIe bytes into the device", direction="receive"),
        _count("hw.gpu.io", "By", "PCIe bytes out of the device", direction="transmit"),
        _count("nvidia.gpu.pcie.replays", "{replay}", "PCIe replays"),
        _count("nvidia.gpu.nvlink.io", "By", "NVLink bytes in, all links", direction="receive"),
        _count("nvidia.gpu.nvlink.io", "By", "NVLink bytes out, all links", direction="transmit"),
        _count("nvidia.gpu.nvlink.errors", "{error}", "NVLink errors, all links and kinds"),
        _count("hw.errors", "{error}", "corrected ECC errors", type="corrected"),
        _count("hw.errors", "{error}", "uncorrected ECC errors", type="uncorrected"),
        _gauge("nvidia.gpu.memory.row_remap.pending", "1", "1 while a row remap waits for a reset"),
        _gauge("nvidia.gpu.recovery_action", "1", "action the driver asks for, 0 is none"),
        _gauge("nvidia.gpu.process.count", "{process}", "compute processes on the device"),
    ),
)

HOST = Layout(
    2,
    "host",
    "host",
    (
        _gauge("system.cpu.utilization", "1", "busy share of all logical CPUs"),
        _count("system.cpu.time", "s", "user and nice", mode="user"),
        _count("system.cpu.time", "s", "kernel", mode="system"),
        _count("system.cpu.time", "s", "idle", mode="idle"),
        _count("system.cpu.time", "s", "idle with I/O outstanding", mode="iowait"),
        _count("system.cpu.time", "s", "taken by the hypervisor", mode="steal"),
        _gauge("system.cpu.logical.count", "{cpu}", "logical CPUs online"),
        _gauge("system.memory.limit", "By", "memory of the host"),
        _gauge("system.memory.usage", "By", "memory in use", state="used"),
        _gauge("system.memory.usage", "By", "page cache", state="cached"),
        _gauge("system.memory.linux.available", "By", "memory available without swapping"),
        _gauge("system.memory.utilization", "1", "1 - available / limit"),
        _gauge("system.paging.usage", "By", "swap in use"),
        _count("system.paging.faults", "{fault}", "major page faults", type="major"),
        _count("system.linux.psi.total_time", "s", "some task waited", resource="cpu", stall="some"),
        _count("system.linux.psi.total_time", "s", "some task waited", resource="memory", stall="some"),
        _count("system.linux.psi.total_time", "s", "all tasks waited", resource="memory", stall="full"),
        _count("system.linux.psi.total_time", "s", "some task waited", resource="io", stall="some"),
        _count("system.linux.psi.total_time", "s", "all tasks waited", resource="io", stall="full"),
        _count("system.disk.io", "By", "bytes read, whole disks", direction="read"),
        _count("system.disk.io", "By", "bytes written, whole disks", direction="write"),
        _count("system.disk.operation_time", "s", "time in reads", direction="read"),
        _count("system.disk.operation_time", "s", "time in writes", direction="write"),
        _count("system.network.io", "By", "bytes in, loopback left out", direction="receive"),
        _count("system.network.io", "By", "bytes out, loopback left out", direction="transmit"),
        _count("system.network.errors", "{error}", "errors in", direction="receive"),
        _count("system.network.errors", "{error}", "errors out", direction="transmit"),
        _gauge("system.process.count", "{process}", "processes"),
        _gauge("system.uptime", "s", "time since boot"),
        _count("flyball.agent.cpu.time", "s", "CPU time of the agent itself"),
        _gauge("flyball.agent.memory.rss", "By", "resident memory of the agent itself"),
        _gauge("flyball.agent.read.duration", "s", "time that the previous tick's reads took"),
        _count("flyball.agent.records", "{record}", "messages given up by the agent", state="dropped"),
    ),
)

WORKLOAD = Layout(
    3,
    "workload",
    "allocation",
    (
        _gauge("flyball.workload.request.rate", "{request}/s", "requests that arrived"),
        _gauge("flyball.workload.work.rate", "{work}/s", "work that arrived, in the unit of capacity"),
        _gauge("flyball.workload.request.active", "{request}", "requests in service"),
        _gauge("flyball.workload.request.queued", "{request}", "requests waiting"),
        _gauge("flyball.workload.token.rate", "{token}/s", "prompt tokens", kind="input"),
        _gauge("flyball.workload.token.rate", "{token}/s", "generated tokens", kind="output"),
        _gauge("flyball.workload.latency", "s", "mean latency of the requests that ended", stat="mean"),
        _gauge("flyball.workload.latency", "s", "99th percentile of the same", stat="p99"),
        _count("flyball.workload.errors", "{request}", "requests that failed"),
        _gauge("flyball.workload.step.time", "s", "time of a training step"),
        _gauge("flyball.workload.progress", "1", "share of the job that is done"),
        _gauge("flyball.workload.ready", "1", "1 while the replica can serve"),
    ),
)

LAYOUTS: Mapping[int, Layout] = {layout.schema: layout for layout in (GPU, HOST, WORKLOAD)}


def layout_of(schema: int) -> Layout:
    """Layout of a schema number.

    Raises :class:`UnknownSchema` with the numbers that are known.
    """
    layout = LAYOUTS.get(schema)
    if layout is None:
        known = ", ".join(f"{s} ({x.name})" for s, x in sorted(LAYOUTS.items()))
        raise UnknownSchema(f"frame schema {schema} is not known here (known: {known}); upgrade the reader")
    return layout
