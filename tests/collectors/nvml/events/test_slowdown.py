"""Clocks that heat or the power brake lower: one event when it begins and one when it has ended, however they flap."""

from collections.abc import Iterator

import pytest
from tests.collectors.nvml.nvml_tools import S
from tests.nvml_stub.stub import GPU_IS_LOST, NvmlStub

from flyball_collectors.nvml import NvmlCollector, open_nvml
from flyball_contracts.records import NodeEvent

POWER_CAP, HW, SW_THERMAL, HW_THERMAL, BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80


class Ticks:
    """A collector that is read once a second, of event time."""

    def __init__(self, collector: NvmlCollector, stub: NvmlStub) -> None:
        self.collector, self.stub, self.now_s = collector, stub, 0

    def run(self, reasons: int, seconds: int = 1, gpu: int = 0) -> list[NodeEvent]:
        self.stub.gpu(gpu).reasons = reasons
        events: list[NodeEvent] = []
        for _ in range(seconds):
            self.now_s += 1
            self.collector.read(self.now_s * S, S)
            events += self.collector.events()
        return events


@pytest.fixture
def ticks(nvml_stub: NvmlStub) -> Iterator[Ticks]:
    nvml_stub.set_gpus(2)
    collector = open_nvml("n1")
    assert isinstance(collector, NvmlCollector)
    yield Ticks(collector, nvml_stub)
    collector.close()


def test_a_slowdown_is_reported_when_it_begins_and_when_it_has_ended(ticks: Ticks) -> None:
    assert ticks.run(0, 3) == []
    begun, *rest = ticks.run(HW | HW_THERMAL | SW_THERMAL, 5)
    assert not rest
    first, second = (device.id for device in ticks.collector.parts().devices)
    assert (begun.kind, begun.severity, begun.device, begun.time_ns) == ("throttle", "warning", first, 4 * S)
    assert begun.message == "clocks are lowered by the driver, for heat and by hardware, for heat"
    (brake,) = ticks.run(BRAKE | HW, gpu=1)
    assert (brake.kind, brake.device) == ("power_brake", second)
    assert brake.message == "clocks are lowered by the power brake of the host"
    assert ticks.run(BRAKE, 20, gpu=1) == []
    ticks.run(0)
    ended = ticks.run(0, 12, gpu=1)
    assert [(one.kind, one.severity, one.device) for one in ended] == [
        ("throttle", "info", first),
        ("power_brake", "info", second),
    ]
    assert ended[1].message == "clocks are no longer lowered; they were for 22 s within 22 s"


def test_the_power_cap_of_a_full_load_is_no_event(ticks: Ticks) -> None:
    assert ticks.run(POWER_CAP, 5) == ticks.run(0x1, 5) == ticks.run(0x2 | 0x10 | 0x100, 5) == []


def test_older_hardware_that_reports_no_more_than_a_slowdown_is_reported_as_one(ticks: Ticks) -> None:
    (begun,) = ticks.run(HW, 3)
    assert (begun.kind, begun.message) == ("throttle", "clocks are lowered by hardware")


def test_clocks_that_flap_for_an_hour_have_few_events(ticks: Ticks) -> None:
    flapping = [event for _ in range(300) for event in (*ticks.run(HW_THERMAL), *ticks.run(0, 11))]
    assert 2 <= len(flapping) <= 4
    assert len(ticks.run(0, 1300)) == 1
    assert len(ticks.run(HW_THERMAL)) == 1
    assert len(ticks.run(0, 12)) == 1  # it was calm for long: 10 s are enough again


def test_a_gpu_that_is_lost_ends_nothing(ticks: Ticks) -> None:
    ticks.run(HW_THERMAL)
    ticks.stub.gpu(0).lost = GPU_IS_LOST
    assert [event.kind for event in ticks.run(0, 9)] == ["device_lost"]
