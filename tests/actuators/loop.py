"""A running actuator on a broker, what goes in, and what comes out."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.actuators.platform_server import PlatformServer
from tests.actuators.samples import NOW, S

from flyball_actuators.parameters import RateParameters
from flyball_actuators.platforms import Capabilities, Done, Handle, Platform, Progress, Rejected
from flyball_actuators.report import ActuatorReport
from flyball_actuators.service import run_actuator
from flyball_contracts.codec import Message, decode_message, record_message
from flyball_contracts.config import ActuatorConfig, Config, KafkaConfig, PlatformConfig
from flyball_contracts.kafka import bounds, consumer_settings, producer_settings
from flyball_contracts.records import AnyDecision, Outcome, Record, SubjectState
from flyball_contracts.topics import DECISIONS, OUTCOMES, TOPICS

PARTITIONS = {name: 2 for name in TOPICS}
DEADLINE_S = 90.0


class FilePlatform:
    """A platform that remembers nothing: each submission appends the decision's id to a file, and is done at once."""

    name = "file"
    capabilities = Capabilities(kinds=frozenset({"Scale", "Migrate", "Preempt"}), tracks=False)

    def __init__(self, effects: Path) -> None:
        self._effects = effects

    def observe(self, decision: AnyDecision) -> SubjectState | Rejected:
        return SubjectState()

    def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
        with self._effects.open("a") as file:
            file.write(f"{decision.id}\n")
        return Handle(operation=decision.id, expected=observed, answer=f"applied {decision.id}")

    def poll(self, handle: Handle) -> Progress:
        return Done(handle.expected, NOW + S, handle.answer)

    def find(self, decision: AnyDecision, observed: SubjectState | None) -> Handle | None:
        raise AssertionError("it tracks nothing")

    def effects(self) -> list[str]:
        return self._effects.read_text().split() if self._effects.exists() else []


def config_for(bootstrap: str, group: str, **actuator: object) -> Config:
    settings = ActuatorConfig(group=group, **actuator)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return Config(kafka=KafkaConfig(bootstrap=bootstrap), actuator=settings)


def unlimited(bootstrap: str, group: str, **actuator: object) -> Config:
    """Mode live, with rates that no test reaches."""
    rates = {"per_target": RateParameters(1000), "per_cell": RateParameters(100_000)}
    return config_for(bootstrap, group, mode="live", **rates, **actuator)


def without_effect(config: Config) -> Config:
    """The same in dry run."""
    return msgspec.structs.replace(config, actuator=msgspec.structs.replace(config.actuator, mode="dry_run"))


def publish(bootstrap: str, *records: Record | Message) -> None:
    """Send and wait for the acknowledgement; what is on another topic than the record before it is sent after that."""
    quick = {"enable.idempotence": "false"}  # the mock takes half a second to give out a producer id
    producer = Producer(producer_settings(bootstrap, client_id="test", linger_ms=0, extra=quick))
    messages = [record_message(record, "/test") if isinstance(record, Record) else record for record in records]
    for before, message in zip([None, *messages], messages, strict=False):
        if before is not None and before.topic != message.topic:
            assert producer.flush(DEADLINE_S) == 0
        partition = -1 if message.partition is None else message.partition
        producer.produce(message.topic, message.value, message.key, partition, headers=[*message.headers])
    assert producer.flush(DEADLINE_S) == 0


def read_all(bootstrap: str, topic: str) -> list[tuple[bytes | None, list[tuple[str, bytes]]]]:
    """Values and headers of a topic, one partition after the other."""
    return [(value, headers) for _, value, headers in read_keyed(bootstrap, topic)]


def read_keyed(bootstrap: str, topic: str) -> list[tuple[str, bytes | None, list[tuple[str, bytes]]]]:
    """Keys, values and headers of a topic, one partition after the other."""
    consumer = Consumer(consumer_settings(bootstrap, group="test-reader", client_id="test"))
    found: list[tuple[str, bytes | None, list[tuple[str, bytes]]]] = []
    try:
        for partition in range(len(consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions)):
            part = TopicPartition(topic, partition, 0)
            _, end = bounds(consumer, [(topic, partition)], DEADLINE_S)[topic, partition]
            consumer.assign([part])
            count = 0
            until = time.monotonic() + DEADLINE_S
            while count < end and time.monotonic() < until:
                for message in consumer.consume(100, 0.2):
                    assert message.error() is None
                    key = (message.key() or b"").decode()
                    found.append((key, message.value(), message.headers() or []))  # type: ignore[arg-type]  # pyright: ignore
                    count += 1
            assert count >= end
    finally:
        consumer.close()
    return found


def outcomes(bootstrap: str) -> list[Outcome]:
    records = [decode_message(OUTCOMES.name, value, headers) for value, headers in read_all(bootstrap, OUTCOMES.name)]
    return [record for record in records if isinstance(record, Outcome)]


def statuses_of(bootstrap: str, decision: str) -> list[str]:
    """Statuses of one decision in order, with the code of a refusal."""
    return [f"{o.status} {o.code}".strip() for o in outcomes(bootstrap) if o.decision == decision]


def ended(bootstrap: str, decisions: int) -> Callable[[], bool]:
    """Whether so many decisions have had a final outcome."""
    return lambda: len({o.decision for o in outcomes(bootstrap) if o.final}) >= decisions


def live(bootstrap: str, group: str, folder: Path, server: PlatformServer | None = None) -> Config:
    """Mode live with a ledger; on the server where one is given."""
    platforms = () if server is None else (PlatformConfig(driver="simulated", url=server.url, poll_s=0.05),)
    return config_for(bootstrap, group, mode="live", ledger=str(folder / "ledger"), platforms=platforms)


def of(bootstrap: str, decision: str, status: str, deliveries: int = 1) -> Outcome:
    """The outcome with that status; a delivery after the final outcome gets the same one again."""
    found, *again = [o for o in outcomes(bootstrap) if o.decision == decision and o.status == status]
    assert len(again) < deliveries
    assert all(outcome == found for outcome in again)
    return found


def wait_for(true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + DEADLINE_S
    while True:
        with suppress(KafkaException):  # a broker that starts again has no answer for a moment
            if true():
                return
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.05)


def committed(bootstrap: str, group: str) -> int:
    """Sum of the group's committed offsets of the decisions."""
    consumer = Consumer(consumer_settings(bootstrap, group=group, client_id="test"))
    try:
        parts = [TopicPartition(DECISIONS.name, p) for p in range(PARTITIONS[DECISIONS.name])]
        return sum(max(0, part.offset) for part in consumer.committed(parts, DEADLINE_S))
    finally:
        consumer.close()


class Running:
    """An actuator in a thread; ``error`` is what ended it, ``report`` what it returned."""

    def __init__(self, config: Config, platform: Platform | None, clock: Callable[[], int]) -> None:
        self.report: ActuatorReport | None = None
        self.error: BaseException | None = None
        self.beats = 0
        self.stop = threading.Event()
        self.ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(config, platform, clock))
        self._thread.start()

    def _beat(self) -> None:
        self.beats += 1

    def _run(self, config: Config, platform: Platform | None, clock: Callable[[], int]) -> None:
        try:
            self.report = run_actuator(
                config, stop=self.stop, ready=self.ready.set, beat=self._beat, platform=platform, clock=clock
            )
        except BaseException as error:
            self.error = error
            self.ready.set()

    def join(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the actuator did not stop"


@contextmanager
def running(
    config: Config, platform: Platform | None = None, clock: Callable[[], int] = lambda: NOW
) -> Generator[Running]:
    actuator = Running(config, platform, clock)
    try:
        assert actuator.ready.wait(DEADLINE_S), "the actuator was not ready"
        if actuator.error is not None:
            raise actuator.error
        yield actuator
    finally:
        actuator.stop.set()
        actuator.join()
    if actuator.error is not None:
        raise actuator.error
