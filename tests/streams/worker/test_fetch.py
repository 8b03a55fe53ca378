"""A fetch is bounded, and the tables are asked for when all of it is here, however long a process stood still in it."""

from typing import Any, cast

from confluent_kafka import Producer
from faust.types import TP
from tests.brokers.embedded import EmbeddedBroker
from tests.streams.worker.rig import PARTITIONS

from flyball_contracts.config import KafkaConfig
from flyball_contracts.topics import EVENTS, TELEMETRY
from flyball_streams.worker.fetch import MOST, Fetch

PLACE = TP(TELEMETRY.name, 0)


class Stopped:
    """The client of a process that stops after its first message of a fetch, while the others come."""

    def __init__(self, client: Any, meanwhile: Any) -> None:
        self._client, self._meanwhile = client, meanwhile
        self._taken = 0

    def consume(self, most: int, wait_s: float) -> list[Any]:
        """Take messages as the client does."""
        if self._taken == 1:
            self._meanwhile()
            most, wait_s = 1, 10.0
        messages = self._client.consume(most, wait_s)
        self._taken += len(messages)
        return cast("list[Any]", messages)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def test_the_tables_are_requested_for_after_the_last_message_of_a_fetch() -> None:
    with EmbeddedBroker(PARTITIONS) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        happened: list[str] = []

        def send(what: str) -> None:
            happened.append(what)
            producer.produce(PLACE.topic, what.encode(), partition=PLACE.partition)
            assert producer.flush(10.0) == 0

        send("before")
        fetch = Fetch(KafkaConfig(bootstrap=broker.bootstrap), "test", "test")
        fetch.begin({PLACE: 0})
        client: Any = fetch
        client._consumer = Stopped(client._consumer, lambda: send("while it stood still"))
        taken: dict[TP, list[Any]] = {}
        while not taken:
            taken = dict(fetch.take(lambda: happened.append("tables asked for")).batches)
        fetch.close()
    sent = [m.value for m in taken[PLACE]]
    assert sent == [b"before", b"while it stood still"]
    assert happened == ["before", "while it stood still", "tables asked for"]


def test_a_backlog_comes_in_parts_and_whole() -> None:
    sent = [str(i).encode() for i in range(3 * MOST)]
    with EmbeddedBroker(PARTITIONS) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for value in sent:
            producer.produce(PLACE.topic, value, partition=PLACE.partition)
        assert producer.flush(10.0) == 0
        fetch = Fetch(KafkaConfig(bootstrap=broker.bootstrap), "test", "test")
        fetch.begin({PLACE: 0})
        parts: list[list[bytes | None]] = []
        while sum(map(len, parts)) < len(sent):
            parts += [[m.value for m in batch] for batch in fetch.take(lambda: None).batches.values()]
        fetch.close()
    assert max(map(len, parts)) <= MOST
    assert [value for part in parts for value in part] == sent


class EventsLast:
    """A client that gives out all messages at once, those of events last, as a broker may."""

    def __init__(self, client: Any, count: int) -> None:
        self._client, self._count = client, count

    def consume(self, _most: int, wait_s: float) -> list[Any]:
        """Take all messages, then none."""
        if not wait_s:
            return []
        messages: list[Any] = []
        while len(messages) < self._count:
            messages += self._client.consume(self._count, 0.1)
        return sorted(messages, key=lambda message: message.topic() == EVENTS.name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def test_events_of_a_fetch_come_first() -> None:
    places = [TP(TELEMETRY.name, 0), TP(TELEMETRY.name, 1), TP(EVENTS.name, 0)]
    with EmbeddedBroker(PARTITIONS) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for place in places:
            producer.produce(place.topic, b"", partition=place.partition)
        assert producer.flush(10.0) == 0
        fetch = Fetch(KafkaConfig(bootstrap=broker.bootstrap), "test", "test")
        fetch.begin(dict.fromkeys(places, 0))
        client: Any = fetch
        client._consumer = EventsLast(client._consumer, len(places))
        found = list(fetch.take(lambda: None).batches)
        fetch.close()
    assert found[0] == TP(EVENTS.name, 0)
    assert set(found) == set(places)
