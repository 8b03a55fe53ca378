"""Machines that the arbiter buys for what finds no room, and returns."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from tests.streams.engine.cell.arbiter_harness import QUICK, ArbiterHarness, node, outcome
from tests.streams.engine.cell.platform import proposal
from tests.streams.engine.scene import CELL, FIRST, PERIOD_NS, START_NS, spec, tick

from flyball_contracts.config import Offer
from flyball_contracts.records import AnyDecision, Pool, Scale, Signal, SubjectState
from flyball_streams.engine.cell.arbiter import Arbiter
from flyball_streams.engine.cell.memory import Memory
from flyball_streams.engine.packing import pack_struct, unpack_struct
from flyball_streams.engine.parameters import ChoiceParameters, Parameters

BUY_S, RETURN_S = 10, 30
POOLS = msgspec.structs.replace(QUICK.pools, buy_after_s=float(BUY_S), return_after_s=float(RETURN_S))
EAGER = msgspec.structs.replace(QUICK, pools=POOLS)
OURS: Mapping[str, Any] = {"instance_type": "big", "capacity_type": "on_demand"}


def pool(name: str = "big", **changes: Any) -> Pool:
    given: dict[str, Any] = {
        "cell": CELL, "time_ns": START_NS, "platform": "test", "instance_type": name, "market": "on_demand",
        "max_machines": 4, "price_usd_per_hour": 10.0, "gpu_model": "h100", "gpus": 4, "start_s": 20.0,
    }  # fmt: skip
    return Pool(pool=name, **(given | changes))


class PoolHarness(ArbiterHarness):
    """An arbiter with pools, and at most one proposal a tick."""

    def __init__(self, *records: Any, config: Parameters = EAGER) -> None:
        super().__init__(*records)
        self.arbiter = Arbiter(CELL, config, self.directory)
        self.index = -1

    def pass_ticks(self, ticks: int, workload: str = "", replicas: int = 0) -> list[AnyDecision]:
        """Decisions of so many ticks, in each of which the workload wants so many replicas."""
        found: list[AnyDecision] = []
        for _ in range(ticks):
            self.index += 1
            wants = [proposal(workload, tick(self.index), replicas, observed_replicas=None)] if workload else []
            found += self.at(self.index, *wants)
        return found


def purchases(decisions: list[AnyDecision]) -> list[tuple[str, int, int]]:
    return [
        (d.workload, d.replicas_before, d.replicas)
        for d in decisions
        if isinstance(d, Scale) and d.workload.startswith("pool:")
    ]


def test_machines_are_bought_once_for_what_finds_no_room_and_the_reason_says_for_whom() -> None:
    harness = PoolHarness(node("n", 2, {"a/0": (0,), "a/1": (1,)}), spec("a", max_replicas=9), pool())
    assert harness.pass_ticks(BUY_S, "a", 8) == []
    (bought,) = harness.pass_ticks(1, "a", 8)
    assert isinstance(bought, Scale)
    assert (bought.workload, bought.target) == ("pool:big", f"{CELL}/pool:big")
    assert (bought.replicas_before, bought.replicas) == (0, 2)
    assert bought.reason == (
        "Scale pool big out from 0 to 2 machines: 6 replicas of a (priority 0) found no room for 10 s, neither free "
        "nor by preemption; a big has 4 h100 for 10.00 USD an hour, and is there in about 20 s."
    )
    assert (bought.expected.gpus, bought.expected.cost_usd_per_hour) == (8.0, 20.0)
    published = {e.name: (e.value, e.record) for e in bought.evidence}
    assert published["replicas.without_room"] == (6.0, f"{FIRST + BUY_S}-a-0")
    assert published["machine.price"] == (10.0, "")
    harness.report(bought, "accepted")
    assert harness.pass_ticks(300, "a", 8) == [], "they are on their way"


def test_what_is_bought_is_used_and_returned_when_it_stays_empty() -> None:
    harness = PoolHarness(node("n", 2, {"a/0": (0,), "a/1": (1,)}), spec("a", max_replicas=9), pool())
    (bought,) = harness.pass_ticks(BUY_S + 1, "a", 8)
    harness.report(bought, "accepted")
    harness.know(node("m1", 4, **OURS), node("m2", 4, **OURS))
    harness.report(bought, "done", observed=SubjectState(replicas=2, ready=2))
    (scaled,) = harness.pass_ticks(1, "a", 8)
    assert isinstance(scaled, Scale)
    assert (scaled.workload, scaled.replicas) == ("a", 8)
    full = {f"a/{i}": (i - 2,) for i in range(2, 6)}
    harness.know(node("m1", 4, full, epoch=2, **OURS), node("m2", 4, {"a/6": (0,), "a/7": (1,)}, epoch=2, **OURS))
    assert harness.pass_ticks(3 * RETURN_S) == [], "there is work on all of them"
    harness.know(node("m1", 4, epoch=3, **OURS))
    assert harness.pass_ticks(RETURN_S) == []
    (returned,) = harness.pass_ticks(1)
    assert isinstance(returned, Scale)
    assert (returned.workload, returned.replicas_before, returned.replicas) == ("pool:big", 2, 1)
    assert returned.victims == ("m1",)
    assert returned.reason.startswith(
        "Scale pool big in from 2 to 1 machines: nothing has run on m1 for 30 s, and nobody lacks room"
    )
    (more,) = harness.pass_ticks(1, "a", 9)
    assert isinstance(more, Scale)
    assert more.replicas == 6, "nothing is placed on what goes"
    harness.refuse(more)
    harness.report(returned, "done", observed=SubjectState(replicas=1, ready=1))
    harness.know(node("m1", 0, epoch=4, **OURS))
    assert harness.pass_ticks(3 * RETURN_S) == []
    assert harness.arbiter.memory.stocks["big"].lost_ns == 0, "what was returned is not lost"


def test_a_refusal_backs_off_for_longer_each_time_and_says_so() -> None:
    harness = PoolHarness(spec("a", max_replicas=9), pool())
    at: list[int] = []
    reasons: list[str] = []
    for _ in range(150):
        for decision in harness.pass_ticks(1, "a", 4):
            harness.refuse(decision, "limit")
            at.append(harness.index)
            reasons.append(decision.reason)
    waits = [later - earlier for earlier, later in pairwise(at)]
    assert len(waits) >= 3
    assert waits == sorted(set(waits)), "each wait is longer than the one before"
    assert "refused once by limit" in reasons[1]
    assert "refused twice by limit" in reasons[2]


def test_another_pool_is_requested_where_one_refuses() -> None:
    harness = PoolHarness(spec("a", max_replicas=9), pool("cheap", price_usd_per_hour=5.0), pool("dear"))
    (first,) = harness.pass_ticks(BUY_S + 1, "a", 4)
    assert first.workload == "pool:cheap"
    assert "the cheapest of 2 pools that fit" in first.reason
    harness.refuse(first, "platform")
    (second,) = harness.pass_ticks(2, "a", 4)
    assert second.workload == "pool:dear"


def test_what_the_platform_shows_counts_after_a_conflict() -> None:
    harness = PoolHarness(spec("a", max_replicas=9), pool())
    (first,) = harness.pass_ticks(BUY_S + 1, "a", 4)
    harness.report(first, "refused", code="conflict", before=SubjectState(replicas=3, ready=3))
    later = purchases(harness.pass_ticks(60, "a", 4))
    assert later[0] == ("pool:big", 3, 4)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gpu_models": ("b200",)}, "another model"),
        ({"gpus_per_replica": 8.0}, "a replica is larger than a machine"),
        ({"interruptible": True}, "it waits"),
        ({"interruptible": True, "deadline_ns": START_NS + 900 * PERIOD_NS, "duration_s": 60.0}, "it has time"),
        ({"interruptible": True, "deadline_ns": START_NS + 5 * PERIOD_NS, "duration_s": 60.0}, "it is too late"),
        ({"gang_size": 32, "max_replicas": 32}, "no pool has room for the whole gang"),
    ],
)
def test_nothing_is_bought(changes: dict[str, Any], why: str) -> None:
    harness = PoolHarness(spec("a", **({"max_replicas": 32} | changes)), pool())
    assert purchases(harness.pass_ticks(4 * BUY_S, "a", 32)) == [], why


def test_nothing_is_bought_for_a_moment() -> None:
    harness = PoolHarness(spec("a", max_replicas=9), pool())
    for _ in range(5):
        assert harness.pass_ticks(BUY_S - 2, "a", 4) == []
        assert harness.pass_ticks(20) == []


def test_a_job_that_would_miss_its_deadline_is_bought_for() -> None:
    job = spec("job", kind="batch", interruptible=True, deadline_ns=START_NS + 400 * PERIOD_NS, duration_s=300.0)
    harness = PoolHarness(job, pool())
    assert purchases(harness.pass_ticks(60, "job", 2)) == [("pool:big", 0, 1)]


def test_a_gang_gets_all_of_its_machines_at_once_or_none() -> None:
    gang = spec("g", gang_size=16, max_replicas=16)
    assert purchases(PoolHarness(gang, pool()).pass_ticks(BUY_S + 1, "g", 16)) == [("pool:big", 0, 4)]
    harness = PoolHarness(gang, pool("a", max_machines=3, price_usd_per_hour=1.0), pool("b", max_machines=1))
    assert purchases(harness.pass_ticks(BUY_S + 1, "g", 16)) == [("pool:a", 0, 3), ("pool:b", 0, 1)]


def test_machines_that_were_lost_are_replaced_from_another_market() -> None:
    spot = pool("spot", market="spot", price_usd_per_hour=3.0)
    lives: Mapping[str, Any] = {"instance_type": "spot", "capacity_type": "spot"}
    held = {f"a/{i}": (i,) for i in range(4)}
    harness = PoolHarness(spec("a", max_replicas=4), spot, pool("fix"), node("s1", 4, held, **lives))
    assert harness.pass_ticks(5) == []
    harness.know(node("s1", 0, epoch=2, **lives))
    assert purchases(harness.pass_ticks(2 * BUY_S, "a", 4)) == [("pool:fix", 0, 1)]
    assert purchases(harness.pass_ticks(1, "a", 4)) == []


def test_the_price_now_and_carbon_choose_where_an_offer_tells_them() -> None:
    offers = (
        Offer(name="spot", gpu_model="h100", gpus=4, market="spot", signals="s", power_w=1_000.0, zone="dirty"),
        Offer(name="fix", gpu_model="h100", gpus=4, price_usd_per_hour=10.0, power_w=1_000.0, zone="clean"),
    )
    choice = ChoiceParameters(offers=offers)

    def signal(zone: str, kind: Any, value: float) -> Signal:
        return Signal(zone=zone, kind=kind, published_ns=START_NS, start_ns=START_NS, step_s=3600.0, p50=(value,))

    market = (signal("dirty", "carbon_intensity", 500.0), signal("clean", "carbon_intensity", 100.0))
    for usd, per_kg, expected in ((4.0, 0.0, "spot"), (20.0, 0.0, "fix"), (4.0, 100.0, "fix")):
        config = msgspec.structs.replace(EAGER, choice=msgspec.structs.replace(choice, usd_per_carbon_kg=per_kg))
        harness = PoolHarness(
            spec("a", max_replicas=9), pool("spot", market="spot"), pool("fix"), *market,
            signal("s", "spot_price", usd), config=config,
        )  # fmt: skip
        (bought,) = harness.pass_ticks(BUY_S + 1, "a", 4)
        assert bought.workload == f"pool:{expected}", (usd, per_kg)
        assert {e.name for e in bought.evidence} >= {"carbon_intensity", "machine.price"}


def test_a_machine_never_seen_is_known_by_one_that_was() -> None:
    untold = pool(gpu_model="", gpus=0)
    harness = PoolHarness(spec("a", max_replicas=9), untold)
    assert harness.pass_ticks(3 * BUY_S, "a", 4) == []
    harness.know(node("m1", 4, {f"b/{i}": (i,) for i in range(4)}, **OURS))
    assert purchases(harness.pass_ticks(BUY_S, "a", 4)) == [("pool:big", 1, 2)]


def test_nothing_is_returned_below_the_least_or_with_work_or_room_that_was_promised() -> None:
    least = PoolHarness(pool(min_machines=1), node("m1", 4, **OURS), node("m2", 4, **OURS))
    assert purchases(least.pass_ticks(RETURN_S + 1)) == [("pool:big", 2, 1)]
    busy = PoolHarness(pool(), node("m1", 4, {"nobody/0": ()}, **OURS))
    assert busy.pass_ticks(3 * RETURN_S) == [], "a share of the host is work, too"
    harness = PoolHarness(spec("a"), pool(), node("m1", 4, **OURS))
    harness.pass_ticks(RETURN_S - 1)
    (scaled,) = harness.pass_ticks(1, "a", 2)
    harness.report(scaled, "accepted")
    assert harness.pass_ticks(3 * RETURN_S) == [], "two replicas are to come"


def test_it_goes_on_from_a_snapshot() -> None:
    harness = PoolHarness(spec("a", max_replicas=9), pool())
    harness.pass_ticks(BUY_S, "a", 4)
    other = PoolHarness(spec("a", max_replicas=9), pool())
    other.index = harness.index
    other.arbiter.memory = unpack_struct(pack_struct(harness.arbiter.memory), Memory)
    expected, found = harness.pass_ticks(1, "a", 4), other.pass_ticks(1, "a", 4)
    assert purchases(expected) == [("pool:big", 0, 1)]
    assert found == expected
    other.arbiter.memory = unpack_struct(pack_struct(harness.arbiter.memory), Memory)
    assert other.pass_ticks(50, "a", 4) == harness.pass_ticks(50, "a", 4)


def test_what_nobody_answers_is_requested_again_only_when_it_cannot_be_carried_out_any_more() -> None:
    harness = PoolHarness(spec("a", max_replicas=9), pool())
    (first,) = harness.pass_ticks(BUY_S + 1, "a", 4)
    lives = (first.expires_ns - first.time_ns) // PERIOD_NS
    assert harness.pass_ticks(lives, "a", 4) == []
    (second,) = harness.pass_ticks(200, "a", 4)[:1]
    assert "unanswered once" in second.reason
    published = outcome(second, "done")
    harness.arbiter.receive(published)
    assert harness.pass_ticks(20, "a", 4) == [], "they are there, and are awaited"
