"""Operations of several steps: no step is done while changes are stopped, or by a process that lost its partition."""

import random
from pathlib import Path

import pytest
from tests.actuators.chaos import Chaos
from tests.actuators.in_memory.platform import SAGA_STEPS
from tests.actuators.in_memory.site import Process, Site, still_time
from tests.actuators.samples import NOW, preempt, spec
from tests.actuators.service.test_stateful import ACTUATORS, CONFIG, LEFT, NAMES, Actuators

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
