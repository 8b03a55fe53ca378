"""How GPUs are connected, and what they can measure, in the inventory."""

import pytest
from tests.collectors.nvml.nvml_tools import both, open_now
from tests.nvml_stub.stub import NARROW, NOT_SUPPORTED, NvmlStub

from flyball_contracts.records.inventory import Device, Link


def devices_of(stub: NvmlStub) -> tuple[Device, ...]:
    collector = open_now()
    both(collector)
    devices = collector.parts().devices
    collector.close()
    return devices


def test_a_switch_connects_all_with_all(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(8)
    nvml_stub.set_switched(18)
    for row, device in enumerate(devices_of(nvml_stub)):
        assert [link.peer for link in device.links] == [peer for peer in range(8) if peer != row]
        assert set(device.links) == {
            Link(peer=link.peer, kind="nvswitch", bandwidth_bytes_per_s=450e9, distance="node", count=18)
            for link in device.links
        }


def test_direct_links_are_counted_by_peer(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(3)
    nvml_stub.connect(0, 1, 4)
    nvml_stub.connect(0, 2, 2, first=4)
    nvml_stub.gpu(0).common_ancestor = 10
    nvml_stub.gpu(1).common_ancestor = 10
    nvml_stub.gpu(2).common_ancestor = 50
    devices = devices_of(nvml_stub)
    assert devices[0].links == (
        Link(peer=1, kind="nvlink", bandwidth_bytes_per_s=100e9, distance="single", count=4),
        Link(peer=2, kind="nvlink", bandwidth_bytes_per_s=50e9, distance="system", count=2),
    )
    assert devices[1].links[1] == Link(peer=2, kind="pcie", bandwidth_bytes_per_s=3.938e9 * 16, distance="system")


def test_without_nvlink_the_way_is_pcie_of_the_slower_end(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(2)
    nvml_stub.gpu(1).pcie[:] = (3, 3, 8, 8)
    first, second = devices_of(nvml_stub)
    assert first.links == (Link(peer=1, kind="pcie", bandwidth_bytes_per_s=0.985e9 * 8, distance="node"),)
    assert second.links[0].peer == 0


def test_links_follow_the_rows_when_a_gpu_is_divided(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(2)
    collector = open_now()
    both(collector)
    nvml_stub.set_instances([(1, 0, 3, 3), (2, 0, 3, 3)])
    both(collector)
    first, *instances, last = collector.parts().devices
    collector.close()
    assert [link.peer for link in first.links] == [3]
    assert [link.peer for link in last.links] == [0]
    assert all(not instance.links for instance in instances)


@pytest.mark.parametrize("call", ["link", "topology", "pcie"])
def test_what_is_not_reported_is_left_out(nvml_stub: NvmlStub, call: str) -> None:
    nvml_stub.set_gpus(2)
    nvml_stub.set_switched(2)
    for gpu in range(2):
        nvml_stub.set_result(call, NOT_SUPPORTED, gpu=gpu)
    (link,) = devices_of(nvml_stub)[0].links
    assert link.kind == ("pcie" if call == "link" else "nvswitch")
    assert link.distance == (None if call == "topology" else "node")


def test_who_the_gpu_is_and_what_it_can_measure(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(2)
    nvml_stub.set_switched(1)
    nvml_stub.set_field(1, 1, kind=NARROW)
    nvml_stub.set_samples([(1_000_000, 50)])
    second = nvml_stub.gpu(1)
    second.gpm, second.architecture, second.capability[:] = 0, 7, (8, 0)
    nvml_stub.set_field(83, 0, gpu=1, result=NOT_SUPPORTED)
    hopper, ampere = devices_of(nvml_stub)
    assert (hopper.architecture, hopper.compute_capability) == ("hopper", "9.0")
    assert hopper.capabilities == ("gpm", "samples", "energy", "nvlink", "ecc")
    assert (ampere.architecture, ampere.compute_capability, ampere.capabilities) == ("ampere", "8.0", ("nvlink",))


def test_a_power_cap_is_reported_at_once(nvml_stub: NvmlStub) -> None:
    collector = open_now()
    both(collector)
    assert collector.parts().devices[0].power_limit_w == 700
    nvml_stub.gpu().limit_mw = 450_000
    both(collector)
    assert collector.parts().devices[0].power_limit_w == 450
    collector.close()


def test_seventy_two_gpus_are_all_connected(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(72)
    nvml_stub.set_switched(18)
    devices = devices_of(nvml_stub)
    assert {len(device.links) for device in devices} == {71}
