"""Machines are chosen with the room there is: what others hold and get, what is drained, and what pools can buy."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.streams.engine.cell.arbiter_harness import QUICK, ArbiterHarness, node
from tests.streams.engine.scene import CELL, START_NS, spec

from flyball_contracts.config import Offer
from flyball_contracts.records import Alternatives, AnyDecision, Evidence, Inventory, Pool, Proposal, Record, Scale
from flyball_streams.engine.cell.arbiter import Arbiter
from flyball_streams.engine.cell.memory import Memory
from flyball_streams.engine.packing import pack_struct, unpack_struct
from flyball_streams.engine.parameters import ChoiceParameters

OWN = Offer(name="own", gpu_model="h100", market="reserved", gpus=4, price_usd_per_hour=4.0, start_s=0.0)
RENTED = Offer(name="rented", gpu_model="h100", gpus=1, price_usd_per_hour=3.0, start_s=20.0)
SPOT = Offer(
    name="spot", gpu_model="h100", market="spot", gpus=4, price_usd_per_hour=4.0, loss_per_hour=0.01, at_most=1,
    start_s=20.0,
)  # fmt: skip
CHEAP = Offer(name="cheap", gpu_model="h100", instance_type="big", gpus=4, price_usd_per_hour=4.0, start_s=20.0)
OWNED: Mapping[str, Any] = {"capacity_type": "owned"}


class Market(ArbiterHarness):
    """A harness whose arbiter chooses among offers."""

    def __init__(self, *records: Record, offers: tuple[Offer, ...] = (OWN, RENTED), **choice: Any) -> None:
        super().__init__(*records)
        given: dict[str, Any] = {"mode": "act", "every_s": 600.0, "least_saving": 0.05, "retry_s": 60.0}
        config = msgspec.structs.replace(QUICK, choice=ChoiceParameters(offers=offers, **(given | choice)))
        self.offers = tuple(offer.name for offer in offers)
        self.arbiter = Arbiter(CELL, config, self.directory)

    def asks(self, index: int, workload: str, running: int, wanted: int, needed: int | None = None) -> Proposal:
        """What the workload lane says: each replica serves the same on all offers."""
        return Proposal(
            id=f"{workload}-{index}",
            action="choose",
            workload=workload,
            reason="more is needed",
            replicas=wanted,
            observed_replicas=running,
            alternatives=Alternatives(
                work=dict.fromkeys(self.offers, 1.0), reference=1.0, cold_start_s=2.0, needed=needed
            ),
            evidence=(Evidence(name="demand", value=1.0),),
        )

    def mixes(self, index: int, *proposals: Proposal) -> dict[str, dict[str, int]]:
        return {d.workload: mix(d) for d in self.at(index, *proposals) if isinstance(d, Scale) and d.mix}


def mix(decision: AnyDecision) -> dict[str, int]:
    assert isinstance(decision, Scale)
    return {part.offer: part.replicas for part in decision.mix if part.replicas}


def own(name: str, held: dict[str, tuple[int, ...]] | None = None, **more: Any) -> Inventory:
    return node(name, 4, held, **(dict(OWNED) | more))


def pool(**changes: Any) -> Pool:
    given: dict[str, Any] = {
        "pool": "cheap", "cell": CELL, "time_ns": START_NS, "platform": "test", "instance_type": "big",
        "market": "on_demand", "max_machines": 2, "price_usd_per_hour": 4.0, "gpu_model": "h100", "gpus": 4,
        "start_s": 20.0,
    }  # fmt: skip
    return Pool(**(given | changes))


def test_where_the_cheapest_offer_is_full_a_burst_is_served_on_the_next_and_the_reason_says_so() -> None:
    market = Market(own("n", {"a/0": (0,), "b/0": (1,), "b/1": (2,)}), spec("a"), spec("b"))
    (scale,) = market.at(0, market.asks(0, "a", 1, 4))
    assert isinstance(scale, Scale)
    assert mix(scale) == {"own": 2, "rented": 2}
    assert (scale.replicas_before, scale.replicas) == (1, 4)
    assert "reserved H100 would cost less and has no more room; more is needed." in scale.reason
    assert {e.record for e in scale.evidence if e.name == "proposal"} == {"a-0"}
    (told,) = market.arbiter.choices
    assert (told.subject, told.mix, told.proposal) == ("a", scale.mix, "a-0")


def test_while_there_is_room_nobody_is_sent_to_what_costs_more() -> None:
    market = Market(own("n", {"a/0": (0,)}), spec("a"))
    (scale,) = market.at(0, market.asks(0, "a", 1, 4))
    assert mix(scale) == {"own": 4}
    assert "no more room" not in scale.reason


def test_two_that_compete_for_the_last_machines_never_get_more_than_there_is_and_the_important_comes_first() -> None:
    low, high = spec("a", priority=1), spec("b", priority=5)
    market = Market(own("n", {"a/0": (0,)}), low, high)
    both = market.mixes(0, market.asks(0, "a", 1, 3), market.asks(0, "b", 0, 2))
    assert both == {"b": {"own": 2}, "a": {"own": 2, "rented": 1}}
    again = market.mixes(1, market.asks(1, "a", 1, 3), market.asks(1, "b", 0, 2))
    assert again == {}, "they are on their way"
    assert market.mixes(6, market.asks(6, "b", 0, 3)) == {"b": {"own": 2, "rented": 1}}, "its own room stays its own"


def test_room_that_was_promised_is_not_given_to_others_while_it_is_not_taken() -> None:
    market = Market(own("n"), spec("a"), spec("job", kind="batch", max_replicas=4))
    assert market.mixes(0, market.asks(0, "a", 0, 3)) == {"a": {"own": 3}}
    (other,) = market.want(1, "job", 4, observed_replicas=0)
    assert isinstance(other, Scale)
    assert other.replicas == 1


def test_what_is_drained_is_no_room() -> None:
    drained = node("s", 4, capacity_type="spot", schedulable=False)
    market = Market(drained, spec("a"), offers=(SPOT, RENTED), every_s=1.0)
    assert market.mixes(1, market.asks(1, "a", 0, 2)) == {"a": {"rented": 2}}
    here = node("r", 2, {"a/0": (0,), "a/1": (1,)}, capacity_type="on_demand")
    market.know(here)
    assert market.mixes(70, market.asks(70, "a", 2, 2)) == {}
    market.know(node("s", 4, capacity_type="spot", epoch=2))
    assert market.mixes(80, market.asks(80, "a", 2, 2)) == {"a": {"spot": 2}}


def test_a_pool_buys_what_was_chosen_of_it_and_nothing_twice() -> None:
    market = Market(pool(), spec("a", max_replicas=12), offers=(CHEAP, RENTED))
    scale, bought = market.at(0, market.asks(0, "a", 0, 10))
    assert mix(scale) == {"cheap": 8, "rented": 2}
    assert isinstance(bought, Scale)
    assert (bought.workload, bought.replicas_before, bought.replicas) == ("pool:cheap", 0, 2)
    assert bought.reason == (
        "Scale pool cheap out from 0 to 2 machines: 8 replicas of a (priority 0) cost least there; a big has 4 h100 "
        "for 4.00 USD an hour, and is there in about 20 s."
    )
    assert {e.record for e in bought.evidence if e.name == "replicas.without_room"} == {"a-0"}
    for index in range(1, 25):
        assert market.at(index, market.asks(index, "a", 0, 10)) == [], "they are on their way"


def test_a_pool_that_can_buy_no_more_or_lost_machines_is_not_chosen() -> None:
    market = Market(pool(max_machines=0), spec("a"), offers=(CHEAP, RENTED))
    assert market.mixes(0, market.asks(0, "a", 0, 2)) == {"a": {"rented": 2}}
    there = node("m", 4, instance_type="big", capacity_type="on_demand")
    market = Market(pool(), there, spec("a"), offers=(CHEAP, RENTED))
    assert market.at(0) == []
    market.know(node("m", 0, epoch=2, instance_type="big", capacity_type="on_demand"))
    assert market.mixes(1, market.asks(1, "a", 0, 2)) == {"a": {"rented": 2}}


def test_one_pool_is_not_bought_from_for_what_another_was_chosen_for() -> None:
    other = pool(pool="dear", instance_type="small", price_usd_per_hour=40.0)
    market = Market(pool(max_machines=1), other, spec("a"), offers=(CHEAP, RENTED))
    scale, bought = market.at(0, market.asks(0, "a", 0, 6))
    assert mix(scale) == {"cheap": 4, "rented": 2}
    assert (bought.workload, getattr(bought, "replicas", 0)) == ("pool:cheap", 1)
    assert all(d.workload != "pool:dear" for i in range(1, 20) for d in market.at(i, market.asks(i, "a", 0, 6)))


def test_where_the_platform_fails_to_get_machines_others_are_chosen_at_the_next_tick() -> None:
    market = Market(spec("a"), offers=(SPOT, RENTED))
    held = node("s", 4, {"a/0": (0,)}, capacity_type="spot")
    market.know(held)
    (scale,) = market.at(0, market.asks(0, "a", 1, 3))
    assert mix(scale) == {"spot": 3}
    market.report(scale, "failed")
    later = [market.mixes(index, market.asks(index, "a", 1, 3)) for index in range(1, 20)]
    assert next(found for found in later if found) == {"a": {"spot": 1, "rented": 2}}


def test_a_refusal_says_nothing_of_the_machines() -> None:
    market = Market(spec("a"), node("s", 4, {"a/0": (0,)}, capacity_type="spot"), offers=(SPOT, RENTED))
    found: list[dict[str, int]] = []
    for index in range(120):
        for scale in market.at(index, market.asks(index, "a", 1, 3)):
            found.append(mix(scale))
            market.refuse(scale, "limit")
    assert len(found) > 1
    assert all(mixed == {"spot": 3} for mixed in found)


def test_where_nothing_on_offer_has_room_it_is_scaled_on_what_there_is() -> None:
    market = Market(own("n", {"a/0": (0,), "b/0": (1, 2)}), spec("a"), spec("b"), offers=(OWN,))
    (scale,) = market.at(0, market.asks(0, "a", 1, 4))
    assert isinstance(scale, Scale)
    assert (scale.replicas, scale.mix) == (2, ())
    assert scale.reason == "Scale a out from 1 to 2: more is needed; room for 2 of 4 only."


def test_advice_knows_the_room_and_decides_nothing() -> None:
    market = Market(own("n", {"a/0": (0,), "b/0": (1, 2, 3)}), spec("a"), spec("b"), mode="advise", every_s=1.0)
    assert market.at(5, market.asks(5, "a", 1, 3)) == []
    assert market.at(7, market.asks(7, "a", 1, 3)) == []
    (told,) = market.arbiter.choices
    assert {part.offer: part.replicas for part in told.mix} == {"own": 1, "rented": 2}
    assert market.at(8) == []
    assert market.arbiter.choices == []


@pytest.mark.parametrize("index", [0, 1, 3])
def test_an_arbiter_that_goes_on_from_a_snapshot_chooses_the_same(index: int) -> None:
    def tell(market: Market, first: int, until: int) -> list[AnyDecision]:
        return [
            decision
            for i in range(first, until)
            for decision in market.at(i, market.asks(i, "a", 0, 3 + i // 2), market.asks(i, "b", 0, 2))
        ]

    def made() -> Market:
        return Market(own("n"), pool(), spec("a"), spec("b"), offers=(OWN, CHEAP, RENTED), every_s=2.0)

    whole, cut = made(), made()
    expected = tell(whole, 0, 12)
    got = tell(cut, 0, index)
    other = made()
    other.arbiter.memory = unpack_struct(pack_struct(cut.arbiter.memory), Memory)
    assert [*got, *tell(other, index, 12)] == expected
    assert any(isinstance(d, Scale) and d.workload == "pool:cheap" for d in expected)
