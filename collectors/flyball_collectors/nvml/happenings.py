"""What the driver's events and the state of the GPUs come to as records."""

from flyball_collectors.nvml.watch import ROW_RETIREMENT_FAILED, UNCORRECTED_ECC, XID, Happening
from flyball_collectors.nvml.xid import verdict_of
from flyball_contracts.records import Device, NodeEvent
from flyball_contracts.records.events import node_event


def event_of(node: str, what: Happening, first_ns: int, count: int, recovery_action: int | None) -> NodeEvent:
    """Record of an event of the driver that was seen ``count`` times, first at ``first_ns``.

    ``recovery_action`` is what the driver asks for now, as far as is known.
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
    if what.kind == UNCORRECTED_ECC:
        message = f"uncorrected ECC error{often}"
        return node_event(
            node, first_ns, "ecc", severity="critical", device=what.device, remedy="drain", message=message
        )
    failed = what.kind == ROW_RETIREMENT_FAILED
    return node_event(
        node,
        first_ns,
        "row_remap",
        severity="critical" if failed else "warning",
        device=what.device,
        remedy="reset_gpu" if failed else "notify",
        message=f"a row of memory could not be retired{often}" if failed else f"a row of memory was retired{often}",
    )


def gone(node: str, now_ns: int, device: str, message: str) -> NodeEvent:
    """A GPU that does not answer, or is not there any more."""
    return node_event(node, now_ns, "device_lost", severity="critical", device=device, remedy="drain", message=message)


def there(node: str, now_ns: int, device: str, message: str) -> NodeEvent:
    """A GPU that is new, or answers again."""
    return node_event(node, now_ns, "device_added", device=device, message=message)


def stalled(node: str, now_ns: int, device: str, seconds: float) -> NodeEvent:
    """A GPU about which a call has not come back."""
    message = f"a call about the GPU has not come back for {seconds:.1f} s; its row is empty until it does"
    return node_event(
        node, now_ns, "device_stalled", severity="critical", device=device, remedy="drain", message=message
    )


def divided(node: str, now_ns: int, devices: tuple[Device, ...]) -> NodeEvent:
    """A GPU, the first of ``devices``, that is divided in another way than before."""
    profiles = ", ".join(device.mig_profile or device.id for device in devices[1:])
    if profiles:
        message = f"MIG instances: {profiles}"
    else:
        message = "MIG is on, there is no instance" if devices[0].mig_enabled else "MIG is off"
    return node_event(node, now_ns, "mig_changed", device=devices[0].id, message=message)
