"""Crashes, redelivery and a broker that goes away: a decision has at most one effect, and always a last word."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.actuators.loop import (
    DEADLINE_S,
    PARTITIONS,
    FileDriver,
    committed,
    config_for,
    outcomes,
    publish,
    running,
    said,
    wait_for,
)
from tests.actuators.samples import NOW, S, inventory, scale, spec

from flyball_actuators.drivers import Answer
from flyball_actuators.ledger import Ledger
from flyball_actuators.outbox import Outbox
from flyball_actuators.service import _Service  # pyright: ignore[reportPrivateUsage]
from flyball_contracts.codec import Message
from flyball_contracts.records import AnyDecision
from flyball_streams.broker import EmbeddedBroker

ROOT = Path(__file__).resolve().parents[2]


class Site(FileDriver):
    """One broker, group, driver and ledger that outlive the actuators run on them."""

    def __init__(self, broker: EmbeddedBroker, group: str, folder: Path) -> None:
        self.file = folder / "effects"
        super().__init__(self.file)
        self.broker, self.bootstrap, self.group = broker, broker.bootstrap, group
        self.ledger = folder / "ledger"
        self.config = config_for(self.bootstrap, group, mode="live", ledger=str(self.ledger))
        publish(self.bootstrap, spec(), inventory(replicas=4))

    def restart(self) -> None:
        """Let the next actuator start where the group's commits stand, which must be nowhere yet.

        It is another group: the mock lets no member into a group that existed before a session timeout is over.
        """
        assert committed(self.bootstrap, self.group) == 0
        self.group += "-again"
        self.config = config_for(self.bootstrap, self.group, mode="live", ledger=str(self.ledger))

    def step(self, decision: str) -> str:
        with Ledger(self.ledger) as ledger:
            entry = ledger.get(decision)
        return entry.step if entry else ""


@pytest.fixture
def site(embedded_broker: Callable[..., EmbeddedBroker], unique: Callable[[str], str], tmp_path: Path) -> Site:
    return Site(embedded_broker(PARTITIONS), unique("actuator"), tmp_path)


class Crash(BaseException):
    """What no handler of ours may catch."""


def crash(site: Site) -> None:
    """Run an actuator to its crash, which the caller has prepared."""
    with running(site.config, site) as actuator:
        wait_for(lambda: actuator.error is not None, "the crash")


@pytest.mark.parametrize(("when", "effects"), [("before", []), ("after", ["d1"])])
def test_killed_between_sent_and_answer_is_reported_as_unknown(site: Site, when: str, effects: list[str]) -> None:
    publish(site.bootstrap, scale())
    arguments = [site.bootstrap, site.group, str(site.file), str(site.ledger), when]
    folders = os.pathsep.join(str(ROOT / part) for part in ("", "contracts", "actuators", "streams"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.actuators.crashing", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": folders},
        timeout=DEADLINE_S,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert site.step("d1") == "sent"
    assert committed(site.bootstrap, site.group) == 0
    publish(site.bootstrap, scale("d2", time_ns=NOW + S))
    site.restart()
    with running(site.config, site):
        wait_for(lambda: "done" in said(site.bootstrap, "d2"), "the outcome of the next decision")
    assert site.effects() == [*effects, "d2"], "sent twice"
    (last,) = [o for o in outcomes(site.bootstrap) if o.decision == "d1" and o.status == "failed"]
    assert last.detail.startswith("unknown outcome: a crash while the driver was called; look at the platform")
    assert said(site.bootstrap, "d1")[-1] == "failed"


def test_a_crash_between_effect_and_commit_acts_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(site.bootstrap, scale(), scale("d2", time_ns=NOW + S))

    def die(service: _Service) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(_Service, "_commit", die)
        with pytest.raises(Crash):
            crash(site)
    assert committed(site.bootstrap, site.group) == 0
    site.restart()
    with running(site.config, site):
        wait_for(lambda: committed(site.bootstrap, site.group) == 2, "the commit")
    assert sorted(site.effects()) == ["d1", "d2"]
    for decision in ("d1", "d2"):
        assert said(site.bootstrap, decision) == ["accepted", "done", "refused duplicate", "done"]
    first, again = (o for o in outcomes(site.bootstrap) if o.decision == "d1" and o.status == "done")
    assert first == again, "the last word is said again, unchanged, in case it was lost"


def test_an_outcome_lost_in_a_crash_is_said_after_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(site.bootstrap, scale())
    put = Outbox.put

    def die(outbox: Outbox, message: Message) -> None:
        if b'"status":"done"' in message.value:
            raise Crash
        put(outbox, message)

    with monkeypatch.context() as patch:
        patch.setattr(Outbox, "put", die)
        with pytest.raises(Crash):
            crash(site)
    assert "done" not in said(site.bootstrap, "d1")
    assert site.step("d1") == "done"
    site.restart()
    with running(site.config, site):
        wait_for(lambda: "done" in said(site.bootstrap, "d1"), "the outcome")
    assert site.effects() == ["d1"]


def test_a_broker_that_goes_away_and_comes_back_loses_and_doubles_nothing(site: Site) -> None:
    with running(site.config, site) as actuator:
        publish(site.bootstrap, scale("d1"))
        wait_for(lambda: committed(site.bootstrap, site.group) == 1, "the first commit")
        publish(site.bootstrap, *(scale(f"e{i}", time_ns=NOW + i * S) for i in range(1, 4)))
        site.broker.set_down()
        site.broker.set_up()
        publish(site.bootstrap, scale("d2", time_ns=NOW + 9 * S))
        wait_for(lambda: committed(site.bootstrap, site.group) == 5, "the commits after the outage")
    assert sorted(site.effects()) == ["d1", "d2", "e1", "e2", "e3"]
    for decision in site.effects():
        assert "done" in said(site.bootstrap, decision)
    assert actuator.report is not None


def test_an_outage_after_the_effect_delays_the_outcome(site: Site) -> None:
    class Cutting(FileDriver):
        def apply(self, decision: AnyDecision) -> Answer:
            answer = super().apply(decision)
            site.broker.set_down()
            return answer

    with running(site.config, Cutting(site.file)):
        publish(site.bootstrap, scale())
        wait_for(lambda: site.effects() == ["d1"], "the effect")
        site.broker.set_up()
        wait_for(lambda: committed(site.bootstrap, site.group) == 1, "the commit")
    assert said(site.bootstrap, "d1") == ["accepted", "done"]


def test_it_stops_in_the_middle_of_an_outage_and_speaks_at_the_next_start(site: Site) -> None:
    class Cutting(FileDriver):
        def apply(self, decision: AnyDecision) -> Answer:
            answer = super().apply(decision)
            site.broker.set_down()
            actuator.stop.set()
            return answer

    with running(site.config, Cutting(site.file)) as actuator:
        publish(site.bootstrap, scale())
        actuator.join()
    site.broker.set_up()
    site.restart()
    with running(site.config, site):
        wait_for(lambda: said(site.bootstrap, "d1")[-1:] == ["done"], "the outcome")
    assert site.effects() == ["d1"]


def test_redelivery_in_another_order_acts_once_on_each(site: Site) -> None:
    first = [scale(f"d{i}", time_ns=NOW + i * S) for i in range(4)]
    with running(site.config, site):
        publish(site.bootstrap, *first)
        publish(site.bootstrap, *reversed(first))
        wait_for(lambda: committed(site.bootstrap, site.group) == 8, "the commits")
    assert site.effects() == ["d0", "d1", "d2", "d3"]
    for decision in first:
        assert said(site.bootstrap, decision.id) == ["accepted", "done", "refused duplicate"]
