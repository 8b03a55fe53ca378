"""What ended decisions still hold on a platform is given back, by whichever actuator looks; nothing else is."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest
from tests.actuators.loop import FilePlatform, ended, publish, running, statuses_of, unlimited, wait_for, without_effect
from tests.actuators.samples import NOW, migrate

from flyball_actuators.platforms import Capabilities, Handle, Held, PlatformError, Progress, Rejected, Running as Going
from flyball_actuators.platforms.calls import check_stop
from flyball_contracts.config import Config
from flyball_contracts.records import AnyDecision, SubjectState

Unique = Callable[[str], str]


class Holding(FilePlatform):
    """Each decision holds a thing from its submission on; while it is ``lost`` or ``goes_on`` no move ends."""

    capabilities = Capabilities(kinds=frozenset({"Migrate"}), tracks=True)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "effects")
        self.things: dict[str, str] = {}
        self.lost = self.goes_on = self.unreadable = False
        self.given: list[str] = []
        self.looks = 0

    def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
        if not dry_run:
            self.things[decision.id] = decision.id
        return Handle(operation=decision.id, expected=observed)

    def poll(self, handle: Handle) -> Progress:
        if self.lost:
            raise PlatformError("it does not answer")
        return Going() if self.goes_on else super().poll(handle)

    def abandon(self, handle: Handle) -> Progress:
        return self.poll(handle)

    def held(self) -> Iterator[Held]:
        self.looks += 1
        for thing, decision in list(self.things.items()):
            yield Held(decision, thing, time.time_ns())
        if self.unreadable:
            raise PlatformError("half of it cannot be read")

    def give_back(self, thing: Held) -> bool:
        check_stop()
        if self.things.pop(thing.name, None) is None:
            return False
        self.given.append(thing.name)
        return True


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyball_actuators.execution.carry_out.GIVE_UP_S", 0.5)
    monkeypatch.setattr("flyball_actuators.execution.giving_back.EVERY_S", 0.1)
    monkeypatch.setattr("flyball_actuators.execution.giving_back.AGAIN_S", 0.1)


def looked(platform: Holding, more: int = 3) -> None:
    """Wait until the platform was looked at a few more times."""
    seen = platform.looks
    wait_for(lambda: platform.looks >= seen + more, "looks")


def config(bootstrap: str, group: str, folder: Path) -> Config:
    return unlimited(bootstrap, group, kill_switch=str(folder / "stop"))


def test_what_a_decision_holds_is_given_back_once_its_outcome_stays_unknown(
    bootstrap: str, unique: Unique, tmp_path: Path
) -> None:
    platform = Holding(tmp_path)
    platform.lost = True
    with running(config(bootstrap, unique("actuator"), tmp_path), platform):
        publish(bootstrap, migrate("m"))
        wait_for(lambda: "m" in platform.things, "the move")
        wait_for(ended(bootstrap, 1), "an unknown outcome")
        wait_for(lambda: not platform.things, "it is given back")
        looked(platform)
    assert statuses_of(bootstrap, "m") == ["accepted", "running", "failed"]
    assert platform.given == ["m"]


def test_a_later_process_gives_it_back_and_leaves_what_is_not_known(
    bootstrap: str, unique: Unique, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    platform, group = Holding(tmp_path), unique("actuator")
    with running(without_effect(config(bootstrap, group, tmp_path)), platform):
        publish(bootstrap, migrate("plan"))
        wait_for(ended(bootstrap, 1), "a plan")
    platform.lost = True
    with running(config(bootstrap, group, tmp_path), platform):
        publish(bootstrap, migrate("gone", time_ns=NOW + 1))
        wait_for(ended(bootstrap, 2), "an unknown outcome")
        wait_for(lambda: not platform.things, "it is given back")
    platform.things |= {"left": "gone", "planned": "plan", "foreign": "of-another-flyball"}
    platform.unreadable = True
    with running(config(bootstrap, unique("other"), tmp_path), platform):
        wait_for(lambda: "left" not in platform.things, "what the first could not give back")
        looked(platform)
    assert {"planned", "foreign"} <= platform.things.keys()
    assert set(platform.given) == {"gone", "left"}
    (told,) = [r.getMessage() for r in caplog.records if "decision of-another-flyball" in r.getMessage()]
    assert "foreign is held for decision of-another-flyball, of which the outcomes say nothing" in told


def test_what_goes_on_keeps_what_it_holds(bootstrap: str, unique: Unique, tmp_path: Path) -> None:
    platform = Holding(tmp_path)
    platform.goes_on = True
    with running(config(bootstrap, unique("actuator"), tmp_path), platform):
        publish(bootstrap, migrate("m"))
        wait_for(lambda: "m" in platform.things, "the move")
        with running(config(bootstrap, unique("other"), tmp_path), platform):  # it does not follow it itself
            looked(platform)
            assert platform.given == []
        platform.goes_on = False
        wait_for(lambda: platform.given == ["m"], "it is given back")


def test_while_all_is_stopped_or_in_dry_run_nothing_is_given_back(
    bootstrap: str, unique: Unique, tmp_path: Path
) -> None:
    platform, group = Holding(tmp_path), unique("actuator")
    settings = config(bootstrap, group, tmp_path)
    with running(settings, platform):
        publish(bootstrap, migrate("m"))
        wait_for(ended(bootstrap, 1), "the move")
        wait_for(lambda: not platform.things, "it is given back")
    platform.things, platform.given = {"again": "m"}, []
    with running(without_effect(settings), platform):
        assert not Event().wait(0.5)
    (tmp_path / "stop").touch()
    with running(settings, platform):
        looked(platform)
        assert platform.given == []
        (tmp_path / "stop").unlink()
        wait_for(lambda: platform.given == ["again"], "it is given back after the stop")
