"""The frame of details: each column from the call or field that NVML has for it."""

from collections.abc import Callable

import pytest
from tests.collectors.nvml.nvml_tools import EACH_TIME, S, agree, detail, open_now
from tests.nvml_stub.stub import GPU_IS_LOST, NARROW, NOT_SUPPORTED, POWER_RING, NvmlStub

from flyball_collectors.parameters import GpuParameters
from flyball_contracts.metrics import GPU_DETAIL

XID = 0x8


def test_details_come_at_the_first_read_and_then_every_so_often(nvml_stub: NvmlStub) -> None:
    collector = open_now(GpuParameters(detail_period_s=3))
    seen = [len(collector.read(tick * S, S)) for tick in range(1, 9)]
    collector.close()
    assert seen == [2, 1, 1, 2, 1, 1, 2, 1]


def test_every_column_of_the_layout_can_be_filled(nvml_stub: NvmlStub) -> None:
    """All but what only the driver of the newest chips tells is there after two reads of a GPU with everything."""
    nvml_stub.set_switched(18)
    for field in (*range(173, 181), 29, 30, 142, 143, 145, 187, 188, 189, 192, 76, 77, 78, 79, 269, 270, 271, 160, 297):
        nvml_stub.set_field(field, 0)
    for link in range(18):
        for field in (161, 162, 163, 221):
            nvml_stub.set_field(field, 0, scope=link)
    nvml_stub.gpu().threshold[:] = (92, 87)
    nvml_stub.set_samples([(1_000_000, 300_000)], ring=POWER_RING)
    collector = open_now()
    detail(collector)
    nvml_stub.set_samples([(1_000_000, 300_000), (2_000_000, 400_000)], ring=POWER_RING)
    found = detail(collector)
    collector.close()
    missing = {key for key in GPU_DETAIL.columns if key not in found}
    gpm = {key for key in missing if "tensor" in key or "cycles" in key}  # two samples are too close together here
    assert missing - gpm == {"nvidia.gpu.mig.slices{state=used}", "nvidia.gpu.mig.slices{state=free}"}


def test_gauges_come_in_base_units(nvml_stub: NvmlStub) -> None:
    gpu = nvml_stub.gpu()
    gpu.reasons = 0x4 | 0x40
    gpu.pcie[:] = (4, 5, 8, 16)
    gpu.banks[:] = (600, 20, 10, 6, 4)
    gpu.ecc[:] = (7, 1, 9, 5)
    gpu.exceeded = 1
    gpu.fabric[:] = (2, 6)
    gpu.threshold[:] = (92, 87)
    values = {187: 200_000, 188: 700_000, 189: 650_000, 192: 500_000, 29: 3, 30: 1, 142: 4, 143: 2, 145: 1, 297: 25}
    for field, value in values.items():
        nvml_stub.set_field(field, value, kind=NARROW)
    collector = open_now()
    expected = {
        "nvidia.gpu.mma.stall": 0.25,
        "nvidia.gpu.power.limit{type=min}": 200.0,
        "nvidia.gpu.power.limit{type=max}": 700.0,
        "nvidia.gpu.power.limit{type=default}": 650.0,
        "nvidia.gpu.power.limit{type=requested}": 500.0,
        "nvidia.gpu.clock.frequency{clock=video}": 1.755e9,
        "nvidia.gpu.clock.event.active{reason=sw_power}": 1.0,
        "nvidia.gpu.clock.event.active{reason=hw_thermal}": 1.0,
        "nvidia.gpu.clock.event.active{reason=idle}": 0.0,
        "nvidia.gpu.pcie.link{value=current,what=generation}": 4.0,
        "nvidia.gpu.pcie.link{value=max,what=generation}": 5.0,
        "nvidia.gpu.pcie.link{value=current,what=width}": 8.0,
        "nvidia.gpu.pcie.link{value=max,what=width}": 16.0,
        "nvidia.gpu.fabric.state": 2.0,
        "nvidia.gpu.fabric.status": 6.0,
        "nvidia.gpu.ecc.errors{location=dram,type=corrected}": 7.0,
        "nvidia.gpu.ecc.errors{location=dram,type=uncorrected}": 1.0,
        "nvidia.gpu.ecc.errors{location=sram,type=corrected}": 9.0,
        "nvidia.gpu.ecc.errors{location=sram,type=uncorrected}": 5.0,
        "nvidia.gpu.ecc.sram.threshold": 1.0,
        "nvidia.gpu.memory.pages.retired{cause=single_bit}": 3.0,
        "nvidia.gpu.memory.pages.retired{cause=double_bit}": 1.0,
        "nvidia.gpu.memory.rows.remapped{cause=corrected}": 4.0,
        "nvidia.gpu.memory.rows.remapped{cause=uncorrected}": 2.0,
        "nvidia.gpu.memory.row_remap.failed": 1.0,
        "nvidia.gpu.memory.row_remap.banks{availability=max}": 600.0,
        "nvidia.gpu.memory.row_remap.banks{availability=none}": 4.0,
        "hw.temperature.limit{limit=high.degraded}": 87.0,
        "hw.temperature.limit{limit=high.critical}": 92.0,
        "flyball.agent.read.stalled": 0.0,
    }
    found = detail(collector)
    collector.close()
    agree(found, expected)
    assert 0 < found["flyball.agent.read.duration"] < 60


def test_limits_that_are_reported_as_margins_become_temperatures(nvml_stub: NvmlStub) -> None:
    gpu = nvml_stub.gpu()
    gpu.temperature, gpu.margin = 50, 35
    nvml_stub.set_field(194, 2**64 - 2, kind=4)  # slowdown at a margin of -2
    nvml_stub.set_field(193, 2**64 - 8, kind=4)
    collector = open_now()
    found = detail(collector)
    collector.close()
    agree(found, {"hw.temperature.limit{limit=high.degraded}": 87, "hw.temperature.limit{limit=high.critical}": 93})


def test_counters_come_as_increases(nvml_stub: NvmlStub) -> None:
    counters = {76: 0, 77: 0, 78: 0, 79: 0, 269: 0, 270: 0, 271: 0, **dict.fromkeys(range(173, 181), 0), 160: 0}
    for field in counters:
        nvml_stub.set_field(field, 1000)
    for link in range(2):
        for field in (161, 162, 163, 221):
            nvml_stub.set_field(field, 5, scope=link, kind=NARROW)
    collector = open_now()
    first = detail(collector)
    assert not [key for key in first if "throttle" in key or "nvlink.errors" in key]
    for field in counters:
        nvml_stub.set_field(field, 1000 + field)
    for link in range(2):
        for place, field in enumerate((161, 162, 163, 221)):
            nvml_stub.set_field(field, 6 + place, scope=link, kind=NARROW)
    found = detail(collector)
    collector.close()
    agree(
        found,
        {
            "nvidia.gpu.throttle.time{reason=sync_boost}": 76e-9,
            "nvidia.gpu.throttle.time{reason=board_limit}": 77e-9,
            "nvidia.gpu.throttle.time{reason=hw_power_brake}": 271e-9,
            "nvidia.gpu.pcie.errors{type=correctable}": 173,
            "nvidia.gpu.pcie.errors{type=nak_received}": 174,
            "nvidia.gpu.pcie.errors{type=fatal}": 180,
            "nvidia.gpu.nvlink.errors{type=replay}": 2 * 1,
            "nvidia.gpu.nvlink.errors{type=recovery}": 2 * 2,
            "nvidia.gpu.nvlink.errors{type=crc}": 2 * 3,
            "nvidia.gpu.nvlink.errors{type=symbol}": 2 * 4,
            "nvidia.gpu.nvlink.errors{type=ecc}": 160,
        },
    )


def test_links_of_older_chips_are_reported_in_sum(nvml_stub: NvmlStub) -> None:
    for field in (38, 45, 52, 59):
        nvml_stub.set_field(field, 1)
    collector = open_now()
    detail(collector)
    for field in (38, 45, 52, 59):
        nvml_stub.set_field(field, 3)
    found = detail(collector)
    collector.close()
    agree(found, {f"nvidia.gpu.nvlink.errors{{type={kind}}}": n for kind, n in (("crc", 4), ("replay", 2))})


def test_links_that_are_up_are_counted(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_switched(18)
    collector = open_now()
    agree(detail(collector), {"nvidia.gpu.nvlink.up": 18, "nvidia.gpu.nvlink.count": 18})
    nvml_stub.set_field(165, 0, scope=4, kind=NARROW)
    agree(detail(collector), {"nvidia.gpu.nvlink.up": 17, "nvidia.gpu.nvlink.count": 18})
    collector.close()


def test_power_samples_give_the_peak_between_two_reads(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_samples([(1_000_000, 300_000)], ring=POWER_RING)
    collector = open_now()
    assert "nvidia.gpu.power.sample{stat=max}" not in detail(collector)
    new = [(1_000_000 + 100_000 * i, 1000 * watts) for i, watts in enumerate([300, 200, 200, 900, 300])]
    nvml_stub.set_samples(new, ring=POWER_RING)
    expected = {"mean": 400.0, "min": 200.0, "max": 900.0, "p95": 900.0}
    found = detail(collector)
    collector.close()
    agree(found, {f"nvidia.gpu.power.sample{{stat={stat}}}": value for stat, value in expected.items()})


def _set(name: str, value: int) -> Callable[[NvmlStub], None]:
    return lambda stub: setattr(stub.gpu(), name, value)


def _field(field: int, value: int) -> Callable[[NvmlStub], None]:
    return lambda stub: stub.set_field(field, value)


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (_set("reasons", 0x4), "ok"),
        (_field(230, 1), "failed"),
        (_field(144, 1), "predicted_failure"),
        (_field(145, 1), "predicted_failure"),
        (_set("exceeded", 1), "predicted_failure"),
        (_set("reasons", 0x80), "degraded"),
        (_set("lost", GPU_IS_LOST), "failed"),
    ],
)
def test_status(nvml_stub: NvmlStub, change: Callable[[NvmlStub], None], state: str) -> None:
    collector = open_now()
    change(nvml_stub)
    found = detail(collector)
    collector.close()
    states = ("ok", "degraded", "failed", "predicted_failure")
    agree(found, {f"hw.status{{state={one}}}": float(one == state) for one in states})


def test_xids_are_counted_and_degrade(nvml_stub: NvmlStub) -> None:
    collector = open_now(EACH_TIME)
    detail(collector)
    for _ in range(3):
        nvml_stub.happen(XID, 31)
    seen = 0.0
    for _ in range(1000):
        collector.events()
        found = detail(collector)
        seen += found["nvidia.gpu.xid.events"]
        assert (found["hw.status{state=degraded}"] == 1) == (found["nvidia.gpu.xid.events"] > 0)
        if seen == 3:
            break
    collector.close()
    assert seen == 3


def test_values_that_were_rejected_are_counted(nvml_stub: NvmlStub) -> None:
    collector = open_now()
    detail(collector)
    nvml_stub.gpu().temperature = 2**31 - 1
    assert detail(collector)["flyball.agent.values{state=rejected}"] == 1
    assert detail(collector)["flyball.agent.values{state=rejected}"] == 1
    collector.close()


def test_a_gpu_that_reports_little_has_the_rest_empty(nvml_stub: NvmlStub) -> None:
    for call in ("fabric", "banks", "ecc", "sram", "threshold", "pcie", "mig", "gpm", "link", "reasons", "clock"):
        nvml_stub.set_result(call, NOT_SUPPORTED)
    nvml_stub.gpu().fields_used = 0
    collector = open_now()
    detail(collector)
    found = detail(collector)
    collector.close()
    assert {key for key in found if not key.startswith("hw.status")} == {
        "flyball.agent.read.duration",
        "flyball.agent.read.stalled",
        "flyball.agent.values{state=rejected}",
        "nvidia.gpu.xid.events",
    }
    assert nvml_stub.requests("banks") == 1
