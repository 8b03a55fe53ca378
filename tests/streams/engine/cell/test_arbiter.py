"""What the arbiter may never do, whatever is proposed and whether or not a platform obeys."""

from random import Random

import msgspec
from hypothesis import Phase, given, settings, strategies as st
from tests.streams.engine.cell.platform import Platform, gang_of, packs
from tests.streams.engine.scene import CELL, CONFIG, PERIOD_NS, tick

from flyball_contracts.records import AnyDecision, Check, Migrate, Preempt, Scale
from flyball_streams.engine.cell.arbiter import Arbiter
from flyball_streams.engine.cell.memory import Memory
from flyball_streams.engine.packing import pack_struct, unpack_struct

SETTINGS = settings(
    max_examples=120,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # seeds do not shrink
)
HOLD_S, INTERVAL_S = 30.0, 5.0
SIZING = msgspec.structs.replace(CONFIG.sizing, reversal_cooldown_s=HOLD_S, cooldown_s=INTERVAL_S)
QUICK = msgspec.structs.replace(CONFIG, sizing=SIZING, decision_interval_s=0.0)


def encoded(decisions: list[AnyDecision]) -> list[bytes]:
    return [msgspec.json.encode(d) for d in decisions]


def check(platform: Platform, decision: AnyDecision, last: dict[str, tuple[int, int]]) -> None:
    """What holds for each decision by itself; ``last`` is the time and the direction of each workload's last one."""
    assert not isinstance(decision, Migrate | Check)
    s = platform.directory.specs[decision.workload]
    least, most, gang = s.min_replicas, s.max_replicas, gang_of(s)
    assert decision.replicas_before == platform.running(s.workload, decision.time_ns)
    change = decision.replicas - decision.replicas_before
    if isinstance(decision, Preempt):
        assert s.interruptible
        assert change < 0
        assert decision.replicas >= least
        if decision.beneficiary:
            assert s.priority < platform.directory.specs[decision.beneficiary].priority
            assert set(decision.victims) <= set(platform.replicas(s.workload))
    else:
        assert change != 0
        assert decision.replicas % gang == 0
        assert decision.replicas <= most
        assert change > 0 or decision.replicas >= least // gang * gang
        time_ns, before = last.get(s.workload, (-(10**18), 0))
        woken = before < 0 and not platform.replicas(s.workload)
        rest_s = 0.0 if woken else HOLD_S if before * change < 0 else INTERVAL_S
        assert decision.time_ns - time_ns >= rest_s * PERIOD_NS


def check_victims(platform: Platform, decisions: list[AnyDecision], now: int) -> None:
    """Nobody stops in vain: without any one of the gangs that stop, what was granted would find no room.

    Where nothing else is promised that is not there yet: what is, keeps its place.
    """
    stopping = platform.stopping(now)
    if len({d.workload for d in decisions if isinstance(d, Scale) and d.replicas > d.replicas_before}) > 1:
        return
    for name in {d.beneficiary for d in decisions if isinstance(d, Preempt)} - {""}:
        assert any(isinstance(d, Scale) and d.workload == name and d.replicas > d.replicas_before for d in decisions)
        for d in decisions:
            if isinstance(d, Preempt) and d.beneficiary == name:
                gang = gang_of(platform.directory.specs[d.workload])
                for i in range(0, len(d.victims), gang):
                    spared = {(d.workload, victim) for victim in d.victims[i : i + gang]}
                    assert not packs(platform.rooms(stopping - spared), platform.requested(now))


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([0.0, 0.2]))
@SETTINGS
def test_promises_can_be_kept(seed: int, obedience: float, refusals: float) -> None:
    random = Random(seed)
    platform = Platform(random)
    arbiter, twin = (Arbiter(CELL, QUICK, platform.directory) for _ in range(2))
    last: dict[str, tuple[int, int]] = {}
    for i in range(30):
        at = tick(i * 5)
        proposals = platform.proposals(at)
        # What the platform has put elsewhere may leave no room for what was promised before; no more must be promised.
        kept = packs(platform.rooms(platform.stopping(at.end_ns)), platform.requested(at.end_ns))
        waiting = bool(platform.requested(at.end_ns))
        decisions = list(arbiter.decide(at, proposals))
        # A restored arbiter that hears the proposals in another order decides the same.
        twin.memory = unpack_struct(pack_struct(twin.memory), Memory)
        assert encoded(list(twin.decide(at, random.sample(proposals, len(proposals))))) == encoded(decisions)
        for decision in decisions:
            check(platform, decision, last)
            platform.note(decision)
            assert not isinstance(decision, Migrate | Check)
            last[decision.workload] = decision.time_ns, decision.replicas - decision.replicas_before
        now = at.end_ns
        stopping = platform.stopping(now)
        assert packs(platform.rooms(stopping), platform.requested(now)) or not kept
        if not waiting:
            check_victims(platform, decisions, now)
        for decision in decisions:
            if random.random() < refusals:
                outcome = platform.refuse(decision)
                last[decision.workload] = decision.time_ns, 0
                for one in (arbiter, twin):
                    one.receive(outcome)
            elif random.random() < obedience:
                platform.obey(decision)
        platform.announce()
