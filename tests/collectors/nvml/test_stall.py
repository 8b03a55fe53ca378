"""A call that does not come back costs its own GPU alone."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.collectors.nvml.nvml_tools import S, kinds, open_now
from tests.nvml_stub.stub import NvmlStub

from flyball_collectors.nvml import NvmlCollector
from flyball_collectors.nvml.calls.workers import Workers
from flyball_collectors.parameters import GpuParameters
from flyball_contracts.metrics import GPU, GPU_DETAIL
from flyball_contracts.records import NodeEvent

POWER = GPU.column("hw.power")
OK = GPU_DETAIL.column("hw.status{state=ok}")
FAILED = GPU_DETAIL.column("hw.status{state=failed}")
STALLED = GPU_DETAIL.column("flyball.agent.read.stalled")
PERIOD_NS = S


@pytest.fixture
def stub(nvml_stub: NvmlStub) -> Iterator[NvmlStub]:
    """A node whose GPUs all answer in the end."""
    yield nvml_stub
    nvml_stub.state.starting = 0
    for index in range(72):
        nvml_stub.gpu(index).hung = 0


def ticks(collector: NvmlCollector, done: Callable[[list[NodeEvent], np.ndarray | None], bool]) -> list[NodeEvent]:
    """Tick like the agent until something is so; by details and events so far."""
    events: list[NodeEvent] = []
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        readings = collector.read(S, PERIOD_NS)
        events += collector.events()
        for reading in readings:
            assert len(reading.values) == len(collector.parts().devices)
        details = [reading.values for reading in readings if reading.schema == GPU_DETAIL.schema]
        if done(events, details[0] if details else None):
            return events
        time.sleep(0.01)
    raise AssertionError(kinds(events))


@pytest.mark.parametrize("hung", [[0], [3], [0, 1, 2, 3]])
def test_a_hung_gpu_stalls_alone_and_comes_back(stub: NvmlStub, hung: list[int]) -> None:
    stub.set_gpus(4)
    collector = open_now(GpuParameters(detail_period_s=1e9, stalled_after_s=0.5))
    collector.read(S, PERIOD_NS)
    names = [device.id for device in collector.parts().devices]
    for index in hung:
        stub.gpu(index).hung = 1
    (reading,) = collector.read(S, PERIOD_NS)
    assert [bool(np.isnan(row).all()) for row in reading.values] == [index in hung for index in range(4)]

    def reported(events: list[NodeEvent], details: np.ndarray | None) -> bool:
        return len(events) == len(hung)

    (_, detail) = collector.read(S, PERIOD_NS)  # the state of a GPU changed, so the details are sent at once
    assert detail.values[:, STALLED].tolist() == [float(index in hung) for index in range(4)]
    events = ticks(collector, reported)
    assert kinds(events) == ["device_stalled"] * len(hung)
    assert [event.device for event in events] == [names[index] for index in hung]
    for index in hung:
        stub.gpu(index).hung = 0
    events = ticks(collector, reported)
    assert kinds(events) == ["device_added"] * len(hung)
    for _ in range(200):
        reading = collector.read(S, PERIOD_NS)[0]
        if not np.isnan(reading.values[:, POWER]).any():
            break
    assert reading.values[:, POWER].tolist() == [300.0] * 4
    collector.close()


def test_a_hung_gpu_is_reported_within_five_seconds_by_default(stub: NvmlStub) -> None:
    assert GpuParameters().stalled_after_s + 2 * 1.0 < 5  # the limit, and two periods of the default length at most


def test_a_gpu_that_hangs_from_the_start_has_no_row_until_it_answers(
    stub: NvmlStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flyball_collectors.nvml.devices.roster._PATIENCE_S", 0.2)
    stub.set_gpus(3)
    stub.gpu(1).hung = 1
    collector = open_now(GpuParameters(detail_period_s=1e-9))
    assert [device.index for device in collector.parts().devices] == [0, 2]
    assert collector.unreadable == ["GPU 1: it does not answer"]
    (_, detail) = collector.read(S, PERIOD_NS)
    assert len(detail.values) == 2
    assert kinds(collector.events()) == ["device_lost"]
    stub.gpu(1).hung = 0
    events = ticks(collector, lambda events, details: len(collector.parts().devices) == 3)
    assert kinds(events) == ["device_added"]
    assert [device.index for device in collector.parts().devices] == [0, 1, 2]
    collector.close()


def test_a_collector_with_a_hung_gpu_closes(stub: NvmlStub) -> None:
    stub.set_gpus(2)
    collector = open_now()
    stub.gpu(0).hung = 1
    collector.read(S, PERIOD_NS)
    collector.close()
    stub.gpu(0).hung = 0


class SlowStart:
    """Two GPUs, the second lost so that NVML begins again, which it does not get done in time."""

    def __init__(self, stub: NvmlStub, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        monkeypatch.setattr("flyball_collectors.nvml.devices.roster._PATIENCE_S", 0.2)
        stub.set_gpus(2)
        self.stub = stub
        self.collector = open_now(GpuParameters(detail_period_s=1e-9), root)
        self.collector.read(S, PERIOD_NS)
        self.ids = [device.id for device in self.collector.parts().devices]
        stub.gpu(1).was_reset = 1
        self.collector.read(S, PERIOD_NS)
        assert kinds(self.collector.events()) == ["device_lost"]
        stub.state.starting = 1

    def silent(self) -> list[NodeEvent]:
        """Read until no row has a value, and a while longer."""
        events: list[NodeEvent] = []
        empty = 0
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            current, detail = self.collector.read(S, PERIOD_NS)
            events += self.collector.events()
            empty = empty + 1 if np.isnan(current.values).all() else 0
            assert [device.id for device in self.collector.parts().devices] == self.ids
            if empty == 5:
                assert detail.values[:, STALLED].tolist() == [1.0, 1.0]
                assert np.isnan(detail.values[0, OK])
                assert detail.values[1, FAILED] == 1.0
                return events
        raise AssertionError("NVML was not started again")


@pytest.fixture
def slow(stub: NvmlStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SlowStart]:
    made = SlowStart(stub, monkeypatch, tmp_path)
    yield made
    stub.state.starting = 0
    made.collector.close()


def has_power(collector: NvmlCollector, index: int) -> bool:
    assert collector.latest is not None
    return not np.isnan(collector.latest.values[index, POWER])


def test_gpus_keep_their_rows_while_nvml_takes_long_to_begin_again(slow: SlowStart) -> None:
    assert slow.silent() == []
    slow.stub.state.starting = 0
    events = ticks(slow.collector, lambda events, details: bool(events))
    assert [(event.kind, event.device) for event in events] == [("device_added", slow.ids[1])]
    assert [device.id for device in slow.collector.parts().devices] == slow.ids
    assert [has_power(slow.collector, index) for index in range(2)] == [True, True]


def test_a_gpu_that_was_added_comes_once_nvml_has_begun(
    stub: NvmlStub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("flyball_collectors.nvml.devices.roster._PATIENCE_S", 0.2)
    listed = tmp_path / "proc/driver/nvidia/gpus"
    (listed / "0000:10:00.0").mkdir(parents=True)
    stub.state.fixed = 1
    collector = open_now(GpuParameters(detail_period_s=1e-9), tmp_path)
    collector.read(S, PERIOD_NS)
    stub.state.starting = 1
    stub.set_gpus(2)
    (listed / "0000:11:00.0").mkdir()
    for _ in range(5):
        collector.read(S, PERIOD_NS)
        assert len(collector.parts().devices) == 1
    assert collector.events() == []
    stub.state.starting = 0
    events = ticks(collector, lambda events, details: len(collector.parts().devices) == 2)
    assert kinds(events) == ["device_added"]
    assert events[0].device == collector.parts().devices[1].id
    assert [has_power(collector, index) for index in range(2)] == [True, True]
    collector.close()


def test_gpus_stall_where_nvml_takes_far_too_long_to_begin_again(
    slow: SlowStart, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flyball_collectors.nvml.collector._SESSION_PATIENCE_S", 0.1)
    events = [*slow.silent(), *ticks(slow.collector, lambda events, details: True)]
    assert [(event.kind, event.device) for event in events] == [("device_stalled", id_) for id_ in slow.ids]
    slow.stub.state.starting = 0
    events = ticks(slow.collector, lambda events, details: has_power(slow.collector, 1))
    assert set(kinds(events)) == {"device_added"}
    assert {event.device for event in events} == set(slow.ids)


def test_a_gpu_that_hangs_as_nvml_begins_again_stalls_alone(slow: SlowStart) -> None:
    slow.silent()
    slow.stub.gpu(0).hung = 1
    slow.stub.state.starting = 0
    ticks(slow.collector, lambda events, details: has_power(slow.collector, 1))
    assert not has_power(slow.collector, 0)
    assert [device.id for device in slow.collector.parts().devices] == slow.ids
    slow.stub.gpu(0).hung = 0
    ticks(slow.collector, lambda events, details: all(has_power(slow.collector, index) for index in range(2)))


def test_jobs_run_in_one_thread_while_all_is_well() -> None:
    workers = Workers()
    threads = {
        thread
        for _ in range(3)
        for thread in workers.run({"a": threading.get_ident, "b": threading.get_ident}, 5).values()
    }
    workers.close()
    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def test_jobs_behind_a_stuck_one_go_on_and_it_is_left_alone_until_it_is_back() -> None:
    workers = Workers()
    go_on = threading.Event()
    jobs: dict[str, Callable[[], object]] = {"a": lambda: 1, "b": go_on.wait, "c": lambda: 3, "d": lambda: 4}
    assert workers.run(jobs, 0.1) == {"a": 1, "c": 3, "d": 4}
    assert set(workers.stuck()) == {"b"}
    assert workers.stuck()["b"] > 0
    again: dict[str, Callable[[], object]] = {"a": lambda: 5, "b": lambda: 6}
    assert workers.run(again, 5) == {"a": 5}
    go_on.set()
    deadline = time.monotonic() + 20
    while workers.stuck() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert workers.run(again, 5) == {"a": 5, "b": 6}
    workers.close()


def test_a_job_that_raises_costs_its_own_result_alone(caplog: pytest.LogCaptureFixture) -> None:
    workers = Workers()
    jobs: dict[str, Callable[[], object]] = {"a": lambda: 1 / 0, "b": lambda: 2}
    assert workers.run(jobs, 5) == {"b": 2}
    assert "reading a failed" in caplog.text
    assert workers.run({"a": lambda: 1}, 5) == {"a": 1}
    workers.close()


def test_no_jobs_and_a_second_close_are_nothing() -> None:
    workers = Workers()
    assert workers.run({}, 5) == {}
    workers.close()
    workers.close()
