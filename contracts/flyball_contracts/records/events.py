"""Events of a node at an instant."""

from typing import Literal

from flyball_contracts.ids import record_id
from flyball_contracts.records.base import Record, TimeNs

EventKind = Literal[
    "xid", "ecc", "row_remap", "throttle", "mig_changed", "spot_notice", "device_lost",
    "device_stalled", "device_added", "agent_started", "agent_stopped", "records_dropped", "clock_jumped",
    "power_brake", "rebalance_notice", "maintenance_notice", "config_reloaded", "config_refused",
    "pcie_error", "oom_kill", "recovery_action", "telemetry_fallback", "nvlink_error", "unknown",
]  # fmt: skip
Severity = Literal["info", "warning", "critical"]
Remedy = Literal["none", "notify", "restart_app", "no_new_work", "reset_gpu", "drain", "reboot", "unknown"]


class NodeEvent(Record, frozen=True, kw_only=True):
    """One event of one node or device.

    ``code`` is the number of the XID where there is one, or of an NVSwitch's SXID, which lies above 10000;
    ``remedy`` is that of the fault taxonomy. ``device`` is a device id, or empty for the node as a whole;
    ``PCI:dddd:bb:dd`` is a slot in which the agent knows no device. ``link`` is the number of the NVLink that it is
    about, ``count`` how many errors came.
    """

    id: str
    node: str
    time_ns: TimeNs
    kind: EventKind
    severity: Severity = "info"
    device: str = ""
    code: int | None = None
    remedy: Remedy = "none"
    message: str = ""
    link: int | None = None
    count: int | None = None


def node_event(
    node: str,
    time_ns: int,
    kind: EventKind,
    *,
    severity: Severity = "info",
    device: str = "",
    code: int | None = None,
    remedy: Remedy = "none",
    message: str = "",
    link: int | None = None,
    count: int | None = None,
) -> NodeEvent:
    """Event whose id follows from its content, so that a repeated report is the same event."""
    return NodeEvent(
        id=record_id("NodeEvent", node, device, kind, -1 if code is None else code, time_ns, message),
        node=node,
        time_ns=time_ns,
        kind=kind,
        severity=severity,
        device=device,
        code=code,
        remedy=remedy,
        message=message,
        link=link,
        count=count,
    )
