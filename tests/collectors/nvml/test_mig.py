"""MIG: instances are devices, and come and go while the agent runs."""

import pytest
from tests.collectors.nvml.nvml_tools import EACH_TIME, S, agree, both, kinds, open_now, until
from tests.nvml_stub.stub import NOT_SUPPORTED, NvmlStub

from flyball_collectors.parameters import GpuParameters

MIG_CHANGED = 0x100
HALVES = [(1, 0, 3, 3), (2, 0, 3, 3)]


def test_instances_are_rows_below_their_gpu(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(2)
    nvml_stub.set_instances(HALVES)
    nvml_stub.gpu(0).instances[1].memory_used = 5 << 30
    collector = open_now()
    rows, details = both(collector)
    whole, first, second, other = collector.parts().devices
    collector.close()
    assert (whole.mig_enabled, whole.parent, other.mig_enabled) == (True, None, False)
    assert first.parent == second.parent == whole.id
    assert first.id.startswith("MIG-")
    assert (first.mig_profile, first.memory_bytes) == ("3g.40gb", (40 << 30) - (256 << 20))
    assert (first.index, first.pci_address) == (whole.index, whole.pci_address)
    assert (first.architecture, first.compute_capability) == ("hopper", "9.0")
    agree(rows[2], {"hw.gpu.memory.usage": 5 << 30, "nvidia.gpu.process.count": 0})
    assert "hw.power" in rows[0]
    assert "hw.power" not in rows[1]  # the board's power is not divided by the driver
    assert "hw.gpu.utilization{task=general}" not in rows[0]
    agree(details[0], {"nvidia.gpu.mig.slices{state=used}": 6, "nvidia.gpu.mig.slices{state=free}": 1})
    agree(details[1], {"nvidia.gpu.mig.slices{state=used}": 3})


@pytest.mark.parametrize(
    ("instance", "profile"),
    [((1, 0, 7, 7), "7g.80gb"), ((1, 0, 1, 1), "1g.10gb"), ((1, 0, 3, 1), "1c.3g.40gb"), ((1, 0, 2, 2), "2g.20gb")],
)
def test_profiles_have_nvidia_s_names(nvml_stub: NvmlStub, instance: tuple[int, int, int, int], profile: str) -> None:
    nvml_stub.set_instances([instance])
    collector = open_now()
    both(collector)
    assert collector.parts().devices[1].mig_profile == profile
    collector.close()


def test_activity_of_an_instance_comes_through_its_gpu(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_instances([(1, 0, 3, 3), (3, 0, 3, 1), (3, 1, 3, 2)])
    collector = open_now()
    rows, details = until(collector, lambda rows, details: "nvidia.gpu.sm.activity" in rows[1])
    collector.close()
    agree(rows[1], {"nvidia.gpu.sm.activity": 0.10 / 2, "hw.gpu.utilization{task=general}": 0.05 / 2})
    agree(details[1], {"nvidia.gpu.tensor.activity{pipe=hmma}": 0.35 / 2})
    for sharing in rows[2:]:  # two compute instances in one GPU instance: whose it is cannot be determined
        assert "nvidia.gpu.sm.activity" not in sharing


def test_processes_are_reported_by_instance(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_instances(HALVES)
    nvml_stub.set_processes([(11, 1 << 30, 0, 0), (12, 2 << 30, 0, 0)], instance=0)
    nvml_stub.set_processes([(13, 3 << 30, 0, 0)], instance=1)
    nvml_stub.set_processes([(11, 1 << 30, 0, 0), (12, 2 << 30, 0, 0), (13, 3 << 30, 0, 0)])
    collector = open_now()
    rows, _ = both(collector)
    processes = collector.processes()
    devices = collector.parts().devices
    collector.close()
    assert [(one.device, one.pid, one.memory_bytes) for one in processes] == [
        (devices[1].id, 11, 1 << 30),
        (devices[1].id, 12, 2 << 30),
        (devices[2].id, 13, 3 << 30),
    ]
    assert all(one.sm_share != one.sm_share for one in processes)
    assert [row["nvidia.gpu.process.count"] for row in rows] == [3, 2, 1]


def test_a_gpu_is_divided_and_made_whole_again_while_the_agent_runs(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(2)
    collector = open_now()
    both(collector)
    nvml_stub.set_field(83, 1_500_000, gpu=1)
    nvml_stub.set_instances(HALVES)
    rows, _ = both(collector)
    assert [device.parent is None for device in collector.parts().devices] == [True, False, False, True]
    assert rows[3]["hw.energy"] == 500  # the other GPU's counters go on
    (event,) = collector.events()
    assert (event.kind, event.device) == ("mig_changed", collector.parts().devices[0].id)
    assert event.message == "MIG instances: 3g.40gb, 3g.40gb"
    nvml_stub.set_instances(HALVES[:1])
    assert len(both(collector)[0]) == 3
    nvml_stub.undivide()
    rows, _ = both(collector)
    assert len(rows) == 2
    assert rows[0]["hw.gpu.utilization{task=general}"] == 0.5  # what the divided GPU refused is requested again
    assert [event.message for event in collector.events()] == ["MIG instances: 3g.40gb", "MIG is off"]
    collector.close()


def test_the_driver_s_event_brings_the_instances_at_once(nvml_stub: NvmlStub) -> None:
    collector = open_now(GpuParameters(detail_period_s=1e9))
    assert len(collector.read(S, S)) == 2
    nvml_stub.set_instances(HALVES)
    nvml_stub.happen(MIG_CHANGED, 0)
    events = collector.events()
    for _ in range(2000):
        (reading,) = collector.read(S, S)
        assert len(reading.values) == len(collector.parts().devices)
        events += collector.events()
        if events:
            break
    collector.close()
    assert kinds(events) == ["mig_changed"]
    assert len(collector.parts().devices) == 3


def test_an_instance_that_is_deleted_between_two_looks_is_a_row_without_values(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_instances(HALVES)
    collector = open_now(GpuParameters(detail_period_s=1e9))
    collector.read(S, S)
    nvml_stub.set_instances(HALVES[:1])
    (reading,) = collector.read(S, S)
    assert len(reading.values) == len(collector.parts().devices) == 3
    assert reading.values[2][8] != reading.values[2][8]  # memory in use
    assert reading.values[1][8] == 0
    collector.close()


def test_a_uuid_that_is_used_again_for_another_place_is_another_reader(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_instances(HALVES)
    collector = open_now()
    both(collector)
    old = nvml_stub.gpu().instances[0].uuid
    nvml_stub.set_instances([(5, 0, 1, 1)])
    nvml_stub.gpu().instances[0].uuid = old
    both(collector)
    assert [device.mig_profile for device in collector.parts().devices] == [None, "1g.10gb"]
    collector.close()


def test_chips_without_mig_are_queried_once_only(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_result("mig", NOT_SUPPORTED)
    collector = open_now(EACH_TIME)
    for _ in range(5):
        both(collector)
    collector.close()
    assert nvml_stub.requests("mig") <= 2
