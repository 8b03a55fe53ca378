from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from tests.actuators.loop import (
    PARTITIONS,
    FileDriver,
    committed,
    config_for,
    outcomes,
    publish,
    read_all,
    running,
    said,
    wait_for,
)
from tests.actuators.samples import NOW, S, inventory, migrate, preempt, scale, spec

from flyball_actuators.drivers import Answer
from flyball_actuators.service import run_actuator
from flyball_contracts.codec import Message, record_message
from flyball_contracts.errors import ConfigError, TransportError
from flyball_contracts.records import AnyDecision, Outcome
from flyball_contracts.topics import DEAD_LETTERS, DECISIONS, INVENTORY, WORKLOADS
from flyball_streams.broker import EmbeddedBroker

Brokers = Callable[..., EmbeddedBroker]
Unique = Callable[[str], str]


@pytest.fixture
def bootstrap(embedded_broker: Brokers) -> str:
    address = embedded_broker(PARTITIONS).bootstrap
    publish(address, spec(), inventory(replicas=4), inventory("n2"))
    return address


def ended(bootstrap: str, decisions: int) -> Callable[[], bool]:
    """Whether so many decisions have had a last word."""
    return lambda: len({o.decision for o in outcomes(bootstrap) if o.status != "accepted"}) >= decisions


def test_each_decision_ends_in_an_outcome_and_is_committed(bootstrap: str, unique: Unique) -> None:
    group = unique("actuator")
    with running(config_for(bootstrap, group)) as actuator:
        publish(bootstrap, scale(time_ns=NOW - 3 * S), preempt(), migrate(to_node="n2"), scale("bad", after=99))
        wait_for(ended(bootstrap, 4), "four last words")
        wait_for(lambda: committed(bootstrap, group) == 4, "the commit")
    assert said(bootstrap, "d1") == ["accepted", "done"]
    assert said(bootstrap, "p1") == ["accepted", "done"]
    assert said(bootstrap, "m1") == ["accepted", "done"]
    assert said(bootstrap, "bad") == ["refused invalid"]
    (done,) = [o for o in outcomes(bootstrap) if o.decision == "d1" and o.status == "done"]
    assert done == Outcome(
        id=done.id, decision="d1", type="Scale", target="chat", cell="cell-a", workload="chat", time_ns=NOW,
        status="done", mode="dry_run", driver="dry_run", effect_after_s=3.0, answer=done.answer,
    )  # fmt: skip
    assert done.answer.startswith("would have scaled target 'chat'")
    assert actuator.report is not None
    assert actuator.report.decisions == 4
    assert actuator.report.statuses == {"accepted": 3, "done": 3, "refused": 1}
    assert actuator.report.refusals == {"invalid": 1}
    assert actuator.report.delivered == 7


def test_a_duplicate_is_refused_without_a_call(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    driver = FileDriver(tmp_path / "effects")
    config = config_for(bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"))
    with running(config, driver) as actuator:
        publish(bootstrap, scale(), scale(), scale())
        wait_for(lambda: len(outcomes(bootstrap)) >= 4, "four outcomes")
    assert driver.effects() == ["d1"]
    assert said(bootstrap, "d1") == ["accepted", "done", "refused duplicate", "refused duplicate"]
    assert actuator.report is not None
    assert actuator.report.refusals == {"duplicate": 2}


def test_an_overtaken_decision_is_superseded(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    driver = FileDriver(tmp_path / "effects")
    config = config_for(bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"))
    with running(config, driver):
        publish(bootstrap, scale("new", after=8), scale("old", time_ns=NOW - S))
        wait_for(ended(bootstrap, 2), "two last words")
    assert driver.effects() == ["new"]
    assert said(bootstrap, "old") == ["superseded stale"]


def test_what_cannot_be_read_goes_to_the_dead_letters(bootstrap: str, unique: Unique) -> None:
    group = unique("actuator")
    good = record_message(scale(), "/test")
    broken = good._replace(value=b"{")
    nameless = Message(DECISIONS.name, b"chat", b"{}", [])
    with running(config_for(bootstrap, group)) as actuator:
        publish(bootstrap, broken, nameless, good)
        wait_for(lambda: committed(bootstrap, group) == 3, "the commit")
    letters = dict(read_all(bootstrap, DEAD_LETTERS.name)[i] for i in range(2))
    assert set(letters) == {b"{", b"{}"}
    why = dict(letters[b"{}"])
    assert why["__connect.errors.stage"] == b"flyball-actuator"
    assert b"no ce_type header" in why["__connect.errors.exception.message"]
    assert said(bootstrap, "d1") == ["accepted", "done"]
    assert actuator.report is not None
    assert actuator.report.undecodable == 2


def test_the_kill_switch_refuses_while_it_is_there(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    switch = tmp_path / "stop"
    driver = FileDriver(tmp_path / "effects")
    config = config_for(
        bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"), kill_switch=str(switch)
    )
    with running(config, driver):
        publish(bootstrap, scale("before"))
        wait_for(ended(bootstrap, 1), "the first last word")
        switch.write_text("rack on fire")
        publish(bootstrap, scale("during"))
        wait_for(ended(bootstrap, 2), "the second last word")
        switch.unlink()
        publish(bootstrap, scale("after"))
        wait_for(ended(bootstrap, 3), "the third last word")
    assert driver.effects() == ["before", "after"]
    (refused,) = [o for o in outcomes(bootstrap) if o.decision == "during"]
    assert refused.code == "kill_switch"
    assert "rack on fire" in refused.detail


def test_a_workload_published_just_before_its_decision_is_known(bootstrap: str, unique: Unique) -> None:
    broken = record_message(spec("broken"), "/test")._replace(value=b"[]")
    tombstone = Message(WORKLOADS.name, b"chat", b"", [])
    with running(config_for(bootstrap, unique("actuator"))) as actuator:
        publish(bootstrap, broken, spec("fresh"), scale("f1", workload="fresh"))
        wait_for(ended(bootstrap, 1), "the first last word")
        publish(bootstrap, spec("chat", removed=True), scale("c1"))
        wait_for(ended(bootstrap, 2), "the second last word")
        publish(bootstrap, tombstone._replace(topic=INVENTORY.name, key=b"n2"), migrate(to_node="n9"))
        wait_for(ended(bootstrap, 3), "the third last word")
    assert said(bootstrap, "f1") == ["accepted", "done"]
    assert said(bootstrap, "c1") == ["refused unknown_target"]
    assert actuator.report is not None
    assert actuator.report.unreadable_world >= 1


def test_the_event_clock_judges_a_recording_by_its_own_time(bootstrap: str, unique: Unique) -> None:
    past = NOW - 86_400 * S  # the wall clock of these tests stands at NOW
    with running(config_for(bootstrap, unique("actuator"), clock="event")):
        publish(bootstrap, scale("then", time_ns=past), scale("later", time_ns=past + 60 * S))
        publish(bootstrap, scale("late", time_ns=past - 120 * S, workload="chat"))
        wait_for(ended(bootstrap, 3), "three last words")
    assert said(bootstrap, "then") == ["accepted", "done"]
    assert said(bootstrap, "later") == ["accepted", "done"]
    assert said(bootstrap, "late") == ["refused expired"]
    assert {o.time_ns for o in outcomes(bootstrap) if o.decision == "later"} == {past + 60 * S}


def test_a_driver_that_raises_is_not_asked_again(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    class Raising(FileDriver):
        def apply(self, decision: AnyDecision) -> Answer:
            super().apply(decision)
            raise TimeoutError("no answer in 10 s")

    driver = Raising(tmp_path / "effects")
    config = config_for(bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"))
    with running(config, driver):
        publish(bootstrap, scale(), scale())
        wait_for(lambda: len(outcomes(bootstrap)) >= 3, "three outcomes")
    assert driver.effects() == ["d1"]
    assert said(bootstrap, "d1") == ["accepted", "failed", "refused duplicate"]
    (failed,) = [o for o in outcomes(bootstrap) if o.status == "failed"]
    assert failed.answer.startswith("unknown outcome: TimeoutError: no answer in 10 s")


def test_settings_that_cannot_work_are_refused_at_the_start(tmp_path: Path) -> None:
    live = config_for("127.0.0.1:1", "g", mode="live")
    with pytest.raises(ConfigError, match="needs a ledger file"):
        run_actuator(live, stop=Event(), driver=FileDriver(tmp_path / "effects"))
    with pytest.raises(ConfigError, match="'magic' is not known"):
        run_actuator(config_for("127.0.0.1:1", "g", driver="magic"), stop=Event())


def test_a_wrong_address_is_a_transport_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyball_actuators.world._ANSWER_S", 1.0)
    with pytest.raises(TransportError, match=r"127\.0\.0\.1:1: .*is a broker there\?"):
        run_actuator(config_for("127.0.0.1:1", "g"), stop=Event())
