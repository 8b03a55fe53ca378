"""Records of driver events and of changes of the GPUs' state."""

from collections.abc import Mapping
from typing import NamedTuple

from flyball_collectors.nvml.events.watch import (
    CONTAINED_POISON,
    CORRECTED_ECC_STORM,
    FATAL_POISON,
    RECOVERY_ACTION,
    ROW_RETIRED,
    ROW_RETIREMENT_FAILED,
    UNAVAILABLE,
    UNCORRECTED_ECC,
    XID,
    DriverEvent,
)
from flyball_collectors.nvml.events.xid import recovery_of, verdict_of
from flyball_contracts.records import Device, NodeEvent
from flyball_contracts.records.events import EventKind, Remedy, Severity, node_event


class _Meaning(NamedTuple):
    kind: EventKind
    severity: Severity
    remedy: Remedy
    about: str


_MEANINGS: Mapping[int, _Meaning] = {
    UNCORRECTED_ECC: _Meaning("ecc", "critical", "drain", "uncorrected ECC error"),
    CORRECTED_ECC_STORM: _Meaning("ecc", "warning", "notify", "storm of single-bit ECC errors"),
    CONTAINED_POISON: _Meaning("ecc", "warning", "restart_app", "poisoned memory was used; the error is contained"),
    FATAL_POISON: _Meaning("ecc", "critical", "reset_gpu", "poisoned memory was used; the error is not contained"),
    ROW_RETIRED: _Meaning("row_remap", "warning", "notify", "a row of memory was retired"),
    ROW_RETIREMENT_FAILED: _Meaning("row_remap", "critical", "reset_gpu", "a row of memory could not be retired"),
    UNAVAILABLE: _Meaning("device_lost", "critical", "drain", "the driver says that the GPU is not available"),
}


def event_of(node: str, what: DriverEvent, first_ns: int, count: int, recovery_action: int | None) -> NodeEvent:
    """Record of a driver event that was seen ``count`` times, first at ``first_ns``.

    ``recovery_action`` is the driver's present request, if known.
    """
    often = f", {count} times" if count > 1 else ""
    if what.kind == XID:
        verdict = verdict_of(what.data, recovery_action)
        return node_event(
            node,
            first_ns,
            "xid",
            severity=verdict.severity,
            device=what.device,
            code=what.data,
            remedy=verdict.remedy,
            message=f"XID {what.data}: {verdict.about}{often}",
        )
    if what.kind == RECOVERY_ACTION:
        remedy = recovery_of(recovery_action)
        severity: Severity = "info" if remedy == "none" else "critical"
        meaning = _Meaning("recovery_action", severity, remedy, "the driver requests another recovery action")
    else:
        unknown = _Meaning("unknown", "warning", "unknown", f"event {what.kind:#x} of the driver is not known here")
        meaning = _MEANINGS.get(what.kind, unknown)
    return node_event(
        node,
        first_ns,
        meaning.kind,
        severity=meaning.severity,
        device=what.device,
        remedy=meaning.remedy,
        message=f"{meaning.about}{often}",
    )


def gone(node: str, now_ns: int, device: str, message: str) -> NodeEvent:
    """Event: a GPU does not respond, or was removed."""
    return node_event(node, now_ns, "device_lost", severity="critical", device=device, remedy="drain", message=message)


def there(node: str, now_ns: int, device: str, message: str) -> NodeEvent:
    """Event: a GPU was added, or responds again."""
    return node_event(node, now_ns, "device_added", device=device, message=message)


def stalled(node: str, now_ns: int, device: str, seconds: float) -> NodeEvent:
    """Event: a call about a GPU has not returned."""
    message = f"a call about the GPU has not come back for {seconds:.1f} s; its row is empty until it does"
    return node_event(
        node, now_ns, "device_stalled", severity="critical", device=device, remedy="drain", message=message
    )


def divided(node: str, now_ns: int, devices: tuple[Device, ...]) -> NodeEvent:
    """Event: a GPU, the first of ``devices``, was repartitioned."""
    profiles = ", ".join(device.mig_profile or device.id for device in devices[1:])
    if profiles:
        message = f"MIG instances: {profiles}"
    else:
        message = "MIG is on, there is no instance" if devices[0].mig_enabled else "MIG is off"
    return node_event(node, now_ns, "mig_changed", device=devices[0].id, message=message)


def refused(node: str, now_ns: int, call: str, without: str) -> NodeEvent:
    """Event: the driver has another version of a call's struct; ``without`` says why the binding is not used."""
    about = f"{call}: the driver answers in a version of its structure that is not known here"
    message = f"{about}; not read: {without}" if without else f"{about}; read through nvidia-ml-py instead"
    severity: Severity = "warning" if without else "info"
    return node_event(node, now_ns, "telemetry_fallback", severity=severity, remedy="notify", message=message)
