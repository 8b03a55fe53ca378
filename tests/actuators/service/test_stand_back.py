"""Partitions are added: whoever acts with the new number waits for those who still know the old one."""

from collections.abc import Callable
from threading import Event

import pytest
from confluent_kafka import Consumer

from flyball_actuators import stand_back as module
from flyball_actuators.lease import STAND_BACK_S, TOPICS_S, Lease
from flyball_actuators.stand_back import committed_with, stand_back
from flyball_contracts.kafka import consumer_settings


def test_who_begins_with_more_partitions_than_the_group_had_stands_back(
    bootstrap: str, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "STAND_BACK_S", 0.3)
    consumer = Consumer(consumer_settings(bootstrap, group=unique("stand-back"), client_id="test"))
    beats: list[int] = []

    def begin() -> bool:
        """Begin with two partitions; whether that was put off."""
        beats.clear()
        stand_back(consumer, 2, Event(), lambda: beats.append(1))
        return bool(beats)

    try:
        assert not begin(), "no actuator has acted"
        consumer.commit(offsets=committed_with({0: 1}, 1), asynchronous=False)
        assert begin()
        assert "has 2 partitions, and the group acted when it had 1" in caplog.text
        consumer.commit(offsets=committed_with({1: 1}, 2), asynchronous=False)
        assert not begin(), "an actuator has acted with two, and has waited before"
    finally:
        consumer.close()


def test_nobody_acts_who_has_not_seen_the_topics_lately() -> None:
    now_s = 100.0
    lease = Lease(1000.0, lambda: now_s)
    lease.commit_sent()
    lease.commit_answered(accepted=True)
    assert lease.valid()
    lease.topics_seen(now_s)
    assert lease.valid()
    now_s += TOPICS_S
    assert not lease.valid()
    lease.topics_seen(now_s)
    assert lease.valid()
    assert STAND_BACK_S > TOPICS_S, "who stands back outlasts who has not noticed"
