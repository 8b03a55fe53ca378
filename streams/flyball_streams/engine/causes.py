"""Causes of symptoms: one table for events, one for the metrics of anomalies, one for the strength of detectors."""

from collections.abc import Mapping
from functools import lru_cache

from flyball_contracts.records import Anomaly, Cause, NodeEvent
from flyball_contracts.records.events import EventKind, Remedy, Severity
from flyball_contracts.records.incidents import Strength
from flyball_contracts.xids import Fault, xid_of

FIRST_SXID = 10_001
"""First code of NVSwitch; a switch affects all GPUs of its node."""
_OF_FAULT: Mapping[Fault, Cause] = {
    "application": "application",
    "victim": "unknown",
    "memory": "gpu",
    "link": "nvlink",
    "bus": "pcie",
    "firmware": "gpu",
    "driver": "driver",
    "power": "power",
    "gpu": "gpu",
    "unknown": "unknown",
}
_OF_KIND: Mapping[str, tuple[Cause, Strength]] = {
    "ecc": ("gpu", "fault"),
    "row_remap": ("gpu", "fault"),
    "recovery_action": ("gpu", "fault"),
    "device_lost": ("pcie", "fault"),
    "device_stalled": ("gpu", "fault"),
    "pcie_error": ("pcie", "fault"),
    "throttle": ("thermal", "sign"),
    "power_brake": ("power", "fault"),
    "spot_notice": ("reclaimed", "fault"),
    "rebalance_notice": ("reclaimed", "sign"),
    "maintenance_notice": ("reclaimed", "fault"),
    "oom_kill": ("application", "effect"),
    "records_dropped": ("telemetry", "sign"),
    "clock_jumped": ("telemetry", "sign"),
    "telemetry_fallback": ("telemetry", "sign"),
    "config_refused": ("telemetry", "sign"),
    "unknown": ("unknown", "sign"),
}
"""Events of other kinds are changes, not symptoms."""
_OF_METRIC: Mapping[str, Cause] = {
    "hw.temperature": "thermal",
    "hw.errors": "gpu",
    "hw.gpu.io": "pcie",
    "hw.gpu.memory.utilization": "gpu_memory",
    "nvidia.gpu.nvlink.errors": "nvlink",
    "nvidia.gpu.pcie.replays": "pcie",
    "system.cpu.utilization": "host",
    "system.cpu.time{mode=iowait": "storage",
    "system.cpu.time": "host",
    "system.process.count": "host",
    "system.disk": "storage",
    "system.network": "network",
    "container.cpu.time": "neighbour",
    "container.disk.io": "neighbour",
    "system.memory": "host",
    "system.paging": "host",
    "system.linux.psi.total_time{resource=cpu": "host",
    "system.linux.psi.total_time{resource=memory": "host",
    "system.linux.psi.total_time{resource=io": "storage",
}
"""Cause by the prefix of a metric's name; other metrics may have any cause."""
_CAUSE_OF_DETECTOR: Mapping[str, Cause] = {
    "application": "application",
    "stuck_sensor": "telemetry",
    "missing_metric": "telemetry",
    "missing_device": "telemetry",
}
"""Causes of detectors that do not depend on the metric."""
_OF_DETECTOR: Mapping[str, Strength] = {
    "failing": "fault",
    "suspect": "sign",
    "straggling": "sign",
    "nvlink": "sign",
    "pcie": "sign",
    "pressure": "sign",
    "network": "sign",
    "missing_device": "sign",
}


def of_event(event: NodeEvent) -> tuple[Cause, Strength] | None:
    """Cause of an event and strength of its evidence; ``None`` if nothing is wrong."""
    return _of_kind(event.kind, event.code, event.severity, event.remedy, bool(event.device))


@lru_cache(maxsize=4096)  # a flood has few kinds of events
def _of_kind(
    kind: EventKind, code: int | None, severity: Severity, remedy: Remedy, of_device: bool
) -> tuple[Cause, Strength] | None:
    if kind == "xid" and code is not None:
        if code >= FIRST_SXID:
            return "nvlink", "fault"
        fault = xid_of(code).fault
        if severity == "info" and remedy == "none":
            return None
        if fault in ("application", "victim"):
            return _OF_FAULT[fault], "effect"
        warns = severity != "critical" and remedy in ("none", "notify", "unknown")
        return _OF_FAULT[fault], "sign" if fault == "unknown" or warns else "fault"
    found = _OF_KIND.get(kind)
    if found is None or severity == "info":
        return None
    if kind == "ecc" and not of_device:
        return "host", "fault"  # memory of the host
    return found


def of_anomaly(anomaly: Anomaly) -> tuple[Cause, Strength]:
    """Cause that the first evidence of an anomaly suggests, and the strength of its detector."""
    strength = _OF_DETECTOR.get(anomaly.detector, "effect")
    if anomaly.detector in _CAUSE_OF_DETECTOR:
        return _CAUSE_OF_DETECTOR[anomaly.detector], strength
    first = anomaly.evidence[0] if anomaly.evidence else None
    if first is None:
        return "unknown", strength
    if first.name == "xid":
        code = int(first.value)
        cause: Cause = "nvlink" if code >= FIRST_SXID else _OF_FAULT[xid_of(code).fault]
        return ("gpu" if strength == "fault" and cause in ("application", "unknown") else cause), strength
    if first.name in _OF_KIND:
        return _OF_KIND[first.name][0], strength
    if strength == "fault":
        return "gpu", strength
    for beginning, cause in _OF_METRIC.items():
        if first.name.startswith(beginning):
            return cause, strength
    return "unknown", strength
