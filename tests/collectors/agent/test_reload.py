"""A new configuration while the agent runs: the sequence goes on, and what is wrong changes nothing."""

import os
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.collectors.agent.agent_tools import TOPICS, FakeTime, Received, S, StartBroker, receive

from flyball_collectors.agent import AgentReport, run_agent
from flyball_collectors.agent.reload import ConfigWatch, applicable, changed_keys
from flyball_collectors.agent.setup import Setup
from flyball_contracts.config import AgentConfig, Config, ExportConfig, KafkaConfig, load_config
from flyball_contracts.errors import ConfigError
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.metrics import GPU, HOST

AGENT = """
kafka: {{bootstrap: "{bootstrap}"}}
agent:
  node: n1
  disabled: [nvml, kmsg]
  state_dir: {folder}/state
  spool_bytes: 0
  provider: none
"""


def write(path: Path, text: str) -> None:
    """As an editor does it: the new file takes the old one's place at once."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


class Run:
    """A run of the agent on a clock that only waiting moves; `changes` are made before the tick of their number."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.path = folder / "flyball.yaml"
        self.text = AGENT.format(bootstrap=bootstrap, folder=folder)
        write(self.path, self.text)
        self.bootstrap = bootstrap

    def go(self, ticks: int, changes: dict[int, Callable[[], object]]) -> tuple[AgentReport, Received]:
        report = self._run(ticks, changes)
        return report, receive(self.bootstrap, report.delivered)

    def switch_to(
        self, ticks: int, changes: dict[int, Callable[[], object]], there: str
    ) -> tuple[AgentReport, Received, Received]:
        """What the first broker was sent, and what the one that the agent goes over to."""
        report = self._run(ticks, changes)
        first, second = held(self.bootstrap), held(there)
        assert first + second == report.delivered
        return report, receive(self.bootstrap, first), receive(there, second)

    def _run(self, ticks: int, changes: dict[int, Callable[[], object]]) -> AgentReport:
        fake = FakeTime()
        waits = 0

        def load() -> Config:
            return load_config(self.path, Config)

        def wait(seconds: float) -> bool:
            nonlocal waits
            changes.get(waits, lambda: None)()
            waits += 1
            return fake.wait(seconds)

        return run_agent(
            load(),
            stop=threading.Event(),
            max_ticks=ticks,
            clock=fake.clock,
            wait=wait,
            source=ConfigWatch(self.path, load),
        )


def held(bootstrap: str) -> int:
    """Messages that a broker has of the agent's topics."""
    consumer = Consumer(consumer_settings(bootstrap, group="held", client_id="held"))
    try:
        places = [TopicPartition(topic, p) for topic, count in TOPICS.items() for p in range(count)]
        return sum(int(consumer.get_watermark_offsets(place, timeout=10.0)[1]) for place in places)
    finally:
        consumer.close()


def test_the_sequence_goes_on_over_a_reload_and_over_a_refused_one(
    embedded_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(tmp_path, embedded_broker(TOPICS).bootstrap)
    good = f"{run.text}  zone: DE\n  period_s: 2\n"
    report, received = run.go(
        20, {5: lambda: write(run.path, good), 10: lambda: write(run.path, f"{good}  perid_s: 1\n")}
    )
    assert report.dropped == 0
    assert [frame.seq for frame in received.frames] == list(range(report.frames))
    assert len({frame.epoch for frame in received.frames}) == 1
    hosts = [frame for frame in received.frames if frame.schema == HOST.schema]
    assert len(hosts) == 20
    steps = [(after.time_ns - before.time_ns) // S for before, after in pairwise(hosts)]
    assert steps == sorted(steps)  # one second, then two
    assert set(steps) == {1, 2}
    assert [frame.period_ns // S for frame in hosts[1:]] == steps
    zones = [(inventory.zone, inventory.epoch) for inventory in received.inventories]
    assert zones[0][0] == ""
    assert zones[-2:] == [("DE", zones[0][1] + 1), ("DE", zones[0][1] + 2)]  # the last one announces the stop
    kinds = [event.kind for event in received.events]
    assert kinds == ["agent_started", "config_reloaded", "config_refused", "agent_stopped"]
    assert received.events[1].message == "changed: agent.zone, agent.period_s"
    assert "did you mean 'period_s'?" in received.events[2].message
    reported = [record.getMessage() for record in caplog.records if "configuration" in record.getMessage()]
    assert len(reported) == 2
    assert "flyball.yaml:11" in reported[1]


def test_what_cannot_change_at_run_time_is_reported_and_stays(embedded_broker: StartBroker, tmp_path: Path) -> None:
    run = Run(tmp_path, embedded_broker(TOPICS).bootstrap)
    moved = run.text.replace("node: n1", "node: n2").replace("kafka: {", "kafka: {client: {linger.ms: '7'}, ")
    report, received = run.go(8, {2: lambda: write(run.path, moved.replace("[nvml, kmsg]", "[nvml, kmsg, host]"))})
    (event,) = [event for event in received.events if event.kind == "config_reloaded"]
    assert event.message == "changed: agent.disabled, kafka.client; after a restart only: agent.node"
    assert {frame.node for frame in received.frames} == {"n1"}
    assert [frame.seq for frame in received.frames] == list(range(report.frames))
    assert received.frames[-1].time_ns < event.time_ns + S


def test_another_kafka_takes_over_without_a_gap(embedded_broker: StartBroker, tmp_path: Path) -> None:
    here, there = embedded_broker(TOPICS).bootstrap, embedded_broker(TOPICS).bootstrap
    run = Run(tmp_path, here)
    moved = run.text.replace(here, there)
    broken = run.text.replace("kafka: {", "kafka: {client: {acks: many}, ")
    changes: dict[int, Callable[[], object]] = {
        3: lambda: write(run.path, broken),
        6: lambda: write(run.path, moved),
    }
    report, before, after = run.switch_to(12, changes, there)
    assert report.dropped == 0
    assert [frame.seq for frame in before.frames + after.frames] == list(range(report.frames))
    assert [event.kind for event in before.events] == ["agent_started", "config_refused"]
    assert "acks" in before.events[1].message
    assert [event.kind for event in after.events] == ["config_reloaded", "agent_stopped"]
    assert after.events[0].message == "changed: kafka.bootstrap"
    assert after.inventories[0] == before.inventories[-1]  # the new one knows the node at once


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def assert_threads(names: set[str]) -> None:
    deadline = time.monotonic() + 10
    while threads() != names:
        assert time.monotonic() < deadline, threads()
        time.sleep(0.01)


@pytest.mark.usefixtures("nvml_stub")
def test_only_what_changed_is_opened_anew() -> None:
    running = threads()
    config = Config(agent=AgentConfig(root="/"))
    setup = Setup(config, "n1")
    before = {one.name: one for one in setup.collectors}
    assert {"nvml", "host"} <= set(before)
    setup.change(Config(agent=AgentConfig(zone="DE")))
    assert {one.name: one for one in setup.collectors} == before
    assert setup.change(Config(agent=AgentConfig(disabled=("nvml",)))) == "changed: agent.zone, agent.disabled"
    after = {one.name: one for one in setup.collectors}
    assert "nvml" not in after
    assert after["host"] is before["host"]
    setup.change(config)
    deadline = time.monotonic() + 10
    while "nvml" not in {one.name for one in setup.collectors}:  # it is opened beside the loop
        assert time.monotonic() < deadline
        setup.look_again(S)
        time.sleep(0.01)
    assert [one.read(0, S)[0].schema for one in setup.collectors if one.name == "nvml"] == [GPU.schema]
    setup.close()
    assert_threads(running)


@pytest.mark.usefixtures("nvml_stub")
def test_an_output_that_cannot_be_refuses_the_whole() -> None:
    setup = Setup(Config(agent=AgentConfig(disabled=("nvml",))), "n1")
    before, running = setup.collectors, threads()
    bad = Config(agent=AgentConfig(export=ExportConfig(metrics_listen="192.0.2.1:9400")))
    with pytest.raises(ConfigError, match="metrics_listen"):
        setup.change(bad)
    assert setup.collectors is before
    assert setup.config.agent.disabled == ("nvml",)
    assert_threads(running)  # what was opened for it is closed again
    setup.close()


class Watched:
    """A file and a watch of it that counts its reads."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "flyball.yaml"
        self.path.write_text("agent: {zone: A}\n")
        self.reads = 0
        self.watch = ConfigWatch(self.path, self.load)

    def load(self) -> Config:
        self.reads += 1
        return load_config(self.path, Config)

    def poll(self) -> str | None:
        found = self.watch.poll()
        return found.agent.zone if isinstance(found, Config) else None if found is None else f"error: {found}"


def test_the_file_is_read_once_for_each_change_and_when_it_is_done(tmp_path: Path) -> None:
    file = Watched(tmp_path)
    assert [file.poll() for _ in range(3)] == [None] * 3
    assert file.reads == 0
    file.path.write_text("agent: {zon")
    assert file.poll() is None  # may not be done
    file.path.write_text("agent: {zone: BB}\n")
    assert [file.poll() for _ in range(4)] == [None, "BB", None, None]
    write(file.path, "agent: {zone: CC}\n")
    assert [file.poll() for _ in range(3)] == [None, "CC", None]
    file.path.unlink()
    assert [file.poll() for _ in range(3)] == [None] * 3
    write(file.path, "agent: {zone: [}\n")
    assert [(file.poll() or "").partition(":")[0] for _ in range(3)] == ["", "error", ""]
    assert file.reads == 3


def test_a_folder_of_links_as_kubernetes_mounts_it(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "flyball.yaml").write_text(f"agent: {{zone: Z{version}}}\n")
    (tmp_path / "data").symlink_to("1")
    link = tmp_path / "flyball.yaml"
    link.symlink_to("data/flyball.yaml")
    watch = ConfigWatch(link, lambda: load_config(link, Config))
    assert watch.poll() is None
    os.symlink("2", tmp_path / "fresh")
    (tmp_path / "fresh").replace(tmp_path / "data")
    assert watch.poll() is None
    found = watch.poll()
    assert isinstance(found, Config)
    assert found.agent.zone == "Z2"


def test_on_request_it_reads_at_once_changed_or_not(tmp_path: Path) -> None:
    file = Watched(tmp_path)
    file.watch.request()
    assert [file.poll(), file.poll()] == ["A", None]
    file.path.unlink()
    file.watch.request()
    assert "cannot be read" in (file.poll() or "")


def test_a_fault_over_a_file_is_its_refusal(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("agent: {}")

    def load() -> Config:
        raise KeyError("foo")

    watch = ConfigWatch(tmp_path / "f.yaml", load)
    watch.request()
    assert str(watch.poll()) == f"{tmp_path}/f.yaml: unexpected KeyError: 'foo'; please report it"


def test_keys_that_wait_for_a_restart_keep_their_old_value() -> None:
    old = Config(kafka=KafkaConfig("a:1"), agent=AgentConfig(node="n", zone="A"))
    new = Config(kafka=KafkaConfig("b:1"), agent=AgentConfig(node="m", zone="B", export=ExportConfig(dcgm=True)))
    config, waiting = applicable(old, new)
    assert waiting == ["agent.node"]
    assert (config.kafka, config.agent.node, config.agent.zone) == (new.kafka, "n", "B")
    none, waiting = applicable(old, Config(agent=old.agent, kafka=KafkaConfig("")))
    assert (none.kafka, waiting) == (old.kafka, ["kafka.bootstrap"])
    assert changed_keys(old.agent, config.agent, "agent") == ["agent.zone", "agent.export.dcgm"]
