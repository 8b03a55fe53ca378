"""Money in a limit is counted by the prices that are known, not by what a decision says of itself."""

from typing import Any

import msgspec
import pytest
from tests.actuators.guard.policies.test_policies import config, refused
from tests.actuators.samples import CELL, NOW, S, inventory, migrate, scale, spec

from flyball_actuators.guard import Guard, GuardState, Verdict, World
from flyball_actuators.world import WorldTables
from flyball_contracts.records import AnyDecision, Effect, Inventory

BUDGET = "  - {name: budget, limits: [{per: cell, usd_per_hour: 100}]}"
HOST = inventory("n1", devices=8, price=32.0)
"""Its GPUs cost 4 USD an hour."""


def world(*nodes: Inventory, gpus_per_replica: float = 2.0) -> World:
    tables = WorldTables()
    for record in (msgspec.structs.replace(spec(), gpus_per_replica=gpus_per_replica), *nodes):
        tables.take(record)
    return tables.view("")


def judged(decision: AnyDecision, around: World, **more: Any) -> Verdict:
    return Guard(config(BUDGET, **more)).authorise(GuardState(), decision, NOW, around)[1]


def costing(usd_per_hour: float | None, before: int = 4, after: int = 6) -> AnyDecision:
    return msgspec.structs.replace(scale(before=before, after=after), expected=Effect(cost_usd_per_hour=usd_per_hour))


@pytest.mark.parametrize("expected", [None, 0.0, 1.0, -500.0])
def test_a_decision_that_says_little_or_nothing_of_its_cost_adds_what_its_gpus_cost(expected: float | None) -> None:
    around = world(HOST)
    assert judged(costing(expected, after=16), around).status == "accepted"  # 12 of 2 GPUs: 96
    refused(judged(costing(expected, after=17), around), "limit", "104 USD an hour added after 0", "'cell-a' may have")


def test_the_cheapest_gpu_of_the_cell_is_the_least_and_more_that_is_expected_counts() -> None:
    cheap, elsewhere = inventory("n2", devices=4, price=4.0), inventory("n3", devices=8, price=0.8, cell="cell-b")
    around = world(HOST, cheap, elsewhere)
    assert around.usd_per_gpu_hour == {CELL: 1.0, "cell-b": 0.1}
    assert judged(costing(None, after=20), around).status == "accepted"  # 16 of 2 GPUs: 32
    refused(judged(costing(101.0, after=20), around), "limit", "101 USD an hour added")


def test_prices_follow_the_inventories() -> None:
    tables = WorldTables()
    tables.take(HOST)
    tables.take(inventory("n2", devices=4, price=4.0))
    tables.take(inventory("n3", devices=0, price=0.5))  # no GPU of it can be had
    assert tables.view("").usd_per_gpu_hour == {CELL: 1.0}
    tables.take(inventory("n2", devices=4, price=20.0))
    assert tables.view("").usd_per_gpu_hour == {CELL: 4.0}
    tables.forget("flyball.inventory.v1", "n1")
    assert tables.view("").usd_per_gpu_hour == {CELL: 5.0}
    tables.take(inventory("n2", devices=4))
    assert tables.view("").usd_per_gpu_hour == {}


def test_what_nobody_knows_the_price_of_is_not_added_live() -> None:
    around = world(inventory("n1", devices=8))
    verdict = judged(costing(None), around, mode="live")
    refused(verdict, "limit", "policy 'budget', limits[0]", "costs, so 100 USD", "set agent.price_usd_per_hour")
    assert (verdict.policy, verdict.check) == ("budget", "over_limit")
    allowed = (
        (costing(2.0), around),  # it says it
        (costing(None), world(HOST)),  # an inventory does
        (costing(None, after=3), around),  # it adds none
        (migrate(), around),
        (costing(None), world(inventory("n1", devices=8), gpus_per_replica=0.0)),
    )
    for decision, where in allowed:
        assert judged(decision, where, mode="live").status == "accepted", decision
    assert judged(costing(None), around, mode="dry_run").status == "accepted"


def test_what_was_let_through_counts_by_its_price() -> None:
    guard, state, around = Guard(config(BUDGET)), GuardState(), world(HOST)
    words: list[str] = []
    for i in range(4):
        decision = msgspec.structs.replace(scale(f"d{i}", before=4, after=8, time_ns=NOW + i * S), expected=Effect())
        state, verdict = guard.authorise(state, decision, NOW + i * S, around)
        words.append(verdict.code)
    assert words == ["", "", "", "limit"], "32 each"
