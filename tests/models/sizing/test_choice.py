"""The choice of machines against trying all mixes, and what it does in cases that people ask about."""

from itertools import product

import pytest
from hypothesis import given, settings, strategies as st

from flyball_models.sizing.choice import MOST_POOLS, Mix, Need, Option, Price, choose

H100 = Option("h100", 4.0, 4.0, 700.0, most=20)
A100 = Option("a100", 2.0, 1.6, 400.0, most=20)
SLICE = Option("h100 1g.10gb", 0.5, 0.6, 100.0, most=70)
PRICE = Price(0.2, 3600.0)


def spot(of: Option, pool: str, price: float = 0.3, risk: float = 0.05, cold_start_s: float = 120.0) -> Option:
    return of._replace(
        name=f"{of.name} in {pool}",
        usd_per_hour=of.usd_per_hour * price,
        pool=pool,
        loss_per_hour=risk,
        cold_start_s=cold_start_s,
    )


options = st.builds(
    Option,
    name=st.just("x"),
    work_per_s=st.sampled_from([0.5, 1.0, 2.0, 3.5]),
    usd_per_hour=st.floats(0.1, 5.0),
    power_w=st.floats(10.0, 700.0),
    pool=st.sampled_from(["", "", "p", "q"]),
    loss_per_hour=st.sampled_from([0.0, 0.1, 0.5]),
    cold_start_s=st.sampled_from([30.0, 300.0]),
    most=st.integers(1, 4),
    least=st.just(0),
    held=st.integers(0, 2),
    carbon_g_per_kwh=st.sampled_from([30.0, 600.0]),
)
needs = st.builds(
    Need,
    work_per_s=st.sampled_from([0.7, 2.3, 6.1, 11.3]),
    attainment=st.just(0.985),
    survive=st.sampled_from([0.0, 0.5]),
    least_replicas=st.integers(0, 2),
    most_replicas=st.sampled_from([3, 100]),
)


def unserved(found: list[Option], counts: tuple[int, ...], need: float) -> float:
    """Expected work that is not served, over all sets of pools that may be gone."""
    pools = {p: max(o.lost for o in found if o.pool == p) for p in {o.pool for o in found if o.pool}}
    total = 0.0
    for gone in product((False, True), repeat=len(pools)):
        lost = {p for p, is_gone in zip(pools, gone, strict=True) if is_gone}
        chance = 1.0
        for p, q in pools.items():
            chance *= q if p in lost else 1.0 - q
        mix = zip(counts, found, strict=True)
        total += chance * max(0.0, need - sum(n * o.work_per_s for n, o in mix if o.pool not in lost))
    return total


def cost(found: list[Option], counts: tuple[int, ...]) -> float:
    total = 0.0
    for n, o in zip(counts, found, strict=True):
        each = o.usd_per_hour + o.power_w / 1e6 * o.carbon_g_per_kwh * PRICE.usd_per_carbon_kg
        total += each * (n + abs(n - o.held) * o.cold_start_s / PRICE.pay_back_s)
    return total


def serves(found: list[Option], counts: tuple[int, ...], need: Need) -> bool:
    mix = list(zip(counts, found, strict=True))
    pools = {o.pool for o in found if o.pool}
    kept = [sum(n * o.work_per_s for n, o in mix if o.pool != pool) for pool in pools]
    return (
        sum(n * o.work_per_s for n, o in mix) >= need.work_per_s - 1e-9
        and need.least_replicas <= sum(counts) <= need.most_replicas
        and all(k >= need.survive * need.work_per_s - 1e-9 for k in kept)
        and unserved(found, counts, need.work_per_s) <= (1 - need.attainment) * need.work_per_s + 1e-9
    )


@settings(max_examples=60)
@given(st.lists(options, min_size=1, max_size=3), needs)
def test_no_mix_is_cheaper(found: list[Option], need: Need) -> None:
    mix = choose(found, need, PRICE)
    costs = [cost(found, c) for c in product(*(range(o.most + 1) for o in found)) if serves(found, c, need)]
    assert (mix is None) == (not costs)
    assert choose(found, need, PRICE) == mix
    if mix is not None:
        assert mix.objective == pytest.approx(min(costs))
        assert mix.objective == pytest.approx(cost(found, mix.replicas))
        assert serves(found, mix.replicas, need)
        assert all(n <= o.most for n, o in zip(mix.replicas, found, strict=True))
        assert mix.lost == pytest.approx(unserved(found, mix.replicas, need.work_per_s) / need.work_per_s, abs=1e-9)
        worst = {o.pool: max(p.lost for p in found if p.pool == o.pool) for o in found}
        for one in (o for o in found if o.lost == worst[o.pool]):  # no single offer is cheaper, by the same rules
            alone = choose([one._replace(held=0)], need, Price(PRICE.usd_per_carbon_kg))
            fresh = choose([o._replace(held=0) for o in found], need, Price(PRICE.usd_per_carbon_kg))
            assert alone is None or fresh is not None
            assert alone is None or fresh is None or fresh.objective <= alone.objective + 1e-9


def taken(found: list[Option], mix: Mix | None) -> dict[str, int]:
    assert mix is not None
    return {o.name: n for o, n in zip(found, mix.replicas, strict=True) if n}


def test_a_small_need_takes_a_slice_and_a_large_one_whole_gpus() -> None:
    found = [H100, A100, SLICE]
    assert taken(found, choose(found, Need(0.4))) == {"h100 1g.10gb": 1}
    assert taken(found, choose(found, Need(12.0))) == {"a100": 6}


def test_spot_is_spread_so_that_the_loss_of_a_pool_is_survived() -> None:
    near, far = spot(A100, "a"), spot(A100, "b")
    alone = taken([A100, near], choose([A100, near], Need(8.0)))
    assert alone == {"a100": 4}  # whatever is in one pool must be there a second time
    found = [A100, near, far]
    assert taken(found, choose(found, Need(8.0))) == {"a100 in a": 4, "a100 in b": 4}
    assert taken(found, choose(found, Need(8.0, survive=0.5))) == {"a100 in a": 2, "a100 in b": 2}


@pytest.mark.parametrize(
    ("risk", "spots"), [(0.01, 4), (0.05, 3), (0.2, 0), (0.9, 0)]
)  # at 15 minutes to a new one, of 99 % in time
def test_spot_has_the_share_that_its_risk_allows(risk: float, spots: int) -> None:
    near, far = (spot(A100, pool, risk=risk, cold_start_s=900.0) for pool in "ab")
    found = [A100._replace(usd_per_hour=0.6), near, far]
    counts = taken(found, choose(found, Need(8.0, survive=0.5)))
    assert sum(n for name, n in counts.items() if name != "a100") == spots


def test_dear_carbon_changes_the_choice() -> None:
    found = [o._replace(carbon_g_per_kwh=400.0) for o in (H100._replace(usd_per_hour=3.3), A100)]
    assert taken(found, choose(found, Need(8.0))) == {"a100": 4}
    assert taken(found, choose(found, Need(8.0), Price(10.0))) == {"h100": 2}


def test_moving_must_pay_for_both_while_one_takes_over() -> None:
    held, cheaper = A100._replace(held=4), spot(A100, "", price=0.9, cold_start_s=600.0)
    assert taken([held, cheaper], choose([held, cheaper], Need(8.0), Price(pay_back_s=1800.0))) == {"a100": 4}
    moved = choose([held, cheaper], Need(8.0), Price(pay_back_s=36_000.0))
    assert taken([held, cheaper], moved) == {"a100 in ": 4}
    assert moved is not None
    assert moved.moving > 0


def test_of_very_many_pools_the_cheapest_are_looked_at_and_those_that_are_held() -> None:
    found = [spot(A100, f"{i:02}", price=0.2 + 0.01 * i) for i in range(2 * MOST_POOLS)]
    found[-1] = found[-1]._replace(held=2)
    mix = choose(found, Need(8.0, survive=0.5), Price(pay_back_s=60.0))
    assert taken(found, mix) == {"a100 in 00": 2, found[-1].name: 2}


def test_what_cannot_be_served_has_no_mix() -> None:
    assert choose([A100], Need(41.0)) is None
    assert choose([A100], Need(8.0, most_replicas=3)) is None
    assert choose([spot(A100, "a")], Need(1.0)) is None
    assert choose([], Need(1.0)) is None
    assert choose([A100._replace(usd_per_hour=float("nan"))], Need(1.0)) is None
    assert choose([A100], Need(float("inf"))) is None
