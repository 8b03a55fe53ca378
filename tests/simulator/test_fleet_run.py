"""The simulated fleet on a broker: sending, pacing, and obeying."""

import math
import queue
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.brokers.embedded import EmbeddedBroker
from tests.simulator.orders import preempt, scale

from flyball_contracts.codec import decode_message
from flyball_contracts.config import FleetConfig, KafkaConfig
from flyball_contracts.errors import ConfigError, TransportError
from flyball_contracts.frame import Frame, decode_frame
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.records import AnyDecision, Inventory
from flyball_contracts.simulated import Operation, Submission
from flyball_contracts.topics import INVENTORY, TELEMETRY, TOPICS
from flyball_simulator import Fleet, FleetReport, run_fleet
from flyball_simulator.service.platform import Platform

START_NS = 1_750_000_000_000_000_000
CONFIG = FleetConfig()
COUNTS = {name: 2 for name in TOPICS}


@pytest.fixture
def kafka(embedded_broker: Callable[..., EmbeddedBroker]) -> KafkaConfig:
    return KafkaConfig(bootstrap=embedded_broker(COUNTS).bootstrap)


@contextmanager
def reading(kafka: KafkaConfig, topic: str) -> Generator[Consumer]:
    consumer = Consumer(consumer_settings(kafka.bootstrap, group=f"test-{topic}", client_id="test"))
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(COUNTS[topic])])
        yield consumer
    finally:
        consumer.close()


def read(consumer: Consumer, enough: Callable[[list[object]], bool], limit_s: float = 20.0) -> list[object]:
    """Records until there are enough of them."""
    found: list[object] = []
    deadline = time.monotonic() + limit_s
    while not enough(found):
        assert time.monotonic() < deadline, f"only {len(found)} records within {limit_s} s"
        for message in consumer.consume(500, timeout=0.2):
            assert message.error() is None
            headers = message.headers()
            assert headers is None or isinstance(headers, list)
            found.append(decode_message(message.topic() or "", message.value(), headers))  # type: ignore[arg-type]
    return found


def test_all_that_is_sent_arrives(kafka: KafkaConfig) -> None:
    report = run_fleet(CONFIG, kafka, stop=threading.Event(), start_ns=START_NS, speed=math.inf, ticks=5)
    platform = Platform(fleet := Fleet(CONFIG, START_NS), 0.0)
    sent = [*fleet.messages_at_start(), *(m for i in range(5) for m in platform.tick(i)), *platform.account_messages()]
    assert report == FleetReport(START_NS, ticks=5, messages=len(sent))
    count = sum(message.topic == TELEMETRY.name for message in sent)
    assert count > 5 * 24 * 3
    with reading(kafka, TELEMETRY.name) as consumer:
        frames = read(consumer, lambda found: len(found) >= count)
    assert len({(f.node, f.seq) for f in frames if isinstance(f, Frame)}) == len(frames) == count


def test_it_stops_in_the_middle_of_a_wait(kafka: KafkaConfig) -> None:
    stop = threading.Event()
    reports: list[FleetReport] = []

    def work() -> None:
        reports.append(run_fleet(CONFIG, kafka, stop=stop, start_ns=START_NS, speed=1e-6))

    thread = threading.Thread(target=work)
    thread.start()
    with reading(kafka, TELEMETRY.name) as consumer:
        read(consumer, lambda found: len(found) >= 24 * 3)
    stop.set()
    thread.join(20)
    assert not thread.is_alive()
    assert reports[0].ticks == 1
    assert reports[0].failed == 0


def test_no_broker_is_said_clearly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyball_simulator.service.sender._CONNECT_S", 0.3)
    with pytest.raises(TransportError, match=r"no broker answers at 127.0.0.1:1 .* check kafka.bootstrap"):
        run_fleet(CONFIG, KafkaConfig(bootstrap="127.0.0.1:1"), stop=threading.Event(), start_ns=START_NS, ticks=1)


def test_a_port_in_use_is_named_before_a_broker_that_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"--listen {listen}: .*give a free HOST:PORT"):
            run_fleet(
                CONFIG, KafkaConfig(bootstrap="127.0.0.1:1"), stop=threading.Event(), start_ns=START_NS, listen=listen
            )


def test_a_speed_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="speed is 0"):
        run_fleet(CONFIG, KafkaConfig(), stop=threading.Event(), start_ns=START_NS, speed=0)


def test_what_is_asked_for_while_it_runs_is_obeyed(kafka: KafkaConfig) -> None:
    stop = threading.Event()
    urls: queue.Queue[str] = queue.Queue()

    def work() -> None:
        run_fleet(CONFIG, kafka, stop=stop, start_ns=START_NS, speed=20.0, listen="127.0.0.1:0", listening=urls.put)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        url = urls.get(timeout=20)
        body = msgspec.json.encode(Submission(decision=preempt("asr-batch", 3)))
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/operations", body), timeout=10) as answer:
            assert answer.status == 202

        def running(found: list[object]) -> int:
            newest: dict[str, Inventory] = {}
            for record in found:
                if isinstance(record, Inventory) and record.epoch >= (newest.get(record.node) or record).epoch:
                    newest[record.node] = record
            return sum(a.workload == "asr-batch" for inventory in newest.values() for a in inventory.allocations)

        with reading(kafka, INVENTORY.name) as inventories:
            read(inventories, lambda found: running(found) == 3)
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()


FLEET_PROCESS = """
import sys, threading
from pathlib import Path
from flyball_contracts.config import FleetConfig, KafkaConfig
from flyball_simulator import run_fleet

run_fleet(
    FleetConfig(), KafkaConfig(bootstrap=sys.argv[1]), stop=threading.Event(), start_ns=int(sys.argv[3]), speed=20.0,
    listen="127.0.0.1:0", listening=lambda url: print(url, flush=True), state=Path(sys.argv[2]),
)
"""


def test_a_fleet_that_is_killed_goes_on_without_a_gap(kafka: KafkaConfig, tmp_path: Path) -> None:
    """Four processes, three of them killed while they send and obey, send what one undisturbed fleet sends."""
    state = tmp_path / "fleet.journal"
    orders: list[AnyDecision] = [
        scale("chat-api", 20, id="a"),
        preempt("synth-data", 3, id="b"),
        scale("chat-api", 15, id="c"),
    ]
    submitted: list[tuple[int, AnyDecision]] = []
    with reading(kafka, TELEMETRY.name) as telemetry:
        found: list[object] = []
        for life in range(4):
            start_ns = START_NS + life * 10**9  # a later start is not its own: the journal has it
            arguments = [sys.executable, "-c", FLEET_PROCESS, kafka.bootstrap, str(state), str(start_ns)]
            with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                url = process.stdout.readline().strip()
                if life < 3:
                    body = msgspec.json.encode(Submission(decision=orders[life]))
                    with urllib.request.urlopen(f"{url}/v1/operations", body, timeout=10) as answer:
                        operation = msgspec.json.decode(answer.read(), type=Operation)
                    submitted.append(((operation.submitted_ns - START_NS) // 10**9, orders[life]))
                with urllib.request.urlopen(f"{url}/v1/operations", timeout=10) as answer:
                    assert len(msgspec.json.decode(answer.read(), type=list[Operation])) == min(life + 1, 3)
                found += read(telemetry, lambda more: len(more) >= 24 * 3 * 15)
                process.kill()
    frames = {(f.node, f.seq): f for f in found if isinstance(f, Frame)}
    ticks = min(Counter(node for node, _ in frames).values()) // 3
    assert ticks >= 40
    fleet = Fleet(CONFIG, START_NS)
    for index in range(ticks):
        for tick, order in submitted:
            if tick == index:
                fleet.apply(order)
        for message in fleet.tick(index):
            if message.topic == TELEMETRY.name:
                frame = decode_frame(message.value)
                assert frames[frame.node, frame.seq] == frame


def test_a_journal_of_another_fleet_is_refused(kafka: KafkaConfig, tmp_path: Path) -> None:
    state = tmp_path / "fleet.journal"

    def start(config: FleetConfig) -> FleetReport:
        return run_fleet(config, kafka, stop=threading.Event(), start_ns=START_NS, speed=math.inf, ticks=2, state=state)

    assert start(CONFIG).ticks == 2
    other = msgspec.structs.replace
    for config in (other(CONFIG, seed=2), other(CONFIG, tick_s=2.0), other(CONFIG, cell="x")):
        with pytest.raises(ConfigError, match=r"--state .* name another file, or remove it to start over"):
            start(config)
    assert start(CONFIG).ticks == 2
    with state.open("ab") as file:
        file.write(b"0badc0de {torn")
    assert start(CONFIG).ticks == 2
    with state.open("ab") as file:
        file.write(b"0badc0de {\n")
        file.write(b"0badc0de {\n")
    with pytest.raises(ConfigError, match="line 8 is damaged"):
        start(CONFIG)
