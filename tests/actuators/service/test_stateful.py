"""Several actuators, anything at any time, and an account at the platform: nothing twice, nothing forbidden.

The model is small: which decisions were sent, which of them may have an effect, by whom (who has their partition at
that moment), and that each has one final outcome in the end. Whatever happens to processes, clocks, ledgers and
answers, the platform's account must fit it.
"""

import random
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.actuators.chaos import DAMAGE, FAULTS, JUMPS, Chaos
from tests.actuators.in_memory.site import Site, started, still_time
from tests.actuators.loop import config_for
from tests.actuators.samples import CELL, S, scale, spec

from flyball_actuators.audit import anchor_of, verified
from flyball_actuators.parameters import BlastRadiusParameters, RateParameters
from flyball_contracts.config import GuardPolicy
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import WorkloadSpec

NAMES = ("w0", "w1", "w2", "w3", "bank")
LEFT, RIGHT = (next(c for c in map("cell-{}".format, range(9)) if partition_of(c.encode(), 2) == p) for p in (0, 1))
ACTUATORS = ("a", "b", "c")
MANY = RateParameters(actions=100_000)
CONFIG = config_for(
    "none:1", "g", mode="live", allow=("w*",), per_target=MANY, per_cell=MANY,
    blast_radius=BlastRadiusParameters(replicas=100_000, most=100_000),
)  # fmt: skip
NARROW, WINDOW_S = 4, 1e7
LIMITED = config_for(
    "none:1", "g", mode="live", allow=("w*",), per_target=MANY, per_cell=MANY,
    blast_radius=BlastRadiusParameters(replicas=NARROW, share=0.0, window_s=WINDOW_S),
)  # fmt: skip
FREEZES = ((481, 482), (483, 485), (486, 490), (540, 542))
"""Minutes of the day; a site begins at 08:00, and its clocks are set ahead by up to an hour."""
_SPANS = tuple(f"{a // 60:02}:{a % 60:02}-{b // 60:02}:{b % 60:02}" for a, b in FREEZES)
FREEZING = msgspec.structs.replace(
    CONFIG,
    actuator=msgspec.structs.replace(CONFIG.actuator, policies=(GuardPolicy(name="freeze", never_during=_SPANS),)),
)
WHO = st.integers(0, len(ACTUATORS) - 1)
SOME = st.integers(0, 10_000)


class Actuators(RuleBasedStateMachine):
    """What can happen to three actuators of one group; many decisions are under way at any time."""

    tracks = True
    config = CONFIG
    freezes: tuple[tuple[int, int], ...] = ()
    specs: tuple[WorkloadSpec, ...] = tuple(spec(name, cell=(LEFT, RIGHT)[i % 2]) for i, name in enumerate(NAMES))

    @initialize(seed=SOME)
    def begin(self, seed: int) -> None:
        """All run, and nothing was decided yet."""
        self.folder = tempfile.TemporaryDirectory()
        self.site = Site(
            Path(self.folder.name), self.config, self.specs, allowed=NAMES[:-1], actuators=ACTUATORS,
            tracks=self.tracks, chance=random.Random(seed),
        )  # fmt: skip
        self.site.freezes = self.freezes
        self.time = still_time(self.site)
        self.time.__enter__()
        self.chaos = Chaos(self.site, random.Random(seed), NAMES)
        for process in self.site.processes:
            process.start()
        self.chaos.turn(3)

    @rule(burst=st.integers(1, 6), kind=st.sampled_from(["scale", "scale", "preempt", "late"]))
    def send(self, burst: int, kind: str) -> None:
        """Decide on what runs, or on what ran long ago."""
        for _ in range(burst):
            self.chaos.send(kind)

    @rule()
    def send_everywhere(self) -> None:
        """Take from all workloads at the same moment."""
        self.chaos.send_everywhere()

    @precondition(lambda self: self.chaos.made > 0)
    @rule()
    def send_again(self) -> None:
        """One is delivered twice, also after newer ones."""
        self.chaos.send_again()

    @rule(who=WHO)
    def step(self, who: int) -> None:
        """One process goes round; the others stand still."""
        self.site.processes[who].step()

    @rule(times=st.integers(1, 8))
    def turn(self, times: int) -> None:
        """All go on for a while."""
        self.chaos.turn(times)

    @rule(who=WHO, left=st.integers(0, 12))
    def crash_later(self, who: int, left: int) -> None:
        """One ends in the middle of a step to come."""
        self.site.processes[who].left = left

    @rule(who=WHO, damage=st.sampled_from(DAMAGE), at=SOME)
    def restart(self, who: int, damage: str, at: int) -> None:
        """One is killed and starts again, with its ledger as it was, or not."""
        self.chaos.restart(self.site.processes[who], damage, at)

    @rule(who=WHO, later=st.booleans())
    def hand_over(self, who: int, later: bool) -> None:
        """One leaves in order, in the middle of its work, and joins again, at once or after the others went on."""
        process = self.site.processes[who]
        process.leave()
        if later:
            self.chaos.turn(3)
        if not process.alive:
            started(process)

    @rule(seconds=st.sampled_from([0.5, 2.0, 5.0, 9.0, 40.0]))
    def wait(self, seconds: float) -> None:
        """Time goes on while no process does: leases run out."""
        self.site.time.now_s += seconds

    @rule(who=WHO, seconds=st.sampled_from(JUMPS))
    def jump(self, who: int, seconds: int) -> None:
        """A process's clock is set."""
        self.site.processes[who].jump_ns = seconds * S

    @rule(who=WHO, held=st.booleans())
    def hold(self, who: int, held: bool) -> None:
        """Calls of the platform take their time, or end."""
        self.site.processes[who].held = held

    @rule(what=st.sampled_from(FAULTS))
    def fail(self, what: str) -> None:
        """The platform's next answer is lost, or a refusal."""
        self.site.account.faults[what] += 1

    @rule()
    def another_client(self) -> None:
        """Another client scales."""
        self.chaos.another_client()

    @rule(on=st.booleans(), times=st.integers(1, 3))
    def stop(self, on: bool, times: int) -> None:
        """A person stops everything for some turns."""
        self.chaos.stop(on)
        self.chaos.turn(times)
        self.chaos.stop(False)

    @precondition(lambda self: self.chaos.made > 0)
    @rule(times=st.integers(5, 40))
    def anything(self, times: int) -> None:
        """All of this, by chance."""
        for _ in range(times):
            self.chaos.move()

    @invariant()
    def nothing_twice_and_nothing_forbidden(self) -> None:
        """What the platform's account shows at any time."""
        if hasattr(self, "site"):
            ids = [effect.decision for effect in self.site.account.effects]
            assert len(set(ids)) == len(ids), ids
            assert not [effect for effect in self.site.account.effects if effect.wrong]
            assert not [taken for taken in self.site.taken().values() if taken > self.site.cap]

    def teardown(self) -> None:
        """In the end each decision has one final outcome, which is true, and no audit trail is broken."""
        if not hasattr(self, "site"):
            return
        try:
            self.site.settle()
            assert self.site.broken() == []
            anchors = [anchor_of(o.audit, o.decision) for o in self.site.broker.all_outcomes()]
            for process in self.site.processes:
                verified(process.audit_path, [anchor for anchor in anchors if anchor is not None])
        finally:
            for process in self.site.processes:
                if process.alive:
                    process.kill()
            self.time.__exit__(None, None, None)
            self.folder.cleanup()


class Forgetful(Actuators):
    """The same on a platform that does not know decisions by their ids."""

    tracks = False


class Limited(Actuators):
    """The same where all workloads are of one cell, which may lose few replicas: its limit is one for all."""

    config = LIMITED
    specs = tuple(map(spec, NAMES))


class Freezing(Actuators):
    """The same where a policy freezes everything from time to time, also in the middle of an operation."""

    config = FREEZING
    freezes = FREEZES


@pytest.mark.parametrize("machine", [Actuators, Forgetful, Limited, Freezing])
def test_nothing_twice_nothing_forbidden_and_one_final_outcome(machine: type[Actuators]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=50,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large),
        ),
    )


@pytest.mark.parametrize("slowly", [0.0, 1.0])
def test_two_that_are_asked_at_the_same_moment_take_no_more_than_the_cell_may_lose(
    tmp_path: Path, slowly: float
) -> None:
    """Two actuators that each judge by themselves take 8 of 4 here."""
    names = [f"w{i}" for i in range(8)]
    site = Site(tmp_path, LIMITED, [spec(n) for n in names], allowed=names, partitions=8, chance=random.Random(1))
    with still_time(site):
        for process in site.processes:
            process.start()
        for _ in range(6):
            for process in site.processes:
                process.step()
            site.time.now_s += 0.3
        site.slowly = slowly
        for i, name in enumerate(names):
            site.send(scale(f"d{i}", workload=name, before=4, after=3, time_ns=site.now_ns))
        site.settle()
        for process in site.processes:
            process.kill()
    assert site.taken() == {CELL: NARROW}
    refused = {o.code for o in site.broker.all_outcomes() if o.status == "refused"}
    assert refused == {"blast_radius"}
    assert site.broken() == []


def test_a_call_that_waited_for_its_thread_is_not_made_once_the_decision_is_another_s(tmp_path: Path) -> None:
    """Found by `bench/actuation.py --in-process`: the lease was valid again, and the partition was gone."""
    lost, kept = "w0", "w1"  # in partition 0, which the second gets, and 1, which the first has again
    specs = [spec(lost, cell=LEFT), spec(kept, cell=RIGHT)]
    site = Site(tmp_path, CONFIG, specs, allowed=(lost, kept), actuators=("a", "b"), chance=random.Random(1))
    first, second = site.processes
    with still_time(site):
        first.start()
        for _ in range(4):
            first.step()
        site.send(scale(workload=lost, time_ns=site.now_ns, cell=LEFT))
        while not site.broker.all_outcomes():
            first.step()
        first.held = True  # from now on all of its threads are busy
        for _ in range(5):
            first.step()
            site.time.now_s += 0.1
        assert [statuses_of.status for statuses_of in site.broker.all_outcomes()] == ["accepted"]
        site.time.now_s += 20.0  # and it is stopped for longer than its session
        second.jump_ns = -172_800 * S
        second.start()
        for _ in range(20):
            second.step()
            site.time.now_s += 0.1
        assert site.open() == set()
        site.send(scale("d2", workload=kept, before=4, after=5, time_ns=site.now_ns, cell=RIGHT))
        for held in (True, False):  # it joins again, and then a thread is free
            first.held = held
            for _ in range(20):
                first.step()
                second.step()
                site.time.now_s += 0.1
        for process in site.processes:
            process.kill()
    assert [effect.decision for effect in site.account.effects] == ["d2"]
    assert site.broken() == []


def test_an_operation_that_takes_long_is_looked_at_less_often(tmp_path: Path) -> None:
    site = Site(tmp_path, CONFIG, [spec("w0")], allowed=("w0",), actuators=("a",), chance=random.Random(1))
    process = site.processes[0]
    with still_time(site):
        process.start()
        for _ in range(4):
            process.step()
        site.account.faults["slow"] = 100_000
        site.send(scale(workload="w0", time_ns=site.now_ns))
        polls: list[int] = []
        for _ in range(2):
            before = site.account.faults["slow"]
            for _ in range(2_000):
                process.step()
                site.time.now_s += 0.1
            polls.append(before - site.account.faults["slow"])
        site.account.faults["slow"] = 0
        site.settle()
        process.kill()
    assert 50 < polls[0] < 250, "from every tenth of a second on"
    assert 15 < polls[1] < 30, "to every ten seconds"
    assert site.broken() == []
