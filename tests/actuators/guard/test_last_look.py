"""Between the guard's word and the platform a disk or a queue may take long: it is looked once more."""

from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from tests.actuators.loop import (
    FilePlatform,
    config_for,
    ended,
    live,
    of,
    publish,
    running,
    statuses_of,
    wait_for,
)
from tests.actuators.samples import NOW, S, scale, spec

from flyball_actuators.ledger import Ledger
from flyball_actuators.platforms import Handle, Rejected
from flyball_contracts.records import AnyDecision, SubjectState

Unique = Callable[[str], str]


def slow_disk(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[str], object]) -> None:
    """While the ledger syncs what is about to be sent, something else happens."""
    send = Ledger.send

    def sync(self: Ledger, decision: AnyDecision) -> None:
        send(self, decision)
        meanwhile(decision.id)

    monkeypatch.setattr(Ledger, "send", sync)


def test_a_kill_switch_that_comes_while_the_disk_syncs_stops_it(
    bootstrap: str, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch, driver = tmp_path / "stop", FilePlatform(tmp_path / "effects")
    slow_disk(monkeypatch, lambda _: switch.write_text("rack on fire"))
    ledger = tmp_path / "ledger"
    config = config_for(bootstrap, unique("actuator"), mode="live", ledger=str(ledger), kill_switch=str(switch))
    with running(config, driver):
        publish(bootstrap, scale())
        wait_for(ended(bootstrap, 1), "the final outcome")
    assert driver.effects() == []
    assert statuses_of(bootstrap, "d1") == ["accepted", "refused kill_switch"]
    assert "rack on fire" in of(bootstrap, "d1", "refused").detail
    with Ledger(ledger) as again:
        entry = again.get("d1")
        assert entry is not None
        assert entry.step == "refused", "it was not sent, and nothing says that it might have been"
        assert list(again.grants()) == []


def test_a_decision_that_expires_while_the_disk_syncs_is_not_told(
    bootstrap: str, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns, driver = [NOW], FilePlatform(tmp_path / "effects")

    def pass_time(_: str) -> None:
        now_ns[0] = NOW + 120 * S

    slow_disk(monkeypatch, pass_time)
    with running(live(bootstrap, unique("actuator"), tmp_path), driver, lambda: now_ns[0]):
        publish(bootstrap, scale())
        wait_for(ended(bootstrap, 1), "the final outcome")
    assert driver.effects() == []
    assert statuses_of(bootstrap, "d1") == ["accepted", "refused expired"]


def test_a_kill_switch_that_comes_while_calls_wait_for_a_thread_stops_them(
    bootstrap: str, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(FilePlatform):
        def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
            handle = super().submit(decision, observed, dry_run=dry_run)
            assert free.wait(30.0)
            return handle

    free, sent = Event(), list[str]()
    switch, driver = tmp_path / "stop", Slow(tmp_path / "effects")
    slow_disk(monkeypatch, sent.append)
    monkeypatch.setattr("flyball_actuators.execution.carry_out.CALLS_AT_ONCE", 1)
    publish(bootstrap, spec("other"), scale("first"), scale("second", workload="other"))
    config = config_for(
        bootstrap, unique("actuator"), mode="live", ledger=str(tmp_path / "ledger"), kill_switch=str(switch)
    )
    with running(config, driver):
        wait_for(lambda: len(sent) == 2, "a call under way and one that waits")
        switch.write_text("")
        free.set()
        wait_for(ended(bootstrap, 2), "two final outcomes")
    (submitted,) = driver.effects()
    (kept,) = {"first", "second"} - {submitted}
    assert statuses_of(bootstrap, kept) == ["accepted", "refused kill_switch"]
