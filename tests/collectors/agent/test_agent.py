"""The agent's loop, on the embedded broker and without any."""

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from tests.collectors.agent.agent_tools import START_NS, TOPICS, FakeTime, S, StartBroker, receive
from tests.nvml_stub.stub import NvmlStub

from flyball_collectors.agent import AgentReport, read_once, run_agent
from flyball_collectors.base import Parts, Reading
from flyball_contracts.config import AgentConfig, Config, KafkaConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.metrics import GPU, HOST
from flyball_contracts.records import Device, NodeEvent
from flyball_contracts.records.events import node_event

INIT_PRODUCER_ID, CLUSTER_AUTHORIZATION_FAILED = 22, 31  # of the Kafka protocol; the error is fatal to a producer
NOWHERE = "127.0.0.1:1"  # nothing listens on this port


class FakeGpus:
    """A collector of two GPUs; `fail_at` are the reads that raise, counted from 0."""

    name = "fake"

    def __init__(self, fail_at: Sequence[int] = ()) -> None:
        self.reads = 0
        self.closed = False
        self._fail_at = fail_at
        self._events: list[NodeEvent] = []

    def read(self, now_ns: int, period_ns: int) -> list[Reading]:
        self.reads += 1
        if self.reads - 1 in self._fail_at:
            raise RuntimeError("broken")
        self._events.append(node_event("n1", now_ns, "throttle"))
        values = np.full((2, len(GPU)), self.reads, np.float32)
        return [Reading(GPU.schema, values)]

    def parts(self) -> Parts:
        return Parts(tuple(Device(id=f"GPU-{i}", model="fake", memory_bytes=1, index=i) for i in range(2)))

    def events(self) -> list[NodeEvent]:
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        self.closed = True


def config(tmp_path: Path, bootstrap: str, **client: str) -> Config:
    agent = AgentConfig(node="n1", cell="host", state_dir=str(tmp_path / "state"), spool_bytes=0, disabled=("nvml",))
    return Config(kafka=KafkaConfig(bootstrap=bootstrap, client=client), agent=agent)


def run(config: Config, ticks: int, fake: FakeGpus) -> AgentReport:
    fake_time = FakeTime()
    return run_agent(
        config,
        stop=threading.Event(),
        max_ticks=ticks,
        collectors=[fake],
        clock=fake_time.clock,
        wait=fake_time.wait,
    )


def test_frames_events_and_inventory_arrive(embedded_broker: StartBroker, tmp_path: Path) -> None:
    broker = embedded_broker(TOPICS)
    fake = FakeGpus()
    report = run(config(tmp_path, broker.bootstrap), 5, fake)
    assert report == AgentReport(ticks=5, skipped=0, frames=5, sent=14, carried=0, delivered=14, dropped=0, spooled=0)
    assert fake.closed
    received = receive(broker.bootstrap, 14)
    assert [frame.seq for frame in received.frames] == list(range(5))
    assert [frame.time_ns for frame in received.frames] == [START_NS + i * S for i in range(1, 6)]
    assert {(frame.epoch, frame.period_ns, frame.rows) for frame in received.frames} == {(START_NS + 1, S, 2)}
    assert {frame.inventory_epoch for frame in received.frames} == {received.inventories[0].epoch}
    assert float(received.frames[2].values[1, 0]) == 3.0
    first, last = received.inventories
    assert last == replace(first, epoch=first.epoch + 1, time_ns=START_NS + 5 * S, agent="stopped")
    kinds = [event.kind for event in received.events]
    assert kinds == ["agent_started", *["throttle"] * 5, "agent_stopped"]
    assert len({event.id for event in received.events}) == 7


def test_gpus_and_host_are_two_frames_with_one_sequence(
    embedded_broker: StartBroker, tmp_path: Path, nvml_stub: NvmlStub
) -> None:
    broker = embedded_broker(TOPICS)
    nvml_stub.set_gpus(8)
    agent = AgentConfig(node="n1", state_dir=str(tmp_path / "state"), period_s=0.05)
    report = run_agent(Config(kafka=KafkaConfig(broker.bootstrap), agent=agent), stop=threading.Event(), max_ticks=3)
    assert report.dropped == 0
    received = receive(broker.bootstrap, report.delivered)
    assert [frame.seq for frame in received.frames] == list(range(report.frames))
    frames = [frame for frame in received.frames if frame.schema in (GPU.schema, HOST.schema)]
    assert [frame.schema for frame in frames] == [GPU.schema, HOST.schema] * 3
    assert [frame.rows for frame in frames] == [8, 1] * 3
    assert len(received.inventories[0].devices) == 8
    host = frames[-1].values[0]
    assert host[HOST.column("flyball.agent.read.duration")] > 0
    assert host[HOST.column("flyball.agent.records{state=dropped}")] == 0
    assert np.isnan(frames[1].values[0, HOST.column("flyball.agent.read.duration")])


def test_each_start_has_its_own_epoch(tmp_path: Path, embedded_broker: StartBroker) -> None:
    broker = embedded_broker(TOPICS)
    for _ in range(2):
        run(config(tmp_path, broker.bootstrap), 1, FakeGpus())
    received = receive(broker.bootstrap, 12)
    assert [(frame.epoch, frame.seq) for frame in received.frames] == [(START_NS + 1, 0), (START_NS + 2, 0)]


def test_a_collector_that_fails_leaves_a_gap_in_nothing_else(
    embedded_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = embedded_broker(TOPICS)
    report = run(config(tmp_path, broker.bootstrap), 5, FakeGpus(fail_at=[1, 2]))
    assert (report.ticks, report.frames) == (5, 3)
    assert sum("collector failed" in record.message for record in caplog.records) == 1


def test_without_a_broker_it_goes_on_and_counts_every_drop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stop = threading.Event()
    limits = {"queue.buffering.max.messages": "10", "delivery.timeout.ms": "1000", "linger.ms": "0"}
    agent = AgentConfig(node="n1", state_dir=str(tmp_path / "state"), period_s=0.02, spool_bytes=0, disabled=("nvml",))
    slow = Config(kafka=KafkaConfig(NOWHERE, client=limits), agent=agent)
    with caplog.at_level(logging.WARNING):
        report = run_agent(slow, stop=stop, max_ticks=100)
    assert (report.ticks, report.frames, report.delivered) == (100, 100, 0)
    # agent_started, agent_stopped, two inventories, one or more events about drops
    assert report.dropped == report.sent >= 105
    warnings = [record.getMessage() for record in caplog.records if NOWHERE in record.getMessage()]
    assert any("kafka.bootstrap or --bootstrap" in warning for warning in warnings)
    assert len(caplog.records) <= 4  # logged, not repeated


def test_drops_are_reported_once_the_broker_is_back(embedded_broker: StartBroker, tmp_path: Path) -> None:
    broker = embedded_broker(TOPICS)
    broker.set_down()
    limits = {"queue.buffering.max.messages": "20", "linger.ms": "0", "reconnect.backoff.max.ms": "100"}
    away = config(tmp_path, broker.bootstrap, **limits)
    fake_time = FakeTime()

    def wait(seconds: float) -> bool:
        if fake_time.now_ns > START_NS + 40 * S:
            broker.set_up()
            time.sleep(0.05)  # lets librdkafka reconnect while the fake clock goes on
        return fake_time.wait(seconds)

    report = run_agent(
        away, stop=threading.Event(), max_ticks=80, collectors=[FakeGpus()], clock=fake_time.clock, wait=wait
    )
    assert report.dropped > 0
    assert report.sent == report.delivered + report.dropped
    assert report.frames == 80
    received = receive(broker.bootstrap, report.delivered)
    drops = [event for event in received.events if event.kind == "records_dropped"]
    assert drops
    assert max(int(event.message.split()[0]) for event in drops) <= report.dropped


def test_a_producer_that_met_a_fatal_error_is_replaced(embedded_broker: StartBroker, tmp_path: Path) -> None:
    broker = embedded_broker(TOPICS)
    broker.push_request_errors(INIT_PRODUCER_ID, [CLUSTER_AUTHORIZATION_FAILED])
    fake_time = FakeTime()

    def wait(seconds: float) -> bool:
        time.sleep(0.02)  # lets librdkafka meet the error while the fake clock goes on
        return fake_time.wait(seconds)

    report = run_agent(
        config(tmp_path, broker.bootstrap),
        stop=threading.Event(),
        max_ticks=150,
        collectors=[FakeGpus()],
        clock=fake_time.clock,
        wait=wait,
    )
    assert report.delivered > 0
    assert 0 < report.dropped < 150
    assert report.sent == report.delivered + report.dropped
    assert receive(broker.bootstrap, report.delivered).frames


def test_it_stops_when_it_is_ordered_to(tmp_path: Path, embedded_broker: StartBroker) -> None:
    broker = embedded_broker(TOPICS)
    stop = threading.Event()
    reports: list[AgentReport] = []
    thread = threading.Thread(
        target=lambda: reports.append(run_agent(config(tmp_path, broker.bootstrap), stop=stop, collectors=[FakeGpus()]))
    )
    thread.start()
    stop.set()
    thread.join(20)
    assert not thread.is_alive()
    assert reports[0].ticks <= 1
    assert "agent_stopped" in [event.kind for event in receive(broker.bootstrap, reports[0].delivered).events]


def test_an_agent_that_ends_by_an_error_announces_no_stop(tmp_path: Path, embedded_broker: StartBroker) -> None:
    broker = embedded_broker(TOPICS)
    fake_time = FakeTime()

    def wait(seconds: float) -> bool:
        if fake_time.now_ns > START_NS + 3 * S:
            raise RuntimeError("broken")
        return fake_time.wait(seconds)

    with pytest.raises(RuntimeError, match="broken"):
        run_agent(
            config(tmp_path, broker.bootstrap), stop=threading.Event(), collectors=[FakeGpus()],
            clock=fake_time.clock, wait=wait,
        )  # fmt: skip
    received = receive(broker.bootstrap, 8)
    assert len(received.frames) == 3
    assert [event.kind for event in received.events] == ["agent_started", *["throttle"] * 3]
    assert [inventory.agent for inventory in received.inventories] == ["running"]


def test_settings_that_the_client_refuses_are_a_config_error(tmp_path: Path) -> None:
    fake = FakeGpus()
    with pytest.raises(ConfigError, match=r"kafka\.client"):
        run(config(tmp_path, NOWHERE, **{"no.such.setting": "1"}), 1, fake)
    assert fake.closed


def test_a_root_without_proc_is_a_config_error(tmp_path: Path) -> None:
    agent = AgentConfig(root=str(tmp_path), state_dir=str(tmp_path / "state"))
    with pytest.raises(ConfigError, match=r"agent\.root"):
        run_agent(Config(agent=agent), stop=threading.Event(), max_ticks=1)


def test_read_once_knows_increases_and_counts_no_start(tmp_path: Path) -> None:
    waited: list[float] = []
    snapshot = read_once(config(tmp_path, NOWHERE), wait=waited.append)
    (reading,) = snapshot.readings
    assert not np.isnan(reading.values[0, HOST.column("flyball.agent.cpu.time")])
    assert waited == [1.0]
    assert snapshot.inventory.node == "n1"
    assert snapshot.inventory.cpu_count
    assert not (tmp_path / "state").exists()
