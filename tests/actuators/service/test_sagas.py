"""Operations of several steps: no step is done while changes are stopped, or by a process that lost its partition."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.actuators.chaos import Chaos
from tests.actuators.in_memory.platform import SAGA_STEPS
from tests.actuators.in_memory.site import Process, Site, still_time
from tests.actuators.samples import NOW, S, preempt, spec
from tests.actuators.service.test_stateful import ACTUATORS, CONFIG, LEFT, NAMES, Actuators

from flyball_contracts.config import Config, GuardPolicy
from flyball_contracts.records import Stop


def turn(*processes: Process, times: int = 20) -> None:
    for _ in range(times):
        for process in processes:
            process.step()
        processes[0].site.time.now_s += 0.1


def begun(site: Site, process: Process) -> None:
    """A preemption of w0 whose pods write their checkpoints."""
    process.start()
    turn(process, times=4)
    site.send(preempt(workload="w0", before=4, after=2, time_ns=site.now_ns, cell=LEFT))
    while site.account.steps["p1"] < 2:
        turn(process, times=1)


def test_a_stop_in_the_middle_stops_it_and_it_goes_on_afterwards(tmp_path: Path) -> None:
    site = Site(tmp_path, CONFIG, [spec("w0", cell=LEFT)], allowed=("w0",), actuators=("a",), chance=random.Random(1))
    (process,) = site.processes
    with still_time(site):
        begun(site, process)
        done = site.account.steps["p1"]
        site.orders.stops = (Stop(cell="*", time_ns=NOW, by="ann"),)
        turn(process, times=6_000)  # ten minutes: longer than any wait for an answer
        assert (site.account.steps["p1"], site.account.effects) == (done, [])
        site.settle()
        process.kill()
    assert done < SAGA_STEPS
    assert [outcome.status for outcome in site.final_outcomes()["p1"]] == ["done"]
    assert [effect.decision for effect in site.account.effects] == ["p1"]
    assert site.broken() == []


def test_a_step_that_waited_for_its_thread_is_not_done_once_another_has_the_partition(tmp_path: Path) -> None:
    site = Site(
        tmp_path, CONFIG, [spec("w0", cell=LEFT)], allowed=("w0",), actuators=("a", "b"), chance=random.Random(1)
    )
    first, second = site.processes
    with still_time(site):
        begun(site, first)
        first.held = True  # all its threads are busy: the next step waits for one
        turn(first, times=5)
        site.time.now_s += 20.0  # and it is stopped for longer than its session
        second.start()
        while site.account.steps["p1"] < SAGA_STEPS:  # the next step would be the last
            turn(second, times=1)
        first.held = False
        turn(first, times=1)
        site.settle()
        for process in site.processes:
            process.kill()
    assert [(effect.actuator, effect.wrong) for effect in site.account.effects] == [("b/1", "")]
    assert site.broken() == []


def freezing(minutes: int, **more: Any) -> Config:
    """The configuration, with a freeze that begins so long after a site does, and lasts for an hour."""
    begins = datetime.fromtimestamp(NOW / S, UTC) + timedelta(minutes=minutes)
    span = f"{begins:%a %H:%M}-{begins + timedelta(hours=1):%a %H:%M}".lower()
    policy = GuardPolicy(name="freeze", never_during=(span,), **more)
    return msgspec.structs.replace(CONFIG, actuator=msgspec.structs.replace(CONFIG.actuator, policies=(policy,)))


def test_a_freeze_that_begins_in_the_middle_takes_it_back(tmp_path: Path) -> None:
    site = Site(
        tmp_path, freezing(1), [spec("w0", cell=LEFT)], allowed=("w0",), actuators=("a",), chance=random.Random(1)
    )
    (process,) = site.processes
    with still_time(site):
        begun(site, process)
        site.time.now_s += 60.0
        turn(process)
        again = preempt("p2", workload="w0", before=4, after=2, time_ns=site.now_ns, cell=LEFT)
        site.send(again)
        turn(process)
        process.kill()
    first, second = (site.final_outcomes()[id_][0] for id_ in ("p1", "p2"))
    assert [(one.status, one.code) for one in (first, second)] == [("refused", "window")] * 2
    assert first.detail.startswith("policy 'freeze' allows nothing until ")
    assert first.detail.endswith("; nothing had gone")
    assert site.account.taken_back == {"p1"}
    assert site.account.effects == []
    assert site.broken() == []


def test_what_has_gone_before_a_freeze_goes_on(tmp_path: Path) -> None:
    site = Site(
        tmp_path, freezing(1), [spec("w0", cell=LEFT)], allowed=("w0",), actuators=("a",), chance=random.Random(1)
    )
    (process,) = site.processes
    with still_time(site):
        begun(site, process)
        while not site.account.effects:
            turn(process, times=1)
        site.account.faults["slow"] = 3
        site.time.now_s += 60.0
        turn(process, times=40)
        process.kill()
    assert [outcome.status for outcome in site.final_outcomes()["p1"]] == ["done"]
    assert site.account.taken_back == set()
    assert site.broken() == []


def test_a_freeze_of_others_takes_nothing_back(tmp_path: Path) -> None:
    config = freezing(1, types=("Migrate",))
    site = Site(tmp_path, config, [spec("w0", cell=LEFT)], allowed=("w0",), actuators=("a",), chance=random.Random(1))
    (process,) = site.processes
    with still_time(site):
        begun(site, process)
        site.time.now_s += 60.0
        turn(process, times=40)
        process.kill()
    assert [outcome.status for outcome in site.final_outcomes()["p1"]] == ["done"]
    assert [effect.decision for effect in site.account.effects] == ["p1"]


def test_whoever_takes_over_in_a_freeze_takes_it_back(tmp_path: Path) -> None:
    site = Site(
        tmp_path, freezing(1), [spec("w0", cell=LEFT)], allowed=("w0",), actuators=("a", "b"), chance=random.Random(1)
    )
    first, second = site.processes
    with still_time(site):
        begun(site, first)
        first.kill()
        site.time.now_s += 60.0
        second.start()
        turn(second, times=40)
        second.kill()
    assert [(outcome.status, outcome.code) for outcome in site.final_outcomes()["p1"]] == [("refused", "window")]
    assert site.account.taken_back == {"p1"}
    assert site.account.effects == []
    assert site.broken() == []


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_done_twice_or_while_it_must_not_whatever_happens(tmp_path: Path, seed: int) -> None:
    site = Site(tmp_path, CONFIG, Actuators.specs, allowed=NAMES[:-1], actuators=ACTUATORS, chance=random.Random(seed))
    with still_time(site):
        chaos = Chaos(site, random.Random(seed), NAMES)
        for process in site.processes:
            process.start()
        chaos.turn(3)
        chaos.send("preempt")
        for _ in range(400):
            chaos.move()
        site.settle()
        for process in site.processes:
            process.kill()
    assert site.account.begun
    assert site.broken() == []
