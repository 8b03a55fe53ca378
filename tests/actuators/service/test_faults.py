"""What happens when a process or the broker goes away: each decision has at most one effect, and a final outcome."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from tests.actuators.loop import (
    DEADLINE_S,
    PARTITIONS,
    FilePlatform,
    committed,
    config_for,
    outcomes,
    publish,
    running,
    statuses_of,
    wait_for,
)
from tests.actuators.platform_server import PlatformServer, platform_server
from tests.actuators.samples import NOW, S, inventory, scale, spec
from tests.brokers.embedded import EmbeddedBroker
from tests.cli.shell import Forked

from flyball_actuators.ledger import Ledger
from flyball_actuators.loop import Loop
from flyball_actuators.outbox import Delivered, Outbox
from flyball_actuators.platforms import SimulatedPlatform
from flyball_contracts.codec import Message
from flyball_contracts.config import Config
from flyball_contracts.records import Scale

CRASHING = "tests.actuators.crashing"


class Site:
    """One broker, group, platform and ledger that outlive the actuators run on them."""

    def __init__(self, broker: EmbeddedBroker, group: str, server: PlatformServer, folder: Path) -> None:
        self.broker, self.bootstrap, self.group, self.server = broker, broker.bootstrap, group, server
        self.platform = SimulatedPlatform(server.url, 5.0)
        self.ledger = folder / "ledger"
        publish(self.bootstrap, *map(spec, NAMES), inventory(replicas=4))

    @property
    def config(self) -> Config:
        return config_for(self.bootstrap, self.group, mode="live", ledger=str(self.ledger))

    def restart(self) -> None:
        """Let the next actuator start where the group's commits stand, which must be nowhere yet.

        It is another group: the mock lets no member into a group that existed before a session timeout is over.
        """
        assert committed(self.bootstrap, self.group) == 0
        self.group += "-again"

    def step(self, decision: str) -> str:
        with Ledger(self.ledger) as ledger:
            entry = ledger.get(decision)
        return entry.step if entry else ""

    def killed(self, when: str, where: str = "") -> None:
        """Run an actuator that is killed before or after the effect of its first submission."""
        arguments = [self.bootstrap, self.group, where or self.server.url, str(self.ledger), when]
        with NamedTemporaryFile() as said:
            process = Forked(CRASHING, *arguments, output=said.name, errors=said.name, imports=[CRASHING])
            assert process.wait(DEADLINE_S) == -signal.SIGKILL, said.read().decode()
        assert self.step("d1") == "sent"
        assert committed(self.bootstrap, self.group) == 0


NAMES = ("chat", "w1", "w2", "w3", "w4")


def apart(*ids: str) -> list[Scale]:
    """Decisions about a workload each, so that none supersedes another."""
    return [scale(id_, workload=name) for id_, name in zip(ids, NAMES, strict=False)]


@pytest.fixture
def site(
    embedded_broker: Callable[..., EmbeddedBroker], unique: Callable[[str], str], tmp_path: Path
) -> Iterator[Site]:
    with platform_server(**dict.fromkeys(NAMES, 4)) as server:
        yield Site(embedded_broker(PARTITIONS), unique("actuator"), server, tmp_path)


class Crash(BaseException):
    """What no handler of ours may catch."""


def crash(site: Site) -> None:
    """Run an actuator to its crash, which the caller has prepared."""
    with running(site.config, site.platform) as actuator:
        wait_for(lambda: actuator.error is not None, "the crash")


def abandon(loop: Loop) -> None:
    """End as a crash does: nothing more is said, and nothing committed."""
    loop._session.outbox.close()  # pyright: ignore[reportPrivateUsage]
    loop._watch.close()  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("ledger", ["its own", "none"])
def test_killed_between_call_and_answer_is_settled_by_looking(site: Site, when: str, ledger: str) -> None:
    publish(site.bootstrap, scale())
    site.killed(when)
    assert site.server.effects == {"before": [], "after": ["d1"]}[when]
    if ledger == "none":  # what another actuator knows: the outcomes alone
        site.ledger.unlink()
    site.restart()
    with running(site.config, site.platform):
        wait_for(lambda: "done" in statuses_of(site.bootstrap, "d1"), "the final outcome")
    assert site.server.log == site.server.effects == ["d1"], "told twice"
    assert statuses_of(site.bootstrap, "d1").count("done") == 1
    assert statuses_of(site.bootstrap, "d1")[-1] == "done"


@pytest.mark.parametrize(("when", "effects"), [("before", []), ("after", ["d1"])])
def test_what_no_platform_can_tell_has_an_unknown_outcome(
    site: Site, tmp_path: Path, when: str, effects: list[str]
) -> None:
    publish(site.bootstrap, scale())
    file = FilePlatform(tmp_path / "effects")
    site.killed(when, str(tmp_path / "effects"))
    publish(site.bootstrap, scale("d2", time_ns=NOW + S))
    site.restart()
    with running(site.config, file):
        wait_for(lambda: "done" in statuses_of(site.bootstrap, "d2"), "the outcome of the next decision")
    assert file.effects() == [*effects, "d2"], "told twice"
    (last,) = [o for o in outcomes(site.bootstrap) if o.decision == "d1" and o.status == "failed"]
    assert last.detail.startswith("unknown outcome: ")
    assert last.detail.endswith("look at the platform, it is not sent again")
    assert statuses_of(site.bootstrap, "d1") == ["accepted", "failed"]


def test_a_crash_between_effect_and_commit_acts_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(site.bootstrap, *apart("d1", "d2"))
    prove = Loop._renew_lease  # pyright: ignore[reportPrivateUsage]

    def die(loop: Loop) -> None:
        if loop._progress.ahead():  # pyright: ignore[reportPrivateUsage]
            raise Crash
        prove(loop)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_renew_lease", die)
        patch.setattr(Loop, "close", abandon)
        with pytest.raises(Crash):
            crash(site)
    site.restart()
    with running(site.config, site.platform):
        wait_for(lambda: committed(site.bootstrap, site.group) == 2, "the commit")
    assert sorted(site.server.effects) == ["d1", "d2"]
    for decision in ("d1", "d2"):
        last = [o for o in outcomes(site.bootstrap) if o.decision == decision and o.final]
        assert last == [last[0]] * len(last)
        assert last[0].status == "done"


def test_an_outcome_lost_in_a_crash_is_said_after_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(site.bootstrap, scale())
    put = Outbox.put

    def die(outbox: Outbox, message: Message, then: Delivered | None = None) -> None:
        if b'"status":"done"' in message.value:
            raise Crash
        put(outbox, message, then)

    with monkeypatch.context() as patch:
        patch.setattr(Outbox, "put", die)
        patch.setattr(Loop, "close", abandon)
        with pytest.raises(Crash):
            crash(site)
    assert "done" not in statuses_of(site.bootstrap, "d1")
    assert site.step("d1") == "done"
    site.restart()
    with running(site.config, site.platform):
        wait_for(lambda: "done" in statuses_of(site.bootstrap, "d1"), "the outcome")
    assert site.server.effects == ["d1"]


def test_a_broker_that_goes_away_and_comes_back_loses_and_doubles_nothing(site: Site) -> None:
    ids = ("d1", "e1", "e2", "e3", "d2")
    first, *more, last = apart(*ids)
    with running(site.config, site.platform):
        publish(site.bootstrap, first)
        wait_for(lambda: committed(site.bootstrap, site.group) == 1, "the first commit")
        publish(site.bootstrap, *more)
        site.broker.set_down()
        site.broker.set_up()
        publish(site.bootstrap, last)
        wait_for(lambda: committed(site.bootstrap, site.group) == 5, "the commits after the outage")
    assert sorted(site.server.effects) == sorted(ids)
    for decision in ids:
        final = [o for o in outcomes(site.bootstrap) if o.decision == decision and o.final]
        assert len(final) == 1


def test_an_outage_after_the_effect_delays_the_outcome(site: Site) -> None:
    site.server.held = True
    with running(site.config, site.platform):
        publish(site.bootstrap, scale())
        wait_for(lambda: "running" in statuses_of(site.bootstrap, "d1"), "the operation")
        site.broker.set_down()
        site.server.finish("d1")
        site.broker.set_up()
        wait_for(lambda: committed(site.bootstrap, site.group) == 1, "the commit")
    assert site.server.effects == ["d1"]
    assert statuses_of(site.bootstrap, "d1") == ["accepted", "running", "done"]


def test_it_stops_in_the_middle_of_an_outage_and_speaks_at_the_next_start(site: Site) -> None:
    site.server.held = True
    with running(site.config, site.platform) as actuator:
        publish(site.bootstrap, scale())
        wait_for(lambda: "running" in statuses_of(site.bootstrap, "d1"), "the operation")
        site.broker.set_down()
        site.server.finish("d1")
        actuator.stop.set()
        actuator.join()
    site.broker.set_up()
    site.restart()
    with running(site.config, site.platform):
        wait_for(lambda: statuses_of(site.bootstrap, "d1")[-1:] == ["done"], "the outcome")
    assert site.server.log == site.server.effects == ["d1"]


def test_redelivery_in_another_order_acts_once_on_each(site: Site) -> None:
    first = apart("d0", "d1", "d2", "d3")
    with running(site.config, site.platform):
        for decision in first:
            publish(site.bootstrap, decision)
            wait_for(lambda d=decision: "done" in statuses_of(site.bootstrap, d.id), "its outcome")  # type: ignore[misc]
        publish(site.bootstrap, *reversed(first))
        wait_for(lambda: committed(site.bootstrap, site.group) == 8, "the commits")
    assert sorted(site.server.effects) == ["d0", "d1", "d2", "d3"]
    for decision in first:
        assert statuses_of(site.bootstrap, decision.id)[:3] == ["accepted", "running", "done"]
