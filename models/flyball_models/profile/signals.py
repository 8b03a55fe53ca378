"""Signals of each GPU for its profile: its own columns, its node's and its replica's, scaled to about 0..1.

Rates of bytes and events are logarithms, ``log10(1 + x / unit) / decades``, because they span decades.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import GPU, HOST, WORKLOAD

Floats = NDArray[np.float32]
SIGNALS = (
    "use",
    "swing",
    "encoder",
    "decoder",
    "memory",
    "controller",
    "sm",
    "occupancy",
    "tensor",
    "dram",
    "fp64",
    "fp32",
    "fp16",
    "integer",
    "power",
    "pcie_in",
    "pcie_out",
    "nvlink",
    "cpu",
    "iowait",
    "cpu_pressure",
    "io_pressure",
    "disk_read",
    "disk_write",
    "network",
    "reports_requests",
    "reports_steps",
    "reports_progress",
    "reports_tokens",
    "requests",
    "waiting",
    "tokens_in",
    "tokens_out",
    "step_time",
    "gang",
    "idle",
)
"""The rows of the result of :func:`signals`, in order."""
AT = {name: i for i, name in enumerate(SIGNALS)}
IDLE_BELOW = 0.05

_COPIED = {
    "use": "hw.gpu.utilization{task=general}",
    "encoder": "hw.gpu.utilization{task=encoder}",
    "decoder": "hw.gpu.utilization{task=decoder}",
    "controller": "nvidia.gpu.memory.controller.utilization",
    "sm": "nvidia.gpu.sm.activity",
    "occupancy": "nvidia.gpu.sm.occupancy",
    "tensor": "nvidia.gpu.tensor.activity",
    "dram": "nvidia.gpu.dram.bandwidth.utilization",
    "fp64": "nvidia.gpu.fp.activity{precision=64}",
    "fp32": "nvidia.gpu.fp.activity{precision=32}",
    "fp16": "nvidia.gpu.fp.activity{precision=16}",
    "integer": "nvidia.gpu.int.activity",
}
"""Signals that are columns of the GPU as they are."""
_GPU = {
    **_COPIED,
    "least": "nvidia.gpu.utilization.min",
    "most": "nvidia.gpu.utilization.max",
    "used": "hw.gpu.memory.usage",
    "memory": "hw.gpu.memory.utilization",
    "power": "hw.power",
    "limit": "nvidia.gpu.power.limit{type=enforced}",
    "pcie_in": "hw.gpu.io{direction=receive}",
    "pcie_out": "hw.gpu.io{direction=transmit}",
    "nvlink_in": "nvidia.gpu.nvlink.io{direction=receive}",
    "nvlink_out": "nvidia.gpu.nvlink.io{direction=transmit}",
}
_HOST = {
    "cpu": "system.cpu.utilization",
    "iowait": "system.cpu.time{mode=iowait}",
    "cpus": "system.cpu.logical.count",
    "cpu_pressure": "system.linux.psi.total_time{resource=cpu,stall=some}",
    "io_pressure": "system.linux.psi.total_time{resource=io,stall=some}",
    "disk_read": "system.disk.io{direction=read}",
    "disk_write": "system.disk.io{direction=write}",
    "net_in": "system.network.io{direction=receive}",
    "net_out": "system.network.io{direction=transmit}",
}
_PAGE = {
    "requests": "flyball.workload.request.rate",
    "active": "flyball.workload.request.active",
    "queued": "flyball.workload.request.queued",
    "tokens_in": "flyball.workload.token.rate{kind=input}",
    "tokens_out": "flyball.workload.token.rate{kind=output}",
    "step_time": "flyball.workload.step.time",
    "steps": "flyball.workload.steps",
    "progress": "flyball.workload.progress",
}
_GPU_COLUMNS = [GPU.column(key) for key in _GPU.values()]
_HOST_COLUMNS = [HOST.column(key) for key in _HOST.values()]
_PAGE_COLUMNS = [WORKLOAD.column(key) for key in _PAGE.values()]
_COPIED_ROWS = [AT[name] for name in _COPIED]
_REPORTS = {"reports_requests": "requests", "reports_steps": "step_time", "reports_progress": "progress"}
_REPORTS["reports_tokens"] = "tokens_out"
_REPORT_ROWS = [AT[name] for name in _REPORTS]
_REPORTED = [list(_PAGE).index(name) for name in _REPORTS.values()]
_STEPS, _REPORTS_STEPS = list(_PAGE).index("steps"), list(_REPORTS).index("reports_steps")


_WIDE = {
    "pcie_in": (1e7, 4.0),
    "pcie_out": (1e7, 4.0),
    "nvlink": (1e8, 4.0),
    "disk_read": (1e6, 4.0),
    "disk_write": (1e6, 4.0),
    "network": (1e6, 5.0),
    "requests": (0.1, 5.0),
    "waiting": (0.1, 5.0),
    "tokens_in": (1.0, 6.0),
    "tokens_out": (1.0, 6.0),
    "step_time": (0.01, 4.0),
    "gang": (1.0, 3.0),
}
"""Signals that span decades: the unit, and the number of decades above it at which the signal is 1."""
_WIDE_ROWS = [AT[name] for name in _WIDE]
_WIDE_UNITS, _WIDE_DECADES = np.array(list(_WIDE.values()), np.float32).T[:, :, None]


class Reading(NamedTuple):
    """One tick of ``period_s``: rows of :data:`GPU`, :data:`HOST` and :data:`WORKLOAD` for each device.

    ``gpu`` float32[N, metrics]; ``host`` [N, metrics] of its node and ``page`` [N, metrics] of the replica that holds
    it, NaN where there is none. ``memory_bytes`` [N] is the device's, ``on_node`` [N] the GPUs of its node, ``gang``
    [N] the GPUs of its whole workload (NaN: held by none).
    """

    gpu: Floats
    host: Floats
    page: Floats
    memory_bytes: Floats
    on_node: Floats
    gang: Floats
    period_s: float


def signals(reading: Reading) -> Floats:
    """Signals of a tick, float32[S, N], NaN where the telemetry has no value; rows are :data:`SIGNALS`.

    ``swing`` is the span of the driver's samples of utilisation within the tick, ``iowait`` the share of the node's CPU
    time, pressures the shares of time that some task waited. ``reports_*`` are 1 where the replica's page has such a
    figure and 0 where it has others only. ``waiting`` are requests in service or in the queue.
    """
    gpu = np.ascontiguousarray(reading.gpu[:, _GPU_COLUMNS].T)
    page = np.ascontiguousarray(reading.page[:, _PAGE_COLUMNS].T)
    g, p = dict(zip(_GPU, gpu, strict=True)), dict(zip(_PAGE, page, strict=True))
    h = dict(zip(_HOST, np.ascontiguousarray(reading.host[:, _HOST_COLUMNS].T), strict=True))
    dt = np.float32(reading.period_s)
    each = np.float32(1.0) / (dt * np.maximum(reading.on_node, 1.0))
    out = np.full((len(SIGNALS), len(reading.gpu)), np.nan, np.float32)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        out[_COPIED_ROWS] = gpu[: len(_COPIED)]
        out[AT["swing"]] = g["most"] - g["least"]
        out[AT["memory"]] = np.where(np.isfinite(g["memory"]), g["memory"], g["used"] / reading.memory_bytes)
        out[AT["power"]] = g["power"] / g["limit"]
        out[AT["cpu"]] = h["cpu"]
        out[AT["iowait"]] = h["iowait"] / (h["cpus"] * dt)
        out[AT["cpu_pressure"]] = h["cpu_pressure"] / dt
        out[AT["io_pressure"]] = h["io_pressure"] / dt
        known = np.isfinite(page)
        present = known[_REPORTED]
        present[_REPORTS_STEPS] |= known[_STEPS]
        out[_REPORT_ROWS] = np.where(known.any(axis=0), present, np.float32(np.nan))
        queued = np.where(np.isfinite(p["queued"]), p["queued"], np.float32(0.0))
        wide = (
            g["pcie_in"] / dt,
            g["pcie_out"] / dt,
            (g["nvlink_in"] + g["nvlink_out"]) / dt,
            h["disk_read"] * each,
            h["disk_write"] * each,
            (h["net_in"] + h["net_out"]) * each,
            p["requests"],
            p["active"] + queued,
            p["tokens_in"],
            p["tokens_out"],
            p["step_time"],
            reading.gang,
        )
        out[_WIDE_ROWS] = decades(np.array(wide, np.float32), _WIDE_UNITS, _WIDE_DECADES)
        out[AT["idle"]] = np.where(np.isfinite(g["use"]), (g["use"] < IDLE_BELOW).astype(np.float32), np.nan)
    return np.where(np.abs(out) < _ABSURD, out, np.float32(np.nan))


def decades(x: Floats, unit: float | Floats, most: float | Floats) -> Floats:
    """Logarithm of a value relative to a unit; ``most`` decades above it are 1; NaN below 0."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        found = np.asarray(np.log10(np.float32(1.0) + x / np.float32(unit)) / np.float32(most), np.float32)
        return np.where(x >= 0.0, found, np.float32(np.nan))


_ABSURD = 4.0
"""A larger signal is a telemetry error."""
