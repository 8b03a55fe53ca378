"""The driver's events: each of those that nvml.h has is reported as what it is, others as unknown."""

import time

import pytest
from tests.collectors.nvml.nvml_tools import open_now
from tests.nvml_stub.stub import NvmlStub

from flyball_collectors.nvml import NvmlCollector
from flyball_contracts.records import NodeEvent

KINDS = {
    0x2: ("ecc", "critical", "drain"),
    0x200: ("ecc", "warning", "notify"),
    0x400: ("row_remap", "warning", "notify"),
    0x800: ("row_remap", "critical", "reset_gpu"),
    0x1000: ("ecc", "warning", "restart_app"),
    0x2000: ("ecc", "critical", "reset_gpu"),
    0x4000: ("device_lost", "critical", "drain"),
    0x8000: ("recovery_action", "critical", "reboot"),
}


def reported(collector: NvmlCollector, count: int) -> list[NodeEvent]:
    events: list[NodeEvent] = []
    deadline = time.monotonic() + 10
    while len(events) < count and time.monotonic() < deadline:
        time.sleep(0.01)
        events += collector.events()
    return events


def test_each_event_is_reported_as_what_it_is(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_field(230, 2)
    collector = open_now()
    collector.read(1, 1_000_000_000)  # so that the recovery action is known
    for kind in KINDS:
        nvml_stub.happen(kind, 7)
    found = reported(collector, len(KINDS))
    collector.close()
    assert sorted((one.kind, one.severity, one.remedy) for one in found) == sorted(KINDS.values())
    assert len({one.id for one in found}) == len(KINDS)


@pytest.mark.parametrize("kind", [0x10000, 0x80])
def test_an_event_that_nobody_knows_is_named_so(nvml_stub: NvmlStub, kind: int) -> None:
    collector = open_now()
    nvml_stub.happen(kind, 1, unasked=True)
    nvml_stub.happen(kind, 2, unasked=True)
    nvml_stub.happen(0x8, 31)
    deadline = time.monotonic() + 10
    while not any(one.kind == 0x8 for one in collector.watch.counts()) and time.monotonic() < deadline:
        time.sleep(0.01)  # the last has come, and none was drained before
    events = collector.events()
    collector.close()
    (event,) = [one for one in events if one.kind == "unknown"]
    assert (event.severity, event.remedy) == ("warning", "unknown")
    assert event.message == f"event {kind:#x} of the driver is not known here, 2 times"


def test_a_driver_that_has_fewer_events_gets_no_request_for_more(nvml_stub: NvmlStub) -> None:
    nvml_stub.gpu().event_kinds = 0x8 | 0x2
    collector = open_now()
    assert collector.watch.reason == ""
    for kind in (0x400, 0x8):
        nvml_stub.happen(kind, 79)
    assert [one.kind for one in reported(collector, 1)] == ["xid"]
    collector.close()
