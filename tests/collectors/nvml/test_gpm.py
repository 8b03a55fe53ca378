"""Activity from GPM, between samples that are far enough apart."""

from tests.collectors.nvml.nvml_tools import agree, both, open_now, until
from tests.nvml_stub.stub import NOT_SUPPORTED, NvmlStub

ACTIVITY = {
    "nvidia.gpu.graphics.activity": 0.05,
    "nvidia.gpu.sm.activity": 0.10,
    "nvidia.gpu.sm.occupancy": 0.15,
    "nvidia.gpu.int.activity": 0.20,
    "nvidia.gpu.tensor.activity": 0.25,
    "nvidia.gpu.dram.bandwidth.utilization": 0.50,
    "nvidia.gpu.fp.activity{precision=64}": 0.55,
    "nvidia.gpu.fp.activity{precision=32}": 0.60,
    "nvidia.gpu.fp.activity{precision=16}": 0.65,
}
DETAIL = {
    "nvidia.gpu.tensor.activity{pipe=dfma}": 0.30,
    "nvidia.gpu.tensor.activity{pipe=hmma}": 0.35,
    "nvidia.gpu.tensor.activity{pipe=imma}": 0.45,
}
ELAPSED = "nvidia.gpu.sm.cycles{state=elapsed}"


def test_shares_are_of_one_and_cycles_are_counted(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(2)
    nvml_stub.gpu(1).gpm = 0
    collector = open_now()
    rows, details = until(collector, lambda rows, details: "nvidia.gpu.sm.activity" in rows[0])
    agree(rows[0], ACTIVITY)
    agree(details[0], DETAIL)
    assert not {*ACTIVITY, *DETAIL, ELAPSED} & {*rows[1], *details[1]}
    assert [("gpm" in device.capabilities) for device in collector.parts().devices] == [True, False]
    collector.close()


def test_two_reads_in_quick_succession_do_not_query(nvml_stub: NvmlStub) -> None:
    """The stand-in refuses samples that are too close; what it refuses is counted as an error of the gate."""
    collector = open_now()
    for _ in range(50):
        both(collector)
    assert not collector.readers[0].gate.errors
    collector.close()


def test_an_older_driver_without_the_counters_still_reports_the_shares(nvml_stub: NvmlStub) -> None:
    nvml_stub.gpu().gpm_highest = 97
    collector = open_now()
    rows, details = until(collector, lambda rows, details: "nvidia.gpu.sm.activity" in rows[0])
    agree(rows[0], ACTIVITY)
    assert ELAPSED not in details[0]
    collector.close()


def test_one_metric_that_is_not_to_be_had_costs_itself_alone(nvml_stub: NvmlStub) -> None:
    nvml_stub.gpu().gpm_value[11] = -1
    collector = open_now()
    rows, _ = until(collector, lambda rows, details: "nvidia.gpu.sm.activity" in rows[0])
    collector.close()
    assert "nvidia.gpu.fp.activity{precision=64}" not in rows[0]
    assert "nvidia.gpu.fp.activity{precision=32}" in rows[0]


def test_utilisation_of_the_driver_stands_before_gpm_s(nvml_stub: NvmlStub) -> None:
    collector = open_now()
    rows, _ = until(collector, lambda rows, details: "nvidia.gpu.graphics.activity" in rows[0])
    assert rows[0]["hw.gpu.utilization{task=general}"] == 0.5
    nvml_stub.set_result("utilization", NOT_SUPPORTED)
    rows, _ = until(collector, lambda rows, details: "nvidia.gpu.graphics.activity" in rows[0])
    agree(rows[0], {"hw.gpu.utilization{task=general}": 0.05})
    collector.close()
