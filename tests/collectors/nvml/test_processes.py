"""Processes: who is there, with how much memory, and what share of the time each kept the SMs busy."""

from math import isnan

from tests.collectors.nvml.nvml_tools import both, open_now
from tests.nvml_stub.stub import BOTH, COMPUTES, DRAWS, MPS, NOT_SUPPORTED, NvmlStub

from flyball_collectors.nvml import NvmlCollector
from flyball_collectors.parameters import GpuParameters

GIB = 1 << 30


def shares(collector: NvmlCollector) -> dict[int, tuple[float, float]]:
    both(collector)
    return {one.pid: (one.sm_share, one.memory_bytes) for one in collector.processes()}


def test_shares_are_those_since_the_read_before(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_processes([(1, GIB, 80, 1000), (2, 2 * GIB, 10, 1000)])
    collector = open_now()
    first = shares(collector)  # what the driver has then is older than the agent
    assert [(pid, isnan(share), held) for pid, (share, held) in first.items()] == [(1, True, GIB), (2, True, 2 * GIB)]
    nvml_stub.set_processes([(1, GIB, 60, 2000), (2, 2 * GIB, 10, 1000), (3, GIB, 30, 2000)])
    assert shares(collector) == {1: (0.6, GIB), 2: (0.0, 2 * GIB), 3: (0.3, GIB)}
    collector.close()


def test_no_new_sample_is_unknown_on_a_busy_gpu_and_nothing_on_an_idle_one(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_processes([(1, GIB, 60, 2000)])
    collector = open_now()
    shares(collector)
    assert isnan(shares(collector)[1][0])
    nvml_stub.gpu().utilization = 0
    assert shares(collector)[1] == (0.0, GIB)
    collector.close()


def test_a_process_that_ended_keeps_its_share_of_the_last_period(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_processes([(1, GIB, 60, 1000), (2, GIB, 20, 1000)])
    collector = open_now()
    shares(collector)
    nvml_stub.set_processes([(1, GIB, 60, 2000), (2, 0, 20, 2000)])
    found = shares(collector)
    assert found[1] == (0.6, GIB)
    assert (found[2][0], isnan(found[2][1])) == (0.2, True)
    nvml_stub.set_processes([(1, GIB, 60, 3000), (2, 0, 20, 2000)])
    assert shares(collector) == {1: (0.6, GIB)}
    collector.close()


def test_shares_come_again_after_the_clock_was_set_back(nvml_stub: NvmlStub) -> None:
    hour_us = 3_600_000_000
    nvml_stub.set_processes([(1, GIB, 60, 8 * hour_us)])
    collector = open_now()
    shares(collector)
    nvml_stub.set_processes([(1, GIB, 60, 8 * hour_us + 1000)])
    assert shares(collector)[1][0] == 0.6
    found: list[float] = []
    for read in range(1, 25):
        nvml_stub.set_processes([(1, GIB, 40, 1000 * read)])
        found.append(shares(collector)[1][0])
    assert isnan(found[0])
    assert found[-10:] == [0.4] * 10
    collector.close()


def test_several_samples_of_one_process_are_averaged_and_garbage_is_left_out(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_processes([(1, GIB, 1, 1000)])
    collector = open_now()
    shares(collector)
    nvml_stub.set_processes([(1, GIB, 60, 2000), (1, 0, 40, 2500), (1, 0, 4_000_000, 2600)])
    assert shares(collector) == {1: (0.5, GIB)}
    collector.close()


def test_many_processes_and_more_than_there_was_room_for(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_processes([(pid, GIB, 1, 1000) for pid in range(1, 61)])
    collector = open_now()
    assert len(shares(collector)) == 60
    nvml_stub.set_processes([(pid, GIB, 1, 2000) for pid in range(1, 61)])
    found = shares(collector)
    assert set(found.values()) == {(0.01, GIB)}
    collector.close()


def test_memory_that_is_not_reported_is_unknown(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_processes([(1, 2**64 - 1, 0, 0)])
    collector = open_now()
    assert isnan(shares(collector)[1][1])
    collector.close()


def test_without_the_calls_nobody_is_known(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_processes([(1, GIB, 1, 1000)])
    nvml_stub.set_result("process_utilization", NOT_SUPPORTED)
    collector = open_now()
    assert [(pid, isnan(share)) for pid, (share, _) in shares(collector).items()] == [(1, True)]
    nvml_stub.set_result("processes", NOT_SUPPORTED)
    assert shares(collector) == {}
    (row,) = both(collector)[0]
    assert "nvidia.gpu.process.count" not in row
    collector.close()


def test_clients_of_mps_and_programs_that_draw_are_there_too(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_processes([(1, GIB, 60, 1000), (2, GIB, 20, 1000), (3, GIB, 5, 1000), (4, GIB, 5, 1000)])
    for place, does in enumerate((COMPUTES, MPS, DRAWS, BOTH)):
        nvml_stub.gpu().processes[place].does = does
    collector = open_now()
    (row,) = both(collector)[0]
    assert row["nvidia.gpu.process.count"] == 3  # those that compute: itself, through MPS, and the one that draws too
    assert {one.pid: one.memory_bytes for one in collector.processes()} == dict.fromkeys((1, 2, 3, 4), GIB)
    collector.close()


def test_lists_that_are_empty_are_looked_at_with_the_details_only(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_processes([(1, GIB, 60, 1000)])
    collector = open_now(GpuParameters())
    for _ in range(12):
        collector.read(0, 1_000_000_000)
    assert nvml_stub.requests("processes") == 12
    assert nvml_stub.requests("mps") == nvml_stub.requests("graphics") == 2
    nvml_stub.gpu().processes[0].does = MPS
    for _ in range(12):
        collector.read(0, 1_000_000_000)
    assert nvml_stub.requests("mps") > 4
    assert [one.pid for one in collector.processes()] == [1]
    collector.close()
