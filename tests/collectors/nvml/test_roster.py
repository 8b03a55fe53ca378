"""GPUs that come and go while the agent runs: rows, inventory and events change together."""

import time
from pathlib import Path

from tests.collectors.nvml.nvml_tools import both, kinds, open_now
from tests.nvml_stub.stub import GPU_IS_LOST, NvmlStub


def test_a_gpu_is_added_and_taken_away(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(2)
    collector = open_now()
    both(collector)
    nvml_stub.set_field(83, 1_250_000)
    nvml_stub.set_gpus(3)
    nvml_stub.set_field(83, 1_250_000)
    rows, _ = both(collector)
    assert len(rows) == 3
    assert rows[0]["hw.energy"] == 250  # the others' counters go on
    assert "hw.energy" not in rows[2]
    (event,) = collector.events()
    assert (event.kind, event.device) == ("device_added", collector.parts().devices[2].id)
    nvml_stub.state.count = 2
    assert len(both(collector)[0]) == 2
    (event,) = collector.events()
    assert (event.kind, event.severity) == ("device_lost", "critical")
    collector.close()


def test_a_gpu_that_is_replaced_by_another_keeps_neither_name_nor_counters(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(3)
    collector = open_now()
    both(collector)
    ids = [device.id for device in collector.parts().devices]
    nvml_stub.state.count = 2
    nvml_stub.gpu(0).uuid = ids[2].encode()  # the first is gone, and the last has its index now
    rows, _ = both(collector)
    assert [device.id for device in collector.parts().devices] == [ids[2], ids[1]]
    assert [(event.kind, event.device) for event in collector.events()] == [("device_lost", ids[0])]
    assert len(rows) == 2
    collector.close()


def test_a_lost_gpu_keeps_its_row_while_others_come(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(2)
    collector = open_now()
    both(collector)
    nvml_stub.gpu(0).lost = GPU_IS_LOST
    both(collector)
    collector.events()
    nvml_stub.state.count = 3
    nvml_stub.gpu(2).uuid = b"GPU-new"
    rows, details = both(collector)
    assert rows[0] == {}
    assert details[0]["hw.status{state=failed}"] == 1
    assert [device.id for device in collector.parts().devices][2] == "GPU-new"
    assert kinds(collector.events()) == ["device_added"]
    collector.close()


def test_a_gpu_that_was_unreadable_gets_a_row_when_it_answers(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(2)
    nvml_stub.gpu(0).lost = GPU_IS_LOST
    collector = open_now()
    assert len(both(collector)[0]) == 1
    assert len(both(collector)[0]) == 1
    assert kinds(collector.events()) == ["device_lost"]
    nvml_stub.gpu(0).lost = 0
    assert len(both(collector)[0]) == 2
    assert [device.index for device in collector.parts().devices] == [0, 1]
    assert kinds(collector.events()) == ["device_added"]
    collector.close()


def test_the_inventory_is_the_same_object_while_nothing_changes(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(8)
    collector = open_now()
    both(collector)
    parts = collector.parts()
    for _ in range(3):
        both(collector)
        assert collector.parts() is parts
    collector.close()


def test_nvml_begins_anew_when_the_kernel_has_other_gpus(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    """NVML only knows the GPUs that were there when it began; the driver in the kernel lists all."""
    listed = tmp_path / "proc/driver/nvidia/gpus"
    (listed / "0000:10:00.0").mkdir(parents=True)
    nvml_stub.state.fixed = 1
    collector = open_now(root=tmp_path)
    both(collector)
    nvml_stub.set_field(83, 1_250_000)
    nvml_stub.set_gpus(2)
    nvml_stub.set_field(83, 1_250_000)
    assert len(both(collector)[0]) == 1
    (listed / "0000:11:00.0").mkdir()
    rows, _ = both(collector)
    assert [device.index for device in collector.parts().devices] == [0, 1]
    assert "hw.energy" not in rows[1]
    assert kinds(collector.events()) == ["device_added"]
    assert collector.watch.reason == ""
    nvml_stub.happen(8, 79, gpu=1)
    deadline = time.monotonic() + 10
    while not collector.watch.counts() and time.monotonic() < deadline:
        time.sleep(0.01)
    (event,) = collector.events()
    assert (event.code, event.device) == (79, collector.parts().devices[1].id)
    collector.close()


def test_nvml_that_does_not_begin_again_is_tried_until_it_does(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    listed = tmp_path / "proc/driver/nvidia/gpus"
    (listed / "0000:10:00.0").mkdir(parents=True)
    collector = open_now(root=tmp_path)
    both(collector)
    nvml_stub.state.init = 9
    nvml_stub.state.count = 0
    (listed / "0000:10:00.0").rmdir()
    assert collector.read(1, 1_000_000_000) == []
    assert kinds(collector.events()) == ["device_lost"]
    nvml_stub.state.init = 0
    nvml_stub.state.count = 1
    assert collector.parts().devices == ()
    assert len(both(collector)[0]) == 1
    assert kinds(collector.events()) == ["device_added"]
    collector.close()


def test_nvml_begins_again_for_the_same_gpus_too(nvml_stub: NvmlStub, tmp_path: Path) -> None:
    """The driver is reloaded: its list is empty for a while, and then what it was, before NVML can begin."""
    gpu = tmp_path / "proc/driver/nvidia/gpus/0000:10:00.0"
    gpu.mkdir(parents=True)
    collector = open_now(root=tmp_path)
    both(collector)
    nvml_stub.state.init = 9
    nvml_stub.state.count = 0
    gpu.rmdir()
    assert collector.read(1, 1_000_000_000) == []
    assert kinds(collector.events()) == ["device_lost"]
    gpu.mkdir()
    assert collector.read(1, 1_000_000_000) == []
    nvml_stub.state.init = 0
    nvml_stub.state.count = 1
    assert collector.parts().devices == ()
    assert len(both(collector)[0]) == 1
    assert kinds(collector.events()) == ["device_added"]
    asked = nvml_stub.requests("serial")
    both(collector)
    assert nvml_stub.requests("serial") == asked  # once is enough
    collector.close()


def test_a_gpu_that_is_reset_in_place_comes_back(nvml_stub: NvmlStub) -> None:
    """After a reset only a new session of NVML sees the GPU; the others' handles change with it, and nothing else."""
    nvml_stub.set_gpus(2)
    collector = open_now()
    both(collector)
    parts = collector.parts()
    nvml_stub.gpu(1).was_reset = 1
    assert both(collector)[0][1] == {}
    assert kinds(collector.events()) == ["device_lost"]
    rows, _ = [both(collector) for _ in range(3)][-1]
    assert rows[1]["hw.temperature{sensor=gpu}"] == 45
    assert rows[0]["hw.temperature{sensor=gpu}"] == 45
    assert kinds(collector.events()) == ["device_added"]
    assert [device.id for device in collector.parts().devices] == [device.id for device in parts.devices]
    nvml_stub.happen(8, 79, gpu=1)
    deadline = time.monotonic() + 10
    while not collector.watch.counts() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [event.code for event in collector.events()] == [79]
    collector.close()


def test_a_gpu_that_stays_lost_keeps_its_row_and_is_tried_ever_less_often(nvml_stub: NvmlStub) -> None:
    nvml_stub.set_gpus(2)
    collector = open_now()
    both(collector)
    nvml_stub.gpu(1).lost = GPU_IS_LOST
    for _ in range(40):
        rows, details = both(collector)
        assert rows[1] == {}
        assert rows[0]["hw.temperature{sensor=gpu}"] == 45
        assert details[1]["hw.status{state=failed}"] == 1
    assert kinds(collector.events()) == ["device_lost"]
    assert nvml_stub.requests("serial", gpu=0) == 1 + 5  # a new session after 2, 5, 10, 19 and 36 looks
    nvml_stub.gpu(1).lost = 0
    rows, _ = [both(collector) for _ in range(40)][-1]
    assert rows[1]["hw.temperature{sensor=gpu}"] == 45
    collector.close()
