"""Worker processes on a broker, what goes in, and what comes out."""

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, cast

import msgspec
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.brokers.base import Broker
from tests.brokers.embedded import EmbeddedBroker
from tests.cli.shell import Forked

from flyball_contracts.codec import Message, decode_message
from flyball_contracts.config import Config, FleetConfig, KafkaConfig, WorkerConfig
from flyball_contracts.kafka import Place, bounds, consumer_settings, producer_settings
from flyball_contracts.partitioner import partition_of
from flyball_contracts.topics import DECISIONS, DEMAND, EVENTS, INSIGHTS, PROPOSALS, TELEMETRY, TOPICS
from flyball_simulator import Fleet
from flyball_streams.engine import Engine, Incoming

PARTITIONS = {name: 2 for name in TOPICS} | {TELEMETRY.name: 4, EVENTS.name: 4}
SOURCES = (TELEMETRY.name, EVENTS.name, DEMAND.name, PROPOSALS.name)
START_NS = 1_750_000_000_000_000_000
DEADLINE_S = 240.0
WORKER = "flyball_streams.worker.run"


class Received(msgspec.Struct):
    """One message as it lies on the broker."""

    place: Place
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def wait_until(done: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    give_up = time.monotonic() + deadline_s
    while not done():
        assert time.monotonic() < give_up, f"{what}: not within {deadline_s:.0f} s"
        time.sleep(0.1)


class Process:
    """A Python process that runs a module, with its output in a file."""

    def __init__(self, log: Path, module: str, *arguments: str) -> None:
        self.log = log
        log.touch()
        imports = [] if module == "flyball_cli" else [WORKER, module]
        self.process = Forked(module, *arguments, output=str(log), errors=str(log), imports=imports)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def check(self) -> None:
        status = self.process.poll()
        assert status is None, f"ended with {status}:\n{self.text()[-4000:]}"

    def terminate(self, within_s: float = 15.0) -> int:
        self.process.terminate()
        return self.process.wait(within_s)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Rig:
    """A broker with Flyball's topics and nothing in them, and the workers of one test."""

    def __init__(self, broker: Broker, folder: Path, app: str, worker: Mapping[str, Any]) -> None:
        self.broker = broker
        self.embedded = isinstance(broker, EmbeddedBroker)
        self.folder = folder
        self.config = Config(
            kafka=KafkaConfig(bootstrap=broker.bootstrap),
            worker=msgspec.convert({"app": app, "snapshot_every_s": 2.0, **worker}, WorkerConfig),
        )
        self.path = folder / "flyball.yaml"
        self.path.write_bytes(msgspec.yaml.encode(self.config))
        if not self.embedded:
            _remove_topics(broker.bootstrap)
        broker.create_topics(PARTITIONS)
        # The mock takes half a second to give out a producer id.
        quick = {"enable.idempotence": "false"}
        self._producer = Producer(
            producer_settings(broker.bootstrap, client_id="test", linger_ms=5, extra=quick),
            logger=logging.getLogger("rig"),
        )
        self._consumer = Consumer(consumer_settings(broker.bootstrap, group=f"{app}-reader", client_id="test"))
        self._group = Consumer(consumer_settings(broker.bootstrap, group=app, client_id="test"))  # it never joins
        self._stack = ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._consumer.close()
        self._group.close()

    def python(self, module: str, *arguments: str) -> Process:
        """Start a Python process that runs a module, and ends with the test."""
        self._count += 1
        process = Process(self.folder / f"process-{self._count}.log", module, *arguments)
        self._stack.callback(process.kill)
        return process

    def worker(self, *extra: str, joined: bool = True) -> Process:
        """Start a worker; by default wait until it has its partitions."""
        health = self.folder / f"health-{self._count}"
        embedded = ["--embedded"] if self.embedded else []
        process = self.python(
            "flyball_cli", "worker", "--config", str(self.path), "--health-file", str(health), *embedded, *extra
        )
        if joined:

            def has_partitions() -> bool:
                process.check()
                return health.exists()

            wait_until(has_partitions, "the worker has its partitions")
        return process

    def send(self, messages: Iterable[Message]) -> None:
        """Send and wait for the acknowledgement."""
        for m in messages:
            place = partition_of(m.key, PARTITIONS[m.topic]) if m.partition is None else m.partition
            self._producer.produce(m.topic, m.value, m.key, place, headers=cast(Any, m.headers))
            self._producer.poll(0)
        assert self._producer.flush(DEADLINE_S) == 0

    def ends(self, *topics: str) -> dict[Place, int]:
        """Offset after the last message of each partition."""
        places = [(topic, p) for topic in topics for p in range(PARTITIONS[topic])]
        return {place: following for place, (_, following) in bounds(self._consumer, places, DEADLINE_S).items()}

    def committed(self, *topics: str) -> dict[Place, int]:
        """What the worker's group has committed; 0 where it has not."""
        places = [TopicPartition(topic, p) for topic in topics for p in range(PARTITIONS[topic])]
        return {(tp.topic, tp.partition): max(0, tp.offset) for tp in self._group.committed(places, DEADLINE_S)}

    def drained(self) -> bool:
        """Whether the workers have used all that is on their topics, twice in a row."""
        before = self.ends(*SOURCES)
        return self.committed(*SOURCES) == before == self.ends(*SOURCES)

    def wait_drained(self, *workers: Process) -> None:
        def done() -> bool:
            for worker in workers:
                worker.check()
            return self.drained()

        wait_until(done, "everything was used")

    def read(self, topic: str) -> list[Received]:
        """All messages of a topic, partition by partition."""
        found: list[Received] = []
        for (_, partition), end in self.ends(topic).items():
            self._consumer.assign([TopicPartition(topic, partition, 0)])
            last = -1
            give_up = time.monotonic() + DEADLINE_S
            while last < end - 1 and time.monotonic() < give_up:
                for m in self._consumer.consume(500, 0.2):
                    assert m.error() is None, m.error()
                    last = m.offset() or 0
                    headers = cast("list[tuple[str, bytes | None]]", m.headers() or [])
                    found.append(Received((topic, partition), last, m.key(), m.value(), headers))
            assert last >= end - 1, f"{topic}/{partition} was not read to its end"
        return found

    def records(self, topic: str) -> list[Any]:
        return [decode_message(topic, m.value, m.headers) for m in self.read(topic)]

    def decisions(self) -> list[Any]:
        return self.records(DECISIONS.name)


def _remove_topics(bootstrap: str) -> None:
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    known = set(admin.list_topics(timeout=DEADLINE_S).topics) & set(TOPICS)
    if known:
        for removal in admin.delete_topics(sorted(known), request_timeout=DEADLINE_S).values():
            removal.result(DEADLINE_S)

        def gone() -> bool:
            try:
                return not set(admin.list_topics(timeout=5.0).topics) & set(TOPICS)
            except KafkaException:
                return False

        wait_until(gone, "the topics of the test before are gone")


class Simulated:
    """What a fleet sends: the tables first, then its ticks."""

    def __init__(self, ticks: int, config: FleetConfig | None = None, start_ns: int = START_NS) -> None:
        fleet = Fleet(config or FleetConfig(), start_ns)
        self.last_ns = start_ns + ticks * fleet.period_ns
        self.start: list[Message] = fleet.messages_at_start()
        self.ticks: list[list[Message]] = [fleet.tick(i) for i in range(ticks)]

    def offline(self, config: WorkerConfig) -> dict[str, list[Any]]:
        """Decisions and insights of the pure engine on the same messages, by topic."""
        engine = Engine(config, PARTITIONS)
        sent: list[Message] = []
        for batch in (self.start, *self.ticks):
            sent += engine.feed([incoming(m) for m in batch])
        found: dict[str, list[Any]] = {DECISIONS.name: [], INSIGHTS.name: []}
        for m in sent:
            if m.topic in found:
                found[m.topic].append(decode_message(m.topic, m.value, m.headers))
        return found


def incoming(m: Message) -> Incoming:
    return Incoming(m.topic, partition_of(m.key, PARTITIONS[m.topic]), 0, m.key, m.value, m.headers)


def ids(decisions: Sequence[Any]) -> set[str]:
    return {decision.id for decision in decisions}


def lines(path: Path) -> list[Any]:
    """JSON documents of a file, one a line; the last one may be half written."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
