"""The world is read to its end, and a broker that announces records and does not deliver them is not waited for."""

from collections.abc import Callable, Iterator
from threading import Event, Timer

import pytest
from tests.actuators.loop import PARTITIONS, publish
from tests.actuators.samples import spec
from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.faults import ApiKey, Fault

from flyball_actuators.session import Session
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import TransportError

Site = tuple[EmbeddedBroker, Session]
FAILS = [Fault.REQUEST_TIMED_OUT] * 10_000


@pytest.fixture
def site(embedded_broker: Callable[..., EmbeddedBroker], monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A broker with one workload, and a session that was not started."""
    monkeypatch.setattr("flyball_actuators.world.reader._ANSWER_S", 2.0)
    broker, stop = embedded_broker(PARTITIONS), Event()
    publish(broker.bootstrap, spec())
    session = Session(KafkaConfig(bootstrap=broker.bootstrap), "actuator", "a", stop)
    for_ever = Timer(60.0, stop.set)  # a test fails then, where it would hang
    for_ever.start()
    yield broker, session
    for_ever.cancel()
    session.close()


def test_a_start_fails(site: Site) -> None:
    broker, session = site
    broker.push_request_errors(ApiKey.FETCH, FAILS)
    with pytest.raises(TransportError, match=r"cannot be read: 1 records were not delivered within 2 s; is a broker"):
        session.start()


def test_a_look_at_the_latest_is_given_up_with_a_warning(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    broker, session = site
    session.start()
    broker.push_request_errors(ApiKey.FETCH, FAILS)
    publish(broker.bootstrap, spec("other"))
    session.refresh()
    assert "could not be brought up to date: 1 records were not delivered within 2 s" in caplog.text
    assert session.world("").workloads.keys() == {"chat"}
