"""The agent while Kafka is away: what it spools comes again, and every message is accounted for."""

import threading
import time
from collections import Counter
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import pytest
from confluent_kafka import Consumer
from tests.brokers.embedded import EmbeddedBroker

from flyball_collectors.agent import AgentReport, run_agent
from flyball_collectors.agent.delivery.outbox import Outbox
from flyball_collectors.agent.delivery.spooling import open_spool
from flyball_collectors.agent.ticker import Clock
from flyball_collectors.base import Parts, Reading
from flyball_collectors.parameters import AgentParameters
from flyball_collectors.spool import Spool, pack
from flyball_contracts.codec import Message, decode_message, record_message
from flyball_contracts.config import Config, KafkaConfig
from flyball_contracts.frame import Frame
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Device, Inventory, NodeEvent
from flyball_contracts.topics import EVENTS, INVENTORY, TELEMETRY

S = 1_000_000_000
START_NS = 1_700_000_000 * S
TOPICS = {TELEMETRY.name: 1, EVENTS.name: 1, INVENTORY.name: 1}
NOWHERE = "127.0.0.1:1"
QUICK = {"linger.ms": "0", "reconnect.backoff.max.ms": "100"}
INIT_PRODUCER_ID, CLUSTER_AUTHORIZATION_FAILED = 22, 31
StartBroker = type[EmbeddedBroker]


class Gpus:
    """One GPU."""

    name = "fake"

    def read(self, now_ns: int, period_ns: int) -> list[Reading]:
        return [Reading(GPU.schema, np.full((1, len(GPU)), now_ns, np.float32))]

    def parts(self) -> Parts:
        return Parts((Device(id="GPU-0", model="fake", memory_bytes=1),))

    def events(self) -> list[NodeEvent]:
        return []

    def close(self) -> None:
        return


class Scene:
    """Runs of an agent on a clock that only waiting moves, beside a broker that goes and comes."""

    def __init__(self, folder: Path, broker: EmbeddedBroker | None = None, *, spool_bytes: int = 1 << 20) -> None:
        agent = AgentParameters(
            node="n1",
            cell="host",
            state_dir=str(folder / "state"),
            inventory_period_s=1e6,
            spool_bytes=spool_bytes,
            disabled=("nvml",),
        )
        self.bootstrap = broker.bootstrap if broker else NOWHERE
        self.config = Config(kafka=KafkaConfig(bootstrap=self.bootstrap, client=dict(QUICK)), agent=agent)
        self.broker = broker

    def run(self, ticks: int, *, down: int = -1, up: int = -1) -> AgentReport:
        """Run so many ticks, then until nothing is spooled; the broker goes before `down` and is back before `up`."""
        now_ns, tick, give_up = START_NS + 1, 0, time.monotonic() + 30

        def wait(seconds: float) -> bool:
            nonlocal now_ns, tick
            tick += 1
            if self.broker and tick == down:
                self.broker.set_down()
            if self.broker and tick == up:
                self.broker.set_up()
            if self.broker or tick > ticks - 20:
                time.sleep(0.02)  # lets librdkafka keep up while the fake clock goes on
            now_ns += round(seconds * S)
            spooled = self.broker and any(self.folder().glob("*.spool"))
            return tick > ticks and (not spooled or time.monotonic() > give_up)

        clock = Clock(lambda: now_ns, lambda: now_ns)
        report = run_agent(self.config, stop=threading.Event(), collectors=[Gpus()], clock=clock, wait=wait)
        assert report.sent + report.carried == report.delivered + report.dropped + report.spooled
        return report

    def folder(self) -> Path:
        return Path(self.config.agent.state_dir) / "spool-n1"


def received(bootstrap: str, least: int) -> list[Frame | NodeEvent | Inventory]:
    """Everything on the agent's topics, in order of each; at least so many, and until no more come."""
    consumer = Consumer(consumer_settings(bootstrap, group="test", client_id="test"))
    consumer.subscribe(list(TOPICS))
    records: list[Frame | NodeEvent | Inventory] = []
    deadline, quiet = time.monotonic() + 20, 0
    while (len(records) < least or quiet < 3) and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        quiet += message is None
        if message is None or message.error():
            continue
        headers = cast("list[tuple[str, bytes | None]] | None", message.headers())
        record = decode_message(str(message.topic()), message.value(), headers)
        assert isinstance(record, (Frame, NodeEvent, Inventory))
        records.append(record)
    consumer.close()
    return records


def frames(records: list[Frame | NodeEvent | Inventory]) -> list[Frame]:
    return [record for record in records if isinstance(record, Frame)]


def test_an_outage_costs_nothing(embedded_broker: StartBroker, tmp_path: Path) -> None:
    broker = embedded_broker(TOPICS)
    report = Scene(tmp_path, broker).run(200, down=30, up=100)
    assert (report.dropped, report.spooled) == (0, 0)
    came = frames(received(broker.bootstrap, report.sent))
    assert {frame.seq for frame in came} == set(range(report.frames))
    first = list(dict.fromkeys(frame.seq for frame in came))
    replayed = [seq for seq in first if 35 < seq < 90]
    assert replayed == sorted(replayed)


def test_what_a_run_could_not_send_the_next_one_does(embedded_broker: StartBroker, tmp_path: Path) -> None:
    away = Scene(tmp_path).run(50)
    assert (away.delivered, away.dropped, away.spooled) == (0, 0, away.sent)
    broker = embedded_broker(TOPICS)
    report = Scene(tmp_path, broker).run(50)
    assert (report.carried, report.spooled, report.dropped) == (away.sent, 0, 0)
    assert report.delivered == away.sent + report.sent
    came = received(broker.bootstrap, report.delivered)
    expected = [(START_NS + 1, seq) for seq in range(away.frames)] + [
        (START_NS + 2, seq) for seq in range(report.frames)
    ]
    assert Counter((frame.epoch, frame.seq) for frame in frames(came)) == Counter(expected)
    assert {record.kind for record in came if isinstance(record, NodeEvent)} == {"agent_started", "agent_stopped"}


def test_a_small_spool_keeps_the_newest_and_counts_the_others(embedded_broker: StartBroker, tmp_path: Path) -> None:
    broker = embedded_broker(TOPICS)
    report = Scene(tmp_path, broker, spool_bytes=8_000).run(200, down=2, up=120)
    assert report.dropped > 50
    assert report.spooled == 0
    came = received(broker.bootstrap, report.delivered)
    # A message counted as dropped may have come all the same, when it was on its way just then.
    assert report.delivered <= len({msgspec.json.encode(record) for record in came}) <= report.delivered + 5
    assert any(isinstance(record, NodeEvent) and record.kind == "records_dropped" for record in came)
    newest = [frame.seq for frame in frames(came)][-1]
    assert newest == report.frames - 1


def test_the_newest_inventory_stays_the_newest(embedded_broker: StartBroker, tmp_path: Path) -> None:
    """The topic is compacted: an old inventory that is replayed must not be the last word on a node."""
    broker = embedded_broker(TOPICS)
    old, changed, new = (
        record_message(Inventory(node="n1", cell="c", epoch=epoch, time_ns=epoch), "/t") for epoch in (1, 2, 3)
    )
    spool = Spool(tmp_path, 1 << 20)
    for message in (old, changed):
        spool.append(pack(message))
    box = Outbox(KafkaConfig(broker.bootstrap), client_id="t", queue_bytes=1 << 20, spool=spool)
    box.send(new)
    settle(box, 3)
    box.close()
    assert (box.delivered, box.dropped) == (3, 0)
    epochs = [record.epoch for record in received(broker.bootstrap, 3) if isinstance(record, Inventory)]
    assert list(dict.fromkeys(epochs)) == [3, 1, 2]
    assert epochs[-1] == 3


def test_a_fatal_error_of_the_producer_costs_nothing(embedded_broker: StartBroker, tmp_path: Path) -> None:
    broker = embedded_broker(TOPICS)
    broker.push_request_errors(INIT_PRODUCER_ID, [CLUSTER_AUTHORIZATION_FAILED])
    report = Scene(tmp_path, broker).run(150)
    assert (report.delivered, report.dropped, report.spooled) == (report.sent, 0, 0)
    assert {frame.seq for frame in frames(received(broker.bootstrap, report.sent))} == set(range(report.frames))


def test_a_damaged_spool_costs_what_was_hit(embedded_broker: StartBroker, tmp_path: Path) -> None:
    away = Scene(tmp_path).run(50)
    (file,) = Scene(tmp_path).folder().glob("*.spool")
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 0x10
    file.write_bytes(raw)
    broker = embedded_broker(TOPICS)
    report = Scene(tmp_path, broker).run(50)
    assert (report.carried, report.dropped, report.spooled) == (away.sent, 1, 0)


def test_a_folder_that_cannot_be_used_is_reported_and_the_agent_goes_on(
    embedded_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = embedded_broker(TOPICS)
    scene = Scene(tmp_path, broker)
    scene.folder().parent.mkdir(parents=True)
    scene.folder().write_text("a file in the way")
    report = scene.run(5)
    assert (report.delivered, report.dropped) == (report.sent, 0)
    assert "agent.state_dir" in caplog.text


def test_a_second_agent_goes_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    agent = AgentParameters(state_dir=str(tmp_path))
    first = open_spool(agent, "n1")
    assert first is not None
    assert open_spool(agent, "n1") is None
    assert "another agent" in caplog.text
    first.close()
    assert open_spool(msgspec.structs.replace(agent, spool_bytes=0), "n1") is None


def settle(box: Outbox, delivered: int) -> None:
    deadline = time.monotonic() + 20
    while box.delivered < delivered and time.monotonic() < deadline:
        box.poll()
        time.sleep(0.01)


def test_what_no_broker_would_ever_take_is_given_up(embedded_broker: StartBroker, tmp_path: Path) -> None:
    broker = embedded_broker(TOPICS)
    spool = Spool(tmp_path, 8 << 20)
    message = Message(EVENTS.name, b"k", b"{}", [("a", b"b")])
    large = message._replace(value=bytes(2 << 20))
    for payload in (pack(large), b"\xc1", pack(message)):
        spool.append(payload)
    box = Outbox(KafkaConfig(broker.bootstrap), client_id="t", queue_bytes=16 << 20, spool=spool)
    box.send(large)
    settle(box, 1)
    assert (box.carried, box.sent, box.delivered, box.dropped, box.spooled) == (3, 1, 1, 3, 0)
    box.close()


def test_a_full_disk_during_an_outage_is_counted_and_ends(embedded_broker: StartBroker, tmp_path: Path) -> None:
    """Without a record on disk to try, a message in memory finds out that the broker is back."""
    broker = embedded_broker(TOPICS)
    spool = Spool(tmp_path, 64)  # too small for any record
    box = Outbox(KafkaConfig(broker.bootstrap, client=dict(QUICK)), client_id="t", queue_bytes=1 << 20, spool=spool)
    message = Message(EVENTS.name, b"k", b"{}", [])
    box.send(message)
    settle(box, 1)
    broker.set_down()
    deadline = time.monotonic() + 20
    while not box.dropped and time.monotonic() < deadline:
        box.send(message)
        box.poll()
        time.sleep(0.01)
    broker.set_up()
    before = box.delivered
    while box.delivered < before + 3 and time.monotonic() < deadline:
        box.send(message)
        box.poll()
        time.sleep(0.01)
    assert box.delivered >= before + 3
    box.close()
    assert box.sent == box.delivered + box.dropped


def test_a_second_agent_of_a_node_is_told_what_becomes_of_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = AgentParameters(state_dir=str(tmp_path))
    first = open_spool(config, "n1")
    assert first is not None
    assert open_spool(config, "n1") is None
    assert "another agent of node n1 runs" in caplog.text
    assert "stop this one and restart the other" in caplog.text
    assert "set agent.state_dir" not in caplog.text, "it would only hide the other"
    first.close()
