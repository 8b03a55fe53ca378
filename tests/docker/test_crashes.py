"""An actuator that is cut off in the middle of a submission: what was asked is done exactly once."""

import random
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.actuators.carry_out import ended
from tests.actuators.samples import preempt, scale
from tests.docker.double import Double
from tests.docker.engine import DockerEngine
from tests.docker.machine import Machine
from tests.docker.proxy import Cut, forward

from flyball_actuators.platforms import Done, Handle, PlatformError, Rejected
from flyball_contracts.records import AnyDecision, SubjectState

LAST_CALL = 40
"""A submission makes fewer calls; some of the cuts so come while it is watched, and some never."""


def survived(machine: Machine, decision: AnyDecision, cut: Cut) -> Done:
    """Carry a decision out as the actuator does, which is cut off once and starts again."""
    observed = machine.platform().observe(decision)
    assert isinstance(observed, SubjectState)
    machine.proxy.arm(cut)
    try:
        handle = machine.platform().submit(decision, observed, dry_run=False)
        assert isinstance(handle, Handle)
        done = ended(machine.platform(), handle)
        machine.proxy.cut = None
    except PlatformError:
        found = machine.platform(ahead_s=20.0).find(decision, observed)
        while found is None:  # it was certainly not submitted
            machine.proxy.settle()
            again = machine.platform().observe(decision)
            assert isinstance(again, SubjectState)
            handle = machine.platform().submit(decision, again, dry_run=False)
            if not isinstance(handle, Rejected):
                found = handle
        machine.proxy.settle()
        # Who told a container to stop is not known; it is told again once its time is over.
        done = ended(machine.platform(ahead_s=20.0), found)
    assert isinstance(done, Done), done
    return done


def once(machine: Machine, seed: int, prefix: str) -> tuple[int, int]:
    """One workload of its own through a random decision; the replicas that were there and are there."""
    chance = random.Random(seed)
    name = f"{prefix}{seed}"
    before, idle = chance.randint(1, 3), chance.randint(0, 2)
    for i in range(before + idle):
        machine.make(f"{name}-{i}", workload=name, run=i < before)
    after = chance.randint(0, 6)
    cut = Cut(chance.randint(1, LAST_CALL), chance.choice(["before", "after", "late"]))
    now_ns = time.time_ns()
    decision: AnyDecision = scale(name, workload=name, before=before, after=after, time_ns=now_ns)
    if after < before and chance.random() < 0.5:
        decision = preempt(name, workload=name, before=before, after=after, time_ns=now_ns)
    survived(machine, decision, cut)
    assert machine.running(name) == after, (seed, cut)
    assert len(machine.states(name)) == max(before + idle, after), (seed, cut)
    return before, after


@pytest.mark.parametrize("block", range(2))
def test_exactly_one_effect_each_at_the_double(block: int) -> None:
    double, cuts = Double(), 0
    with TemporaryDirectory() as place:
        machine = Machine(double, Path(place))
        for seed in range(100 * block, 100 * (block + 1)):
            double.events.clear()
            double.containers.clear()
            before, after = once(machine, seed, "w")
            cuts += machine.proxy.cut is None
            did = Counter(double.events)
            made = before + sum(what == "create" for what, _ in did)
            assert max(did.values()) == 1, (seed, did)  # nothing was made, started or stopped twice
            changed = sum(what in ("start", "die") for what, _ in did) - before
            assert changed == abs(after - before), (seed, did)
            assert made >= after
            machine.proxy.cut = None
        machine.clear()
    assert cuts == 100


@pytest.mark.integration
def test_exactly_one_effect_each_at_the_engine(engine: DockerEngine) -> None:
    with TemporaryDirectory(prefix="gate") as place:
        machine = Machine(forward(str(engine.socket)), Path(place))
        for seed in range(1000, 1006):
            once(machine, seed, "w")
            machine.proxy.cut = None
        machine.clear()
