"""What the head of the page says: accounts with and without Flyball, one alone, or none."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace
from tests.dashboard.scenes import scene

from flyball_contracts.ids import NS_PER_S
from flyball_streams.dashboard.charts.service import BASELINE, service_options
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.accounts import WINDOW_NS, share_in_time
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.summary import summarise
from flyball_streams.dashboard.state.thinned import Thinned
from flyball_streams.dashboard.state.worth import Worth, worth_of
from flyball_streams.dashboard.text import MINUS

SMALL = scene.Fleet(nodes=6, gpus=4)


def worth(items: list[scene.Item]) -> Worth:
    view = FleetView()
    for item in items:
        view.apply(item)
    return worth_of(view, summarise(view, view.times()))


def test_service_and_cost_stand_beside_the_same_day_without_flyball() -> None:
    found = worth([*scene.accounts()])
    ours, other = (next(a for a in scene.accounts()[::-1] if a.scenario == s) for s in ("actual", "baseline"))
    share = found.service["share"]
    assert share.value == f"{100 * ours.in_time / (ours.requests - ours.queued):.2f} %"
    assert share.beside == f"{100 * other.in_time / (other.requests - other.queued):.1f} %"
    assert share.better is True
    assert share.change.startswith("+")
    cost, energy, carbon, hours = found.cost
    assert (cost.value, cost.beside) == ("$6,024", "$6,912")
    assert (energy.value, carbon.value, hours.value) == ("966 kWh", "233 kgCO₂e", "1,746")
    assert cost.change == f"{MINUS}13 %"
    assert cost.note == f"$4.95 a useful GPU-hour, {MINUS}16 %"
    assert carbon.note == f"0.192 kg a useful GPU-hour, {MINUS}27 %"
    assert cost.part == pytest.approx(6024 / 6912)
    assert cost.part_beside == 1.0
    assert [figure.better for figure in found.cost] == [True] * 4
    assert found.missing == ""


def test_large_amounts_get_larger_units() -> None:
    large = [
        replace(account, energy_j=50 * account.energy_j, carbon_g=90 * account.carbon_g, gpu_h=1e4 * account.gpu_h)
        for account in scene.accounts()
    ]
    assert [figure.value for figure in worth([*large]).cost] == ["$6,024", "48.3 MWh", "21 tCO₂e", "17.5 M"]


def test_what_is_worse_than_without_flyball_is_shown_as_worse() -> None:
    swapped = [
        replace(account, scenario="baseline" if account.scenario == "actual" else "actual")
        for account in scene.accounts()
    ]
    found = worth([*swapped])
    assert found.service["share"].better is False
    assert [figure.better for figure in found.cost] == [False] * 4


def test_where_only_what_happened_is_known_it_stands_alone() -> None:
    found = worth([account for account in scene.accounts() if account.scenario == "actual"])
    assert found.cost[0].value == "$6,024"
    assert all(not figure.beside and figure.better is None for figure in (*found.service.values(), *found.cost))
    assert found.baseline == []
    assert "nothing to compare with" in found.missing


def test_a_baseline_of_another_start_is_not_compared_with() -> None:
    moved = [
        replace(account, since_ns=account.since_ns - NS_PER_S) if account.scenario == "baseline" else account
        for account in scene.accounts()
    ]
    assert worth([*moved]).cost[0].beside == ""


def test_both_scenarios_are_read_at_the_same_time() -> None:
    known = scene.accounts()
    ahead = [account for account in known if account.scenario == "actual"]
    behind = [account for account in known if account.scenario == "baseline"][:-1]
    view = FleetView()
    for account in (*ahead, *behind):
        view.apply(account)
    actual, baseline = view.accounts.totals()
    assert actual is not None
    assert baseline is not None
    assert actual.time_ns == baseline.time_ns == behind[-1].time_ns


def test_a_new_run_forgets_the_accounts_of_the_old_one() -> None:
    view = FleetView()
    last = scene.accounts()[-1]
    view.apply(last)
    view.apply(replace(last, since_ns=last.time_ns, time_ns=last.time_ns + NS_PER_S, cost_usd=1.0))
    view.apply(replace(last, time_ns=last.time_ns + 2 * NS_PER_S))
    ledger = view.accounts.ledgers.get((scene.CELL, last.scenario))
    assert ledger is not None
    assert [account.cost_usd for _, account in ledger.history.items()] == [1.0]


def test_cells_are_added_up_and_all_must_have_a_baseline() -> None:
    known = scene.accounts()
    other = [replace(account, cell="east", subject="east") for account in known]
    both = worth([*known, *other])
    assert both.cost[0].value == "$12 k"
    assert both.service["share"].value == worth([*known]).service["share"].value
    lone = [account for account in other if account.scenario == "actual"]
    assert worth([*known, *lone]).cost[0].beside == ""


def test_a_fleet_without_accounts_shows_what_telemetry_reports_and_reports_what_is_missing() -> None:
    found = worth(scene.scene(SMALL, accounted=False))
    share = found.service["share"]
    assert 80.0 < float(share.value.removesuffix(" %")) < 98.0  # chat-70b was late for a while
    assert found.service["delay_s"].value == "0.4 s"
    assert found.service["queued"].value == "6"  # three services, two lanes
    assert found.cost[0].value == "$144/h"
    assert found.cost[1].value.endswith(" kW")
    assert found.cost[2].value.endswith(" kgCO₂e/h")
    assert all(not figure.beside for figure in (*found.service.values(), *found.cost))
    assert "No accounts on flyball.insights.v1" in found.missing
    late = [moment.share for moment in found.actual if moment.share is not None and moment.share < 1]
    assert len(late) == 30


def test_a_repeated_tick_is_not_counted_twice() -> None:
    items = scene.scene(SMALL, accounted=False)
    assert worth([*items, *scene.demands(SMALL)[-400:]]).service["queued"] == worth(items).service["queued"]


def test_nothing_known_is_not_zero() -> None:
    found = worth([])
    assert {figure.value for figure in (*found.service.values(), *found.cost[:3])} == {"\N{EN DASH}"}


def test_the_axis_of_the_share_begins_near_the_worst_that_was_seen() -> None:
    found = worth([*scene.accounts()])
    options = service_options("share", found.actual, [], Preferences())
    assert (options["yAxis"]["min"], options["yAxis"]["max"]) == (90.0, 100.0)
    both = service_options("share", found.actual, found.baseline, Preferences())
    assert both["yAxis"]["min"] == 0.0
    assert both["series"][0]["name"] == BASELINE
    queue = service_options("queued", found.actual, found.baseline, Preferences())
    highest = max(moment.queued for moment in found.baseline)
    assert highest <= queue["yAxis"]["max"] <= 1.5 * highest


def test_the_share_of_a_moment_is_that_of_the_last_minute() -> None:
    view = FleetView()
    base = scene.accounts()[0]
    for second in range(0, 181, 10):
        late = max(0, second - 120)
        view.apply(
            replace(
                base, scenario="actual", id=str(second), time_ns=base.since_ns + second * NS_PER_S,
                requests=float(second), in_time=float(second - late), queued=0.0,
            )
        )  # fmt: skip
    moments = view.accounts.moments("actual", scene.CELL)
    by_second = {(moment.time_ns - base.since_ns) // NS_PER_S: moment.share for moment in moments}
    assert WINDOW_NS == 60 * NS_PER_S
    assert by_second[120] == 1.0
    assert by_second[150] == pytest.approx(0.5)
    assert by_second[180] == 0.0


def test_what_still_waits_is_not_judged_yet() -> None:
    assert share_in_time(100.0, 60.0, 40.0) == 1.0
    assert share_in_time(100.0, 45.0, 40.0) == 0.75
    assert share_in_time(40.0, 0.0, 40.0) is None


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=400, unique=True))
def test_a_thinned_history_is_bounded_sorted_and_knows_the_last(times: list[int]) -> None:
    kept: Thinned[int] = Thinned(limit=16)
    for time in times:
        kept.add(time, time)
    items = kept.items()
    assert len(kept) <= 16
    assert items == sorted(items)
    assert kept.latest() == max(times)
    assert kept.at(max(times)) == max(times)
    assert all(time == value for time, value in items)


def test_a_thinned_history_reaches_back_to_its_beginning() -> None:
    kept: Thinned[int] = Thinned(limit=50)
    for time in range(10_000):
        kept.add(time, time)
    times = [time for time, _ in kept.items()]
    assert times[0] == 0
    assert times[-1] == 9_999
    gaps = [after - before for before, after in pairwise(times)]
    assert max(gaps) <= 10_000 // 20
