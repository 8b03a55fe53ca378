"""The NVML collector against our stand-in for the driver's library."""

import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from tests.nvml_stub.stub import ALL_LINKS, GPU_IS_LOST, NOT_SUPPORTED, UNKNOWN, NvmlStub

from flyball_collectors.nvml import Absent, NvmlCollector, open_nvml
from flyball_contracts.metrics import GPU
from flyball_contracts.records import NodeEvent

S = 1_000_000_000
XID, UNCORRECTED_ECC, ROW_RETIREMENT_FAILED = 0x8, 0x2, 0x800


@pytest.fixture
def opened(nvml_stub: NvmlStub) -> Iterator[NvmlCollector]:
    """A collector of one GPU; tests that need more open their own."""
    collector = open_now()
    yield collector
    collector.close()


def open_now() -> NvmlCollector:
    collector = open_nvml("node")
    assert isinstance(collector, NvmlCollector)
    return collector


def rows(collector: NvmlCollector, now_ns: int = S) -> list[dict[str, float]]:
    """Known values of each row of one read."""
    reading = collector.read(now_ns, S)[0]
    assert reading.schema == GPU.schema
    return [{key: float(row[i]) for key, i in GPU.columns.items() if not np.isnan(row[i])} for row in reading.values]


def row(collector: NvmlCollector) -> dict[str, float]:
    (one,) = rows(collector)
    return one


def agree(found: Mapping[str, float], expected: Mapping[str, float]) -> None:
    assert {key: found.get(key) for key in expected} == {key: pytest.approx(value) for key, value in expected.items()}


def test_gauges_come_in_base_units(nvml_stub: NvmlStub, opened: NvmlCollector) -> None:
    gpu = nvml_stub.gpu()
    gpu.encoder, gpu.decoder, gpu.pstate, gpu.fan = 10, 20, 2, 30
    nvml_stub.set_processes([(pid, 2**20, 0, 0) for pid in (1, 2, 3)])
    gpu.reasons = 0x40 | 0x1
    expected = {
        "hw.gpu.utilization{task=general}": 0.5,
        "hw.gpu.utilization{task=encoder}": 0.1,
        "hw.gpu.utilization{task=decoder}": 0.2,
        "nvidia.gpu.memory.controller.utilization": 0.25,
        "hw.gpu.memory.usage": 20 * 2**30,
        "hw.gpu.memory.limit": 80 * 2**30,
        "nvidia.gpu.memory.reserved": 2**30,
        "hw.gpu.memory.utilization": 0.25,
        "nvidia.gpu.bar1.usage": 2**20,
        "hw.power": 300.0,
        "nvidia.gpu.power.average": 310.0,
        "nvidia.gpu.power.limit{type=enforced}": 700.0,
        "hw.temperature{sensor=gpu}": 45.0,
        "hw.temperature{sensor=memory}": 50.0,
        "nvidia.gpu.temperature.margin": 40.0,
        "nvidia.gpu.clock.frequency{clock=sm}": 1.98e9,
        "nvidia.gpu.clock.frequency{clock=mem}": 2.619e9,
        "nvidia.gpu.clock.event.active{reason=thermal}": 1.0,
        "nvidia.gpu.clock.event.active{reason=power}": 0.0,
        "nvidia.gpu.pstate": 2.0,
        "hw.fan.speed_ratio": 0.3,
        "nvidia.gpu.memory.row_remap.pending": 0.0,
        "nvidia.gpu.recovery_action": 0.0,
        "nvidia.gpu.process.count": 3.0,
    }
    found = row(opened)
    agree(found, expected)
    assert set(found) == set(expected)  # the first read knows no increase, and there are no samples


def test_counters_come_as_increases(nvml_stub: NvmlStub, opened: NvmlCollector) -> None:
    row(opened)
    nvml_stub.set_field(83, 1_450_000)
    nvml_stub.set_field(3, 2)
    nvml_stub.set_field(4, 1)
    nvml_stub.set_field(74, 250_000_000)
    nvml_stub.set_field(75, 500_000_000)
    nvml_stub.set_field(94, 6)
    nvml_stub.set_field(197, 1000)
    nvml_stub.set_field(198, 3000)
    nvml_stub.set_field(138, 4, scope=ALL_LINKS)
    nvml_stub.set_field(139, 8, scope=ALL_LINKS)
    expected = {
        "hw.energy": 450.0,
        "hw.errors{type=corrected}": 2.0,
        "hw.errors{type=uncorrected}": 1.0,
        "nvidia.gpu.throttle.time{reason=power}": 0.25,
        "nvidia.gpu.throttle.time{reason=thermal}": 0.5,
        "nvidia.gpu.pcie.replays": 6.0,
        "hw.gpu.io{direction=transmit}": 1000.0,
        "hw.gpu.io{direction=receive}": 3000.0,
        "nvidia.gpu.nvlink.io{direction=transmit}": 4096.0,
        "nvidia.gpu.nvlink.io{direction=receive}": 8192.0,
    }
    agree(row(opened), expected)


def test_a_counter_that_the_driver_reset_is_unknown_once(nvml_stub: NvmlStub, opened: NvmlCollector) -> None:
    row(opened)
    nvml_stub.set_field(83, 10)
    assert "hw.energy" not in row(opened)
    nvml_stub.set_field(83, 100_010)
    assert row(opened)["hw.energy"] == pytest.approx(100.0)


def test_links_that_only_report_their_own_bytes_are_added_up(nvml_stub: NvmlStub, opened: NvmlCollector) -> None:
    for field in (138, 139):
        nvml_stub.set_field(field, 0, scope=ALL_LINKS, result=NOT_SUPPORTED)
    for link in range(18):
        nvml_stub.set_field(202, 1000, scope=link)
        nvml_stub.set_field(204, 1000, scope=link)
    row(opened)
    for link in range(18):
        nvml_stub.set_field(202, 1000 + link, scope=link)
        nvml_stub.set_field(204, 1001, scope=link)
    expected = {"nvidia.gpu.nvlink.io{direction=transmit}": 153.0, "nvidia.gpu.nvlink.io{direction=receive}": 18.0}
    agree(row(opened), expected)


def test_a_field_that_the_driver_does_not_know_is_requested_once(nvml_stub: NvmlStub, opened: NvmlCollector) -> None:
    nvml_stub.set_field(82, 0, result=2)  # invalid argument
    row(opened)
    nvml_stub.set_field(82, 50)
    assert "hw.temperature{sensor=memory}" not in row(opened)
    assert row(opened)["hw.temperature{sensor=gpu}"] == 45


def test_samples_give_the_burst_between_two_reads(nvml_stub: NvmlStub, opened: NvmlCollector) -> None:
    old = [(1_000_000 + 100_000 * i, 90) for i in range(10)]
    nvml_stub.set_samples(old)
    assert "nvidia.gpu.busy.time" not in row(opened)  # what came before the agent only starts the clock
    new = [(2_000_000 + 100_000 * i, percent) for i, percent in enumerate([0, 0, 100, 100, 100, 0, 0, 0, 0, 20])]
    nvml_stub.set_samples(sorted(old[5:] + new, reverse=True))  # in any order, and overlapping
    expected = {
        "nvidia.gpu.busy.time": 0.32,
        "hw.gpu.utilization{task=general}": 0.32,
        "nvidia.gpu.utilization.min": 0.0,
        "nvidia.gpu.utilization.max": 1.0,
        "nvidia.gpu.utilization.p95": 1.0,
    }
    agree(row(opened), expected)
    quiet = row(opened)
    assert quiet["nvidia.gpu.busy.time"] == 0
    assert quiet["hw.gpu.utilization{task=general}"] == 0.5  # no sample is new: the driver's own average
    assert "nvidia.gpu.utilization.max" not in quiet


def test_samples_whose_clock_steps_back_start_again(nvml_stub: NvmlStub, opened: NvmlCollector) -> None:
    nvml_stub.set_samples([(5_000_000, 50)])
    row(opened)
    nvml_stub.set_samples([(1_000_000, 50)])
    for _ in range(11):
        row(opened)  # for the driver nothing is newer than 5 s
    nvml_stub.set_samples([(1_000_000, 50), (1_500_000, 40)])
    assert row(opened)["hw.gpu.utilization{task=general}"] == pytest.approx(0.4)


def test_what_is_not_supported_is_nan_and_not_queried_again(nvml_stub: NvmlStub, opened: NvmlCollector) -> None:
    nvml_stub.set_result("fan", NOT_SUPPORTED)
    nvml_stub.set_field(82, 0, result=NOT_SUPPORTED)
    for _ in range(3):
        found = row(opened)
        assert "hw.fan.speed_ratio" not in found
        assert "hw.temperature{sensor=memory}" not in found
        assert found["hw.temperature{sensor=gpu}"] == 45.0
    assert nvml_stub.requests("fan") == 1
    assert nvml_stub.requests("margin") == 3


def test_a_passing_failure_costs_one_value(nvml_stub: NvmlStub, opened: NvmlCollector) -> None:
    nvml_stub.set_result("temperature", UNKNOWN)
    nvml_stub.set_result("margin", UNKNOWN)
    assert "nvidia.gpu.temperature.margin" not in row(opened)
    assert opened.readers[0].gate.errors["nvmlDeviceGetMarginTemperature"] == 1
    nvml_stub.set_result("margin", 0)
    assert row(opened)["nvidia.gpu.temperature.margin"] == 40.0


def test_an_old_driver_answers_through_the_old_calls(nvml_stub: NvmlStub, opened: NvmlCollector) -> None:
    for call in ("memory", "temperature", "fields"):
        nvml_stub.set_result(call, 13)  # function not found
    nvml_stub.gpu().power_mw = 250_000
    found = row(opened)
    assert found["hw.power"] == 250.0
    assert found["hw.temperature{sensor=gpu}"] == 45.0
    assert found["hw.gpu.memory.usage"] == 21 * 2**30  # with what is reserved: version 1 does not report them apart
    assert "nvidia.gpu.memory.reserved" not in found
    assert "hw.energy" not in found


def test_values_that_cannot_be_are_left_out_and_counted(
    nvml_stub: NvmlStub, opened: NvmlCollector, caplog: pytest.LogCaptureFixture
) -> None:
    row(opened)
    gpu = nvml_stub.gpu()
    gpu.utilization, gpu.temperature = 808_334_905, 2**31 - 1
    nvml_stub.set_field(83, 2**62)
    with caplog.at_level(logging.WARNING):
        found = [row(opened), row(opened)][1]
    assert not {"hw.gpu.utilization{task=general}", "hw.temperature{sensor=gpu}"} & set(found)
    rejected = opened.rows.rejected
    assert rejected == {"hw.gpu.utilization{task=general}": 2, "hw.temperature{sensor=gpu}": 2, "hw.energy": 1}
    assert len(caplog.records) == 3  # each is reported once


def test_a_lost_gpu_leaves_the_others_alone(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(3)
    collector = open_now()
    rows(collector)
    nvml_stub.gpu(1).lost = GPU_IS_LOST
    for _ in range(3):
        first, lost, last = rows(collector, 5 * S)
        assert (bool(first), lost, bool(last)) == (True, {}, True)
    (event,) = collector.events()
    assert (event.kind, event.device, event.severity) == ("device_lost", collector.parts().devices[1].id, "critical")
    assert event.time_ns == 5 * S
    nvml_stub.gpu(1).lost = 0
    assert "hw.energy" not in rows(collector)[1]  # its counters start again
    assert [event.kind for event in collector.events()] == ["device_added"]
    assert len(collector.parts().devices) == 3
    collector.close()


def test_a_gpu_that_is_lost_from_the_start_has_no_row(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(2)
    nvml_stub.gpu(0).lost = GPU_IS_LOST
    collector = open_now()
    assert len(rows(collector)) == 1
    assert [device.index for device in collector.parts().devices] == [1]
    (event,) = collector.events()
    assert event.kind == "device_lost"
    assert "GPU 0" in event.message
    collector.close()


@pytest.mark.parametrize("count", [1, 8, 72])
def test_any_number_of_gpus(nvml_stub: NvmlStub, count: int) -> None:
    nvml_stub.set_gpus(count)
    for index in range(count):
        nvml_stub.gpu(index).utilization = index
    collector = open_now()
    found = rows(collector)
    assert [one["hw.gpu.utilization{task=general}"] for one in found] == pytest.approx([i / 100 for i in range(count)])
    devices = collector.parts().devices
    assert len({device.id for device in devices}) == len(devices) == count
    collector.close()


def test_inventory(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    node = tmp_path / "sys/bus/pci/devices/0000:10:00.0/numa_node"
    node.parent.mkdir(parents=True)
    node.write_text("1\n")
    collector = open_nvml("node", tmp_path)
    assert isinstance(collector, NvmlCollector)
    (device,) = collector.parts().devices
    collector.close()
    assert device.id.startswith("GPU-")
    assert (device.model, device.serial) == ("NVIDIA H100 80GB HBM3", "1600000000")
    assert (device.memory_bytes, device.power_limit_w) == (80 * 2**30, 700.0)
    assert (device.pci_address, device.numa_node) == ("0000:10:00.0", 1)
    assert collector.parts().driver_version == "580.1-stub"


def events_of(collector: NvmlCollector, count: int) -> list[NodeEvent]:
    """Events of the collector once there are ``count``; the driver's come from a thread."""
    events: list[NodeEvent] = []
    deadline = time.monotonic() + 10
    while len(events) < count and time.monotonic() < deadline:
        events += collector.events()
        time.sleep(0.01)
    return events


def test_driver_events(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(2)
    collector = open_now()
    nvml_stub.happen(XID, 79, gpu=1)
    nvml_stub.happen(UNCORRECTED_ECC, 0)
    nvml_stub.happen(ROW_RETIREMENT_FAILED, 0)
    events = {event.kind: event for event in events_of(collector, 3)}
    collector.close()
    xid = events["xid"]
    assert (xid.code, xid.remedy, xid.severity) == (79, "reboot", "critical")
    assert xid.device == collector.parts().devices[1].id
    assert events["ecc"].remedy == "drain"
    assert events["row_remap"].remedy == "reset_gpu"
    assert len({event.id for event in events.values()}) == 3


def test_a_storm_of_events_is_counted(nvml_stub: NvmlStub) -> None:
    collector = open_now()
    for _ in range(50):
        nvml_stub.happen(XID, 31)
    deadline = time.monotonic() + 10
    while sum(collector.watch.counts().values()) < 50 and time.monotonic() < deadline:
        time.sleep(0.01)
    (event,) = collector.events()
    collector.close()
    assert event.message.endswith("50 times")


def test_the_driver_s_own_verdict_decides_for_xid_154(nvml_stub: NvmlStub, opened: NvmlCollector) -> None:
    nvml_stub.set_field(230, 2)
    row(opened)
    nvml_stub.happen(XID, 154)
    (event,) = events_of(opened, 1)
    assert event.remedy == "reboot"


def test_without_events_the_values_still_come(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_result("events", NOT_SUPPORTED)
    collector = open_now()
    assert collector.watch.reason
    assert row(collector)
    collector.close()


def test_no_gpu_is_absent(nvml_stub: NvmlStub) -> None:
    nvml_stub.state.count = 0
    absent = open_nvml("node")
    assert isinstance(absent, Absent)
    assert "no GPU" in absent.reason


@pytest.mark.parametrize(
    ("code", "words"), [(9, "load the driver"), (4, "/dev/nvidia"), (18, "reboot"), (12, "install")]
)
def test_nvml_that_does_not_start_is_absent_with_a_remedy(nvml_stub: NvmlStub, code: int, words: str) -> None:
    nvml_stub.state.init = code
    absent = open_nvml("node")
    assert isinstance(absent, Absent)
    assert words in absent.remedy


def test_without_the_library_it_is_absent() -> None:
    absent = open_nvml("node", library="libno-such-library.so.1")
    assert isinstance(absent, Absent)
    assert "NVIDIA" in absent.remedy


def test_closing_twice_does_nothing(nvml_stub: NvmlStub) -> None:
    collector = open_now()
    collector.close()
    collector.close()
