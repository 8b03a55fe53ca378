"""Names, units and labels of NVIDIA's dcgm-exporter, for existing dashboards and alerts."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from prometheus_client.metrics_core import Metric as Exposed

from flyball_collectors.export.latest import Block, View
from flyball_collectors.export.rows import of_allocation, sole_allocations
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU, GPU_DETAIL
from flyball_contracts.records import Inventory

_MIB = 1 / 2**20
_MHZ = 1e-6


class Field(NamedTuple):
    """One DCGM field: a column or the sum of two, scaled; a rate is the increase in a second."""

    name: str
    help: str
    key: str
    other: str = ""
    scale: float = 1.0
    kind: Literal["gauge", "counter", "rate"] = "gauge"


_FIELDS: dict[int, tuple[Field, ...]] = {
    GPU.schema: (
        Field("DEV_SM_CLOCK", "SM clock frequency (in MHz).", "nvidia.gpu.clock.frequency{clock=sm}", scale=_MHZ),
        Field("DEV_MEM_CLOCK", "Memory clock (in MHz).", "nvidia.gpu.clock.frequency{clock=mem}", scale=_MHZ),
        Field("DEV_MEMORY_TEMP", "Memory temperature (in C).", "hw.temperature{sensor=memory}"),
        Field("DEV_GPU_TEMP", "GPU temperature (in C).", "hw.temperature{sensor=gpu}"),
        Field("DEV_POWER_USAGE", "Power draw (in W).", "hw.power"),
        Field("DEV_TOTAL_ENERGY_CONSUMPTION", "Energy used (in mJ).", "hw.energy", scale=1e3, kind="counter"),
        Field("DEV_PCIE_REPLAY_COUNTER", "PCIe retries.", "nvidia.gpu.pcie.replays", kind="counter"),
        Field("DEV_GPU_UTIL", "GPU utilization (in %).", "hw.gpu.utilization{task=general}", scale=100),
        Field("DEV_MEM_COPY_UTIL", "Memory utilization (in %).", "nvidia.gpu.memory.controller.utilization", scale=100),
        Field("DEV_ENC_UTIL", "Encoder utilization (in %).", "hw.gpu.utilization{task=encoder}", scale=100),
        Field("DEV_DEC_UTIL", "Decoder utilization (in %).", "hw.gpu.utilization{task=decoder}", scale=100),
        Field("DEV_FB_TOTAL", "Framebuffer memory (in MiB).", "hw.gpu.memory.limit", scale=_MIB),
        Field("DEV_FB_USED", "Framebuffer memory used (in MiB).", "hw.gpu.memory.usage", scale=_MIB),
        Field("DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", "nvidia.gpu.memory.reserved", scale=_MIB),
        Field("DEV_POWER_MGMT_LIMIT", "Power limit (in W).", "nvidia.gpu.power.limit{type=enforced}"),
        Field("DEV_FAN_SPEED", "Fan speed (in %).", "hw.fan.speed_ratio", scale=100),
        Field("DEV_PSTATE", "Performance state.", "nvidia.gpu.pstate"),
        Field("DEV_ROW_REMAP_PENDING", "A row remap is pending.", "nvidia.gpu.memory.row_remap.pending"),
        Field("PROF_GR_ENGINE_ACTIVE", "Share of time the graphics engine is active.", "nvidia.gpu.graphics.activity"),
        Field("PROF_SM_ACTIVE", "Share of cycles an SM has a warp.", "nvidia.gpu.sm.activity"),
        Field("PROF_SM_OCCUPANCY", "Share of warps resident on an SM.", "nvidia.gpu.sm.occupancy"),
        Field("PROF_PIPE_TENSOR_ACTIVE", "Share of cycles the tensor pipe is active.", "nvidia.gpu.tensor.activity"),
        Field(
            "PROF_DRAM_ACTIVE",
            "Share of cycles the memory interface is active.",
            "nvidia.gpu.dram.bandwidth.utilization",
        ),
        Field(
            "PROF_PIPE_FP64_ACTIVE",
            "Share of cycles the fp64 pipe is active.",
            "nvidia.gpu.fp.activity{precision=64}",
        ),
        Field(
            "PROF_PIPE_FP32_ACTIVE",
            "Share of cycles the fp32 pipe is active.",
            "nvidia.gpu.fp.activity{precision=32}",
        ),
        Field(
            "PROF_PIPE_FP16_ACTIVE",
            "Share of cycles the fp16 pipe is active.",
            "nvidia.gpu.fp.activity{precision=16}",
        ),
        Field("PROF_PCIE_TX_BYTES", "Bytes sent over PCIe in a second.", "hw.gpu.io{direction=transmit}", kind="rate"),
        Field(
            "PROF_PCIE_RX_BYTES", "Bytes received over PCIe in a second.", "hw.gpu.io{direction=receive}", kind="rate"
        ),
        Field(
            "PROF_NVLINK_TX_BYTES",
            "Bytes sent over NVLink in a second.",
            "nvidia.gpu.nvlink.io{direction=transmit}",
            kind="rate",
        ),
        Field(
            "PROF_NVLINK_RX_BYTES",
            "Bytes received over NVLink in a second.",
            "nvidia.gpu.nvlink.io{direction=receive}",
            kind="rate",
        ),
    ),
    GPU_DETAIL.schema: (
        Field("DEV_VIDEO_CLOCK", "Video clock (in MHz).", "nvidia.gpu.clock.frequency{clock=video}", scale=_MHZ),
        Field(
            "DEV_UNCORRECTABLE_REMAPPED_ROWS",
            "Rows remapped for uncorrectable errors.",
            "nvidia.gpu.memory.rows.remapped{cause=uncorrected}",
        ),
        Field(
            "DEV_CORRECTABLE_REMAPPED_ROWS",
            "Rows remapped for correctable errors.",
            "nvidia.gpu.memory.rows.remapped{cause=corrected}",
        ),
        Field("DEV_ROW_REMAP_FAILURE", "A row remap failed.", "nvidia.gpu.memory.row_remap.failed"),
        Field(
            "DEV_RETIRED_SBE",
            "Pages retired for single-bit errors.",
            "nvidia.gpu.memory.pages.retired{cause=single_bit}",
        ),
        Field(
            "DEV_RETIRED_DBE",
            "Pages retired for double-bit errors.",
            "nvidia.gpu.memory.pages.retired{cause=double_bit}",
        ),
        Field(
            "DEV_ECC_SBE_AGG_TOTAL",
            "Single-bit errors in the life of the board.",
            "nvidia.gpu.ecc.errors{location=dram,type=corrected}",
            "nvidia.gpu.ecc.errors{location=sram,type=corrected}",
        ),
        Field(
            "DEV_ECC_DBE_AGG_TOTAL",
            "Double-bit errors in the life of the board.",
            "nvidia.gpu.ecc.errors{location=dram,type=uncorrected}",
            "nvidia.gpu.ecc.errors{location=sram,type=uncorrected}",
        ),
    ),
}


def dcgm_metric_families(view: View) -> list[Exposed]:
    """The fields that have values; counters start with the agent, not with the driver."""
    labels = _labels(view.inventory)
    found: list[Exposed] = []
    for block in view.blocks:
        for field in _FIELDS.get(block.layout.schema, ()):
            _add(found, field.name, field.help, field.kind, zip(labels, _values(block, field).tolist(), strict=True))
        if block.layout.schema == GPU.schema:
            _add(
                found,
                "DEV_FB_FREE",
                "Framebuffer memory free (in MiB).",
                "gauge",
                zip(labels, _free(block), strict=True),
            )
    if any(block.layout.schema == GPU.schema for block in view.blocks):
        xids = (float(view.xids.get(device.id, 0)) for device in view.inventory.devices)
        _add(found, "DEV_XID_ERRORS", "Value of the last XID error.", "gauge", zip(labels, xids, strict=True))
    return found


def _add(found: list[Exposed], name: str, help: str, kind: str, rows: Iterator[tuple[dict[str, str], float]]) -> None:
    # OpenMetrics requires names of counters to end with _total; these do not, so their type is "unknown".
    exposed = Exposed(f"DCGM_FI_{name}", help, "unknown" if kind == "counter" else "gauge")
    for labels, value in rows:
        if value == value:
            exposed.add_sample(exposed.name, labels, value)
    if exposed.samples:
        found.append(exposed)


def _values(block: Block, field: Field) -> NDArray[np.float64]:
    columns = [block.layout.column(key) for key in (field.key, field.other) if key]
    if field.kind == "rate":
        rates: NDArray[np.float64] = block.increases[:, columns].sum(axis=1, dtype=np.float64)
        return rates * (NS_PER_S / block.period_ns)
    values: NDArray[np.float64] = block.values[:, columns].sum(axis=1)
    return values * field.scale


def _free(block: Block) -> list[float]:
    limit, used, reserved = (
        block.values[:, GPU.column(key)]
        for key in ("hw.gpu.memory.limit", "hw.gpu.memory.usage", "nvidia.gpu.memory.reserved")
    )
    free: list[float] = ((limit - used - np.nan_to_num(reserved)) * _MIB).tolist()
    return free


def _labels(inventory: Inventory) -> list[dict[str, str]]:
    index = {device.id: device.index for device in inventory.devices}
    sole = sole_allocations(inventory)
    rows: list[dict[str, str]] = []
    for row, device in enumerate(inventory.devices):
        gpu = str(index.get(device.parent or device.id, device.index))
        labels = {
            "gpu": gpu,
            "UUID": device.parent or device.id,
            "pci_bus_id": _bus_id(device.pci_address),
            "device": f"nvidia{gpu}",
            "modelName": device.model,
            "Hostname": inventory.node,
        }
        if device.mig_profile:
            labels |= {"GPU_I_PROFILE": device.mig_profile, "GPU_I_ID": device.id}
        allocation = of_allocation(sole.get(row))
        labels |= {key: allocation.get(key, "") for key in ("namespace", "pod", "container")}
        rows.append(labels)
    return rows


def _bus_id(address: str | None) -> str:
    """PCI address as NVIDIA writes it: a domain of eight digits, in upper case."""
    if address is None:
        return ""
    domain, _, rest = address.partition(":")
    return f"{int(domain, 16):08X}:{rest.upper()}"
