"""The choice of machines against trying all mixes, and what it does in cases that people ask about."""

from itertools import product

import pytest
from hypothesis import given, settings, strategies as st

from flyball_models.sizing.choice import Mix, Need, Option, choose

H100 = Option("h100", 4.0, 4.0, 700.0, most=20)
A100 = Option("a100", 2.0, 1.6, 400.0, most=20)
SLICE = Option("h100 1g.10gb", 0.5, 0.6, 100.0, most=70)


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
)


def cheapest(found: list[Option], need: Need, carbon: float, price: float) -> float | None:
    costs: list[float] = []
    pools = {o.pool for o in found if o.pool}
    for counts in product(*(range(o.most + 1) for o in found)):
        mix = list(zip(counts, found, strict=True))
        served = sum(n * o.work_per_s for n, o in mix)
        kept = [sum(n * o.work_per_s for n, o in mix if o.pool != pool) for pool in pools]
        lost = sum(n * o.work_per_s * o.loss_per_hour * o.cold_start_s / 3600 for n, o in mix)
        if (
            served >= need.work_per_s
            and sum(counts) >= need.least_replicas
            and all(k >= need.survive * need.work_per_s for k in kept)
            and lost <= (1 - need.attainment) * need.work_per_s
        ):
            costs.append(sum(n * (o.usd_per_hour + o.power_w / 1e6 * carbon * price) for n, o in mix))
    return min(costs, default=None)


@settings(max_examples=40, deadline=None)
@given(st.lists(options, min_size=1, max_size=3), st.sampled_from([0.7, 2.3, 6.1, 11.3]), st.sampled_from([0.0, 0.5]))
def test_no_mix_is_cheaper(found: list[Option], work: float, survive: float) -> None:
    need = Need(work, attainment=0.985, survive=survive)
    mix, best = choose(found, need, 400.0, 0.2), cheapest(found, need, 400.0, 0.2)
    assert (mix is None) == (best is None)
    if mix is not None and best is not None:
        assert mix.usd_per_hour + mix.carbon_g_per_hour / 1000 * 0.2 == pytest.approx(best)
        assert mix.work_per_s >= work


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
    mix = choose(found, Need(8.0))
    assert taken(found, mix) == {"a100 in a": 4, "a100 in b": 4}
    assert mix is not None
    assert mix.worst_work_per_s >= 0.99 * 8.0
    risky = [A100, spot(A100, "a", risk=0.9, cold_start_s=900.0), spot(A100, "b", risk=0.9, cold_start_s=900.0)]
    assert taken(risky, choose(risky, Need(8.0))) == {"a100": 4}


def test_dear_carbon_changes_the_choice() -> None:
    found = [H100._replace(usd_per_hour=3.3), A100]
    assert taken(found, choose(found, Need(8.0), 400.0, 0.0)) == {"a100": 4}
    assert taken(found, choose(found, Need(8.0), 400.0, 10.0)) == {"h100": 2}


def test_what_cannot_be_served_has_no_mix() -> None:
    assert choose([A100], Need(41.0)) is None
    assert choose([spot(A100, "a")], Need(1.0)) is None
    assert choose([], Need(1.0)) is None
    assert choose([A100._replace(usd_per_hour=float("nan"))], Need(1.0)) is None
    assert choose([A100], Need(float("inf"))) is None
