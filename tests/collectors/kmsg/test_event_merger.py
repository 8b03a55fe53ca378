"""One event for two witnesses, NVML and the kernel log, and one for an error and its victims."""

import msgspec

from flyball_collectors.kmsg import EventMerger
from flyball_contracts.records import Device, NodeEvent
from flyball_contracts.records.events import node_event

S = 1_000_000_000
T = 1_700_000_000 * S
GPU = Device(id="GPU-1", model="H100", memory_bytes=1, pci_address="0000:3b:00.0")
SLICE = Device(id="MIG-1", model="H100", memory_bytes=1, pci_address="0000:3b:00.0", parent="GPU-1")
PEER = Device(id="GPU-2", model="H100", memory_bytes=1, pci_address="0000:4c:00.0")


def xid(code: int, *, device: str = "GPU-1", at_s: float = 0.0, message: str = "by NVML") -> NodeEvent:
    return node_event(
        "n1", T + round(at_s * S), "xid", severity="warning", remedy="notify", device=device, code=code, message=message
    )


def line(code: int, *, slot: str = "0000:3b:00", at_s: float = 0.0) -> NodeEvent:
    return xid(code, device=f"PCI:{slot}", at_s=at_s, message="by the kernel")


def settle(merger: EventMerger, *events: NodeEvent) -> list[NodeEvent]:
    return merger.settle(events, [SLICE, GPU, PEER])


def test_two_witnesses_make_one_event() -> None:
    (event,) = settle(EventMerger(), xid(79), line(79, at_s=0.001))
    assert (event.device, event.message) == ("GPU-1", "by the kernel")


def test_nvml_may_come_later() -> None:
    merger = EventMerger()
    assert len(settle(merger, line(79))) == 1
    assert settle(merger, xid(79, at_s=1.9)) == []
    assert len(settle(merger, xid(79, at_s=2.1))) == 1


def test_the_kernel_may_come_later_and_reports_the_same_event_better() -> None:
    merger = EventMerger()
    (first,) = settle(merger, xid(149))
    (second,) = settle(merger, line(149, at_s=0.5))
    assert second.id == first.id
    assert second.message == "by the kernel"
    (third,) = settle(merger, line(149, at_s=3.5))
    assert third.id != first.id


def test_a_storm_goes_on_being_reported_once_a_tick() -> None:
    merger = EventMerger()
    for at_s in range(20):
        events = settle(merger, xid(45, at_s=at_s + 0.01), line(45, at_s=at_s))
        assert [event.message for event in events] == ["by the kernel"]


def test_other_devices_and_codes_are_other_events() -> None:
    events = settle(EventMerger(), xid(79, device="GPU-2"), xid(48), line(79), line(63))
    assert [(event.device, event.code) for event in events] == [
        ("GPU-2", 79),
        ("GPU-1", 48),
        ("GPU-1", 79),
        ("GPU-1", 63),
    ]


def test_a_slot_without_a_device_strikes_no_other() -> None:
    (event,) = settle(EventMerger(), line(79, slot="0000:99:00"))
    assert event.device == "PCI:0000:99:00"


def test_victims_are_joined_to_what_struck_them() -> None:
    merger = EventMerger()
    cause, victim = settle(merger, xid(48), xid(45, at_s=0.2))
    assert cause.message == "by NVML"
    assert (victim.severity, victim.remedy) == ("info", "none")
    assert victim.message == "by NVML; follows XID 48"
    (late,) = settle(merger, xid(45, at_s=9.9))
    assert late.message == "by NVML; follows XID 48"
    (alone,) = settle(merger, xid(45, at_s=20.5))
    assert (alone.severity, alone.remedy, alone.message) == ("warning", "notify", "by NVML")


def test_victims_on_peers_are_joined_to_errors_of_the_fabric_only() -> None:
    for code, follows in ((149, True), (74, True), (24007, True), (48, False)):
        merger = EventMerger()
        device = "" if code > 10_000 else "GPU-2"
        (_, victim) = settle(merger, xid(code, device=device), xid(43, at_s=1))
        where = device or "a switch"
        assert victim.message == ("by NVML" + (f"; follows XID {code} of {where}" if follows else ""))


def test_events_of_other_kinds_pass() -> None:
    event = node_event("n1", T, "throttle", device="GPU-1")
    lost = node_event("n1", T, "pcie_error", device="PCI:0000:4c:00")
    assert settle(EventMerger(), event, event, lost) == [event, event, msgspec.structs.replace(lost, device="GPU-2")]
    assert settle(EventMerger()) == []
