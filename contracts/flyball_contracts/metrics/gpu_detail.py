"""Metrics of each device for operators, read less often than those for decisions."""

from flyball_contracts.metrics.base import Layout, count, gauge

_WHY = {
    "idle": "nothing runs",
    "applications": "by the clocks that applications set",
    "sw_power": "by the power cap",
    "hw": "by hardware, for heat, power or the brake",
    "sync_boost": "by the slowest of its group",
    "sw_thermal": "by the driver, for heat",
    "hw_thermal": "by hardware, for heat",
    "hw_power_brake": "by the power brake of the host",
    "display": "by the display",
}
_LOST = {
    "board_limit": "by the limits of the board",
    "low_utilization": "for want of work",
    "reliability": "by the limit of voltage",
    "sync_boost": "by the slowest of its group",
    "hw_thermal": "by hardware, for heat",
    "hw_power_brake": "by the power brake of the host",
    "sw_thermal": "by the driver, for heat",
}

GPU_DETAIL = Layout(
    4,
    "gpu_detail",
    "device",
    (
        count("nvidia.gpu.sm.cycles", "{cycle}", "SM cycles", state="elapsed"),
        count("nvidia.gpu.sm.cycles", "{cycle}", "SM cycles with a warp resident", state="active"),
        gauge("nvidia.gpu.tensor.activity", "1", "half-precision pipe", pipe="hmma"),
        gauge("nvidia.gpu.tensor.activity", "1", "integer pipe", pipe="imma"),
        gauge("nvidia.gpu.tensor.activity", "1", "double-precision pipe", pipe="dfma"),
        gauge("nvidia.gpu.mma.stall", "1", "time that matrix units were held up"),
        gauge("nvidia.gpu.power.sample", "W", "mean of the driver's samples in the period", stat="mean"),
        gauge("nvidia.gpu.power.sample", "W", "lowest sample in the period", stat="min"),
        gauge("nvidia.gpu.power.sample", "W", "highest sample in the period", stat="max"),
        gauge("nvidia.gpu.power.sample", "W", "95th percentile of the samples in the period", stat="p95"),
        *(
            gauge("nvidia.gpu.power.limit", "W", f"{what} power limit", type=what)
            for what in ("requested", "default", "min", "max")
        ),
        gauge("nvidia.gpu.clock.frequency", "Hz", "video clock", clock="video"),
        *(
            gauge("nvidia.gpu.clock.event.active", "1", f"1 while slowed {why}", reason=reason)
            for reason, why in _WHY.items()
        ),
        *(count("nvidia.gpu.throttle.time", "s", f"time slowed {why}", reason=reason) for reason, why in _LOST.items()),
        *(
            count("nvidia.gpu.pcie.errors", "{error}", f"{kind} errors of the link", type=kind)
            for kind in ("correctable", "non_fatal", "fatal", "bad_tlp", "bad_dllp", "nak_received", "nak_sent")
        ),
        gauge("nvidia.gpu.pcie.link", "1", "generation of the link now", what="generation", value="current"),
        gauge("nvidia.gpu.pcie.link", "1", "highest generation", what="generation", value="max"),
        gauge("nvidia.gpu.pcie.link", "1", "lanes in use", what="width", value="current"),
        gauge("nvidia.gpu.pcie.link", "1", "most lanes", what="width", value="max"),
        gauge("nvidia.gpu.nvlink.up", "{link}", "NVLinks that are up"),
        gauge("nvidia.gpu.nvlink.count", "{link}", "NVLinks of the device"),
        *(
            count("nvidia.gpu.nvlink.errors", "{error}", f"{kind} errors, all links", type=kind)
            for kind in ("crc", "replay", "recovery", "ecc", "symbol")
        ),
        gauge("nvidia.gpu.fabric.state", "1", "1 not started, 2 in progress, 3 in the fabric"),
        gauge("nvidia.gpu.fabric.status", "1", "status of joining the fabric, 0 is success"),
        *(
            gauge(
                "nvidia.gpu.ecc.errors",
                "{error}",
                f"{kind} errors of {where} in the life of the board",
                type=kind,
                location=where,
            )
            for where in ("dram", "sram")
            for kind in ("corrected", "uncorrected")
        ),
        gauge(
            "nvidia.gpu.ecc.sram.threshold", "1", "1 when SRAM has had so many errors that the board is to be replaced"
        ),
        gauge("nvidia.gpu.memory.pages.retired", "{page}", "for single-bit errors", cause="single_bit"),
        gauge("nvidia.gpu.memory.pages.retired", "{page}", "for double-bit errors", cause="double_bit"),
        gauge("nvidia.gpu.memory.rows.remapped", "{row}", "for corrected errors", cause="corrected"),
        gauge("nvidia.gpu.memory.rows.remapped", "{row}", "for uncorrected errors", cause="uncorrected"),
        gauge("nvidia.gpu.memory.row_remap.failed", "1", "1 when a row could not be remapped: replace the board"),
        *(
            gauge("nvidia.gpu.memory.row_remap.banks", "{bank}", f"banks with {left} spare rows", availability=left)
            for left in ("max", "high", "partial", "low", "none")
        ),
        count("nvidia.gpu.xid.events", "{event}", "XIDs"),
        *(
            gauge("hw.status", "1", f"1 while {state}", state=state)
            for state in ("ok", "degraded", "failed", "predicted_failure")
        ),
        gauge("hw.temperature.limit", "Cel", "slowdown begins", limit="high.degraded"),
        gauge("hw.temperature.limit", "Cel", "shutdown", limit="high.critical"),
        gauge("nvidia.gpu.mig.slices", "{slice}", "compute slices in instances", state="used"),
        gauge("nvidia.gpu.mig.slices", "{slice}", "compute slices that are free", state="free"),
        gauge("flyball.agent.read.duration", "s", "time that reading this device took"),
        gauge("flyball.agent.read.stalled", "1", "1 while a call about this device does not come back"),
        count("flyball.agent.values", "{value}", "values refused because they cannot be true", state="rejected"),
    ),
)
