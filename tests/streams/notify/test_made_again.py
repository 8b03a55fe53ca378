"""Incidents of a topic that was made again, or lost its end, reach the receivers as new ones."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.actuators.loop import PARTITIONS, publish, wait_for
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.kafka import RealKafka
from tests.cli.decisions.test_incidents import incident
from tests.streams.notify.receivers import Receiver, receiving

from flyball_contracts.config import KafkaConfig
from flyball_contracts.kafka import consumer_settings, open_consumer
from flyball_contracts.topics import INCIDENTS
from flyball_streams.notify import run as running, run_notifier
from flyball_streams.notify.targets import Webhook

DEADLINE_S = 60.0
ONE = {**PARTITIONS, INCIDENTS.name: 1}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "POLL_S", 0.02)


def told(hook: Receiver) -> list[str]:
    return [f"{body['incident']['id']} {body['status']}" for body in hook.bodies]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.message for r in caplog.records if "was made again or lost messages" in r.message]


def deliver(bootstrap: str, hook: Receiver) -> None:
    """Deliver what is there with a notifier that ends."""
    run_notifier(KafkaConfig(bootstrap=bootstrap), [Webhook(hook.url)], stop=threading.Event(), once=True)


@contextmanager
def notifier(bootstrap: str, hook: Receiver) -> Generator[None]:
    """A notifier that runs until the end of the block."""
    stop = threading.Event()
    arguments = KafkaConfig(bootstrap=bootstrap), [Webhook(hook.url)]
    thread = threading.Thread(target=run_notifier, args=arguments, kwargs={"stop": stop})
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def commit(bootstrap: str, offset: int) -> None:
    """What a notifier of before has delivered."""
    consumer = Consumer(consumer_settings(bootstrap, group=running.GROUP, client_id="test"))
    consumer.commit(offsets=[TopicPartition(INCIDENTS.name, 0, offset)], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize(("committed", "posted"), [(7, ["b firing"]), (3, [])])
def test_after_a_start_with_fewer_messages_than_were_delivered_all_are_new(
    embedded_broker: Callable[..., EmbeddedBroker],
    caplog: pytest.LogCaptureFixture,
    committed: int,
    posted: list[str],
) -> None:
    bootstrap = embedded_broker(ONE).bootstrap
    publish(bootstrap, incident("a"), incident("b"), incident("a", 2, status="resolved"))
    commit(bootstrap, committed)
    with receiving(Receiver()) as hook:
        deliver(bootstrap, hook)
        assert told(hook) == posted, "what is over by now needs nobody"
        assert len(warnings(caplog)) == len(posted)
        publish(bootstrap, incident("c"))
        deliver(bootstrap, hook)
        assert told(hook) == [*posted, "c firing"]
    assert len(warnings(caplog)) == len(posted), "the offsets of the new topic are committed"


class Switched:
    """A client's consumer whose broker is another one from some moment on: it reads that one's topic from its start."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._next: Consumer | None = None

    def switch(self, bootstrap: str) -> None:
        settings = consumer_settings(bootstrap, group=running.GROUP, client_id="test")
        other = Consumer({**settings, "enable.partition.eof": True})
        other.assign([TopicPartition(INCIDENTS.name, 0, 0)])
        self._next = other

    def consume(self, most: int, timeout_s: float) -> list[Any]:
        if self._next is not None:  # in the thread that uses the consumer
            self._consumer.close()
            self._consumer, self._next = self._next, None
        return self._consumer.consume(most, timeout_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


def test_while_it_runs_a_topic_that_begins_again_is_noticed(
    embedded_broker: Callable[..., EmbeddedBroker], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bootstrap, other = embedded_broker(ONE).bootstrap, embedded_broker(ONE).bootstrap
    opened: list[Switched] = []

    def switched(*arguments: Any) -> Switched:
        opened.append(Switched(open_consumer(*arguments)))
        return opened[-1]

    publish(bootstrap, *(incident(name) for name in "abcde"))
    publish(other, incident("g"), incident("h"), incident("g", 2, status="resolved"))
    with receiving(Receiver()) as hook:
        deliver(bootstrap, hook)
        monkeypatch.setattr(running, "open_consumer", switched)
        with notifier(bootstrap, hook):
            publish(bootstrap, incident("f"))
            wait_for(lambda: told(hook)[5:] == ["f firing"], "the last of the old topic")
            opened[0].switch(other)
            wait_for(lambda: "h firing" in told(hook), "what the new topic has")
            publish(other, incident("i"))
            wait_for(lambda: "i firing" in told(hook), "what comes later")
        assert told(hook)[6:] == ["h firing", "i firing"], "what is over by now needs nobody"
    assert len(warnings(caplog)) == 1


@pytest.mark.integration
def test_a_real_topic_that_is_made_again_is_noticed(real_kafka: RealKafka, caplog: pytest.LogCaptureFixture) -> None:
    bootstrap = real_kafka.bootstrap
    make(real_kafka)
    publish(bootstrap, *(incident(name) for name in "abcde"))
    with receiving(Receiver()) as hook:
        deliver(bootstrap, hook)
        with notifier(bootstrap, hook):
            publish(bootstrap, incident("f"))
            wait_for(lambda: told(hook)[5:] == ["f firing"], "the last of the old topic")
            make(real_kafka)
            publish(bootstrap, incident("g"))
            wait_for(lambda: told(hook)[6:] == ["g firing"], "what the new topic has")
    assert len(warnings(caplog)) == 1


def make(kafka: RealKafka) -> None:
    """Make the topic, and delete the one that is there."""
    admin: Any = AdminClient({"bootstrap.servers": kafka.bootstrap})  # its own types are incomplete

    def there() -> bool:
        return INCIDENTS.name in admin.list_topics(timeout=10).topics

    if there():
        admin.delete_topics([INCIDENTS.name])[INCIDENTS.name].result(DEADLINE_S)
        wait_for(lambda: not there(), "the end of the topic")
    kafka.create_topics({INCIDENTS.name: 1})
