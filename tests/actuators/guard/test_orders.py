"""Stops and approvals of people, through their topic, judged at the platform."""

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import KafkaError
from tests.actuators.guard.test_last_look import slow_disk
from tests.actuators.loop import PARTITIONS, FilePlatform, config_for, live, of, publish, running, statuses_of, wait_for
from tests.actuators.samples import NOW, S, scale, spec
from tests.brokers.embedded import EmbeddedBroker

from flyball_actuators.parameters import RateParameters
from flyball_actuators.topics_watch import TopicsWatch
from flyball_contracts.config import GuardPolicy
from flyball_contracts.kafka import producer_settings
from flyball_contracts.records import Approval, Stop
from flyball_contracts.topics import CONTROLS

Unique = Callable[[str], str]


@pytest.fixture(autouse=True)
def _clean(bootstrap: str) -> None:
    """Others use the same topics."""
    publish(bootstrap, *(Stop(cell=cell, time_ns=NOW, by="test", removed=True) for cell in ("*", "cell-*", "cell-b")))


def decided(bootstrap: str, id_: str, number: int = 0, after: int = 6) -> str:
    """Decide, and wait for the final outcome."""
    publish(bootstrap, scale(id_, before=4, after=after, time_ns=NOW + number))
    wait_for(lambda: bool(ends(bootstrap, id_)), f"the final outcome on {id_}")
    return ends(bootstrap, id_)[0]


def ends(bootstrap: str, id_: str) -> list[str]:
    return [
        word for word in statuses_of(bootstrap, id_) if word.split()[0] in ("done", "failed", "refused", "superseded")
    ]


def decided_until(word: str, bootstrap: str, prefix: str, after: int = 6) -> None:
    """Decide again until an order that was just published has been read."""
    numbers = count(1)
    wait_for(lambda: decided(bootstrap, f"{prefix}-{(n := next(numbers))}", n, after) == word, word)


def test_a_stop_holds_in_its_cells_until_it_is_taken_back(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    driver = FilePlatform(tmp_path / "effects")
    publish(bootstrap, spec(), Stop(cell="cell-*", time_ns=NOW, by="an operator", reason="cooling fails"))
    with running(live(bootstrap, unique("actuator"), tmp_path), driver):
        assert decided(bootstrap, "o1") == "refused kill_switch"
        detail = of(bootstrap, "o1", "refused").detail
        assert "an operator stopped cells 'cell-*': cooling fails" in detail
        assert "flyball resume --cell 'cell-*'" in detail
        assert driver.effects() == []
        publish(bootstrap, Stop(cell="cell-*", time_ns=NOW, by="an operator", removed=True))
        publish(bootstrap, Stop(cell="cell-b", time_ns=NOW, by="an operator"))  # not ours
        decided_until("done", bootstrap, "o1")
    assert "o1" not in driver.effects()


def test_a_stop_that_comes_while_the_disk_syncs_stops_it(
    bootstrap: str, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = FilePlatform(tmp_path / "effects")

    def stop(_: str) -> None:
        publish(bootstrap, Stop(cell="*", time_ns=NOW, by="an operator", reason="fire"))
        time.sleep(1.0)  # the broker answers a fetch that waits at once; this is many times what that takes

    slow_disk(monkeypatch, stop)
    publish(bootstrap, spec())
    with running(live(bootstrap, unique("actuator"), tmp_path), driver):
        assert decided(bootstrap, "o2") == "refused kill_switch"
    assert driver.effects() == []
    assert statuses_of(bootstrap, "o2") == ["accepted", "refused kill_switch"]


def test_what_takes_an_approval_is_done_when_it_is_decided_again(
    bootstrap: str, unique: Unique, tmp_path: Path
) -> None:
    driver = FilePlatform(tmp_path / "effects")
    policy = GuardPolicy(name="ask", workloads=("chat",), approval=True)
    config = config_for(
        bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"), policies=(policy,),
        per_target=RateParameters(actions=1_000),
    )  # fmt: skip
    publish(bootstrap, spec())
    with running(config, driver):
        assert decided(bootstrap, "o3", after=8) == "refused approval"
        assert "flyball approve o3" in of(bootstrap, "o3", "refused").detail
        agreed = scale("o3", before=4, after=8)
        publish(bootstrap, Approval(decision=agreed, time_ns=NOW, until_ns=NOW + 600 * S, by="an engineer"))
        decided_until("done", bootstrap, "o3", after=7)
        assert decided(bootstrap, "o4", 1_000, after=9) == "refused approval"
    assert len(driver.effects()) == 1


def test_while_stops_cannot_be_read_nothing_is_started(
    embedded_broker: Callable[..., EmbeddedBroker],
    unique: Unique,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("flyball_actuators.topics_watch.EVERY_S", 0.1)
    monkeypatch.setattr("flyball_actuators.lease.TOPICS_S", 2.0)
    broker, driver = embedded_broker(PARTITIONS), FilePlatform(tmp_path / "effects")
    publish(broker.bootstrap, spec())
    with running(live(broker.bootstrap, unique("actuator"), tmp_path), driver):
        assert decided(broker.bootstrap, "o5") == "done"
        broker.set_topic_error(CONTROLS.name, KafkaError.TOPIC_AUTHORIZATION_FAILED)
        wait_for(lambda: "nothing is started until this is mended" in caplog.text, "the warning")
        time.sleep(2.5)  # the lease of the topics ends
        publish(broker.bootstrap, scale("o6", before=4, after=6, time_ns=NOW + 1))
        time.sleep(1.0)
        assert driver.effects() == ["o5"]
        broker.set_topic_error(CONTROLS.name, 0)
        wait_for(lambda: ends(broker.bootstrap, "o6") == ["done"], "the effect once stops can be read")
    (line,) = [record.message for record in caplog.records if "nothing is started" in record.message]
    assert f"{CONTROLS.name} may not be described by this user; allow READ" in line


def test_a_reader_that_lags_behind_the_stops_ends_the_lease(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("flyball_actuators.topics_watch.EVERY_S", 0.1)
    seen: list[float] = []
    position = {0: 0, 1: 0}
    settings = producer_settings(bootstrap, client_id="test", linger_ms=0)
    watch = TopicsWatch(settings, bootstrap, seen.append, lambda: position)
    publish(bootstrap, Stop(cell="cell-*", time_ns=NOW, by="an operator"))
    try:
        watch.start(Event())
        wait_for(lambda: "a stop may be unread; allow READ on it" in caplog.text, "the warning")
        before = len(seen)
        time.sleep(0.5)
        assert len(seen) == before
        position.update({0: 9, 1: 9})
        wait_for(lambda: len(seen) > before, "the lease again")
    finally:
        watch.close()
