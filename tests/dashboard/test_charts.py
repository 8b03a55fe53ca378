"""Chart options: right numbers in the right series, and always the same number of series."""

import json
from collections.abc import Sequence
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace
from tests.dashboard.scenes import scene

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Arrivals, Demand, DemandTick, Forecast, Plan, Signal
from flyball_streams.dashboard.charts.carbon import carbon_options, running_spans
from flyball_streams.dashboard.charts.demand import demand_options, empty_demand_options
from flyball_streams.dashboard.charts.fleet import MAX_SQUARES, fleet_caption, fleet_map
from flyball_streams.dashboard.charts.palette import Options
from flyball_streams.dashboard.preferences import LIGHT, Preferences
from flyball_streams.dashboard.state.demand import Workload
from flyball_streams.dashboard.state.fleet import FleetView

PREFERENCES = Preferences()


def view_of(items: Sequence[scene.Item]) -> FleetView:
    view = FleetView()
    for item in items:
        view.apply(item)
    return view


@pytest.fixture(scope="module")
def view() -> FleetView:
    return view_of(scene.scene())


def series(options: Options) -> dict[str, list[list[float]]]:
    return {s["name"]: s["data"] for s in options["series"] if s["name"]}


def test_the_last_numbers_of_an_ended_workload_are_not_those_of_now() -> None:
    ended = view_of(scene.demands(scene.Fleet()))
    train = ended.workloads.get("pretrain-llm")
    assert train is not None
    assert demand_options(train, PREFERENCES)[1].ready == 22
    for t in range(scene.TICKS, scene.TICKS + 20):
        ended.apply(DemandTick(cell=scene.CELL, source="node/0", tick=scene.tick(t), partition=1))
    options, facts = demand_options(train, PREFERENCES)
    assert train.is_gone
    assert (facts.observed, facts.ready, facts.replicas) == (None, None, None)
    assert series(options)["ready"][-1] == [scene.tick(scene.TICKS - 1).end_ns / 1e6, 22.0]  # what was stays drawn


def chat(view: FleetView) -> Workload:
    workload = view.workloads.get("chat-70b")
    assert workload is not None
    return workload


def test_the_fleet_map_groups_by_zone_and_keeps_the_order_of_devices(view: FleetView) -> None:
    shown = fleet_map(view, view.times())
    assert [group["text"].split(" ")[2] for group in shown.layout] == ["DE", "SE-SE3", "US-CAL-CISO"]
    links = [link for group in shown.layout for link in group["links"]]
    assert len(links) == len(shown.values["use"]) == 384
    assert [links[mark[0]] for mark in shown.marks if mark[1] == 3] == [f"/gpus/{scene.device_id(5, 3)}"]
    assert (shown.level, shown.silent) == ("gpu", [])
    assert fleet_caption(shown).startswith("384 GPUs, mean utilisation")
    json.dumps(shown)  # plain numbers only


def test_unknown_values_are_minus_one_and_silent_devices_are_named() -> None:
    fleet = scene.Fleet(nodes=3, gpus=2)
    items: list[scene.Item] = [
        *scene.inventories(fleet),
        *scene.frames(fleet, [0])[:1],
        *scene.frames(fleet, [60])[1:2],
    ]
    view = view_of([*items, *scene.demands(fleet)])
    shown = fleet_map(view, view.times())
    assert shown.values["use"][4:] == [-1, -1]
    assert shown.values["heat"][4:] == [-1, -1]
    assert shown.silent == list(range(6))  # all are more than 30 s behind the cell's tick


def test_a_large_fleet_is_shown_by_node_and_a_huge_one_by_pool() -> None:
    fleet = scene.Fleet(nodes=MAX_SQUARES // 8 + 1)
    view = view_of([*scene.inventories(fleet), *scene.frames(fleet, [199]), *scene.troubles()])
    shown = fleet_map(view, view.times())
    assert shown.level == "node"
    names = [name for group in shown.layout for name in group["names"]]
    assert len(names) == len(shown.values["use"]) == fleet.nodes
    assert shown.gpus == 8 * fleet.nodes
    node = view.nodes.get(names[0])
    assert node is not None
    table = node.table()
    assert shown.values["use"][0] == pytest.approx(100 * table[:, 0].mean(), abs=0.6)
    assert shown.values["power"][0] == pytest.approx(table[:, 1].sum(), abs=0.6)
    assert shown.values["heat"][0] == pytest.approx(table[:, 2].max(), abs=0.6)
    assert [names[mark[0]] for mark in shown.marks if mark[1] == 3] == [scene.node_name(5)]
    huge = scene.Fleet(nodes=MAX_SQUARES + 1, gpus=1)
    pools = fleet_map(view_of(scene.inventories(huge)), {})
    assert pools.level == "pool"
    assert [group["names"] for group in pools.layout] == [["H100-SXM"]] * 3


def test_demand_fan_is_ordered_and_starts_at_the_observation(view: FleetView) -> None:
    options, text = demand_options(chat(view), PREFERENCES)
    data = series(options)
    assert data["observed"][-1] == [scene.NOW / 1e6, pytest.approx(data["median"][0][1])]
    for low, width, inner, inner_width, median in zip(
        data["outer low"], data["5\u201395 %"], data["inner low"], data["25\u201375 %"], data["median"], strict=True
    ):
        assert low[1] <= inner[1] <= median[1] <= inner[1] + inner_width[1] + 1e-9 <= low[1] + width[1] + 2e-9
    assert (text.unit, text.ready, text.wanted) == ("work/s", 6, 9)
    assert text.latency_s == pytest.approx(0.4)
    assert data["capacity ready"][-1][1] == pytest.approx(6 * 900 / 6 * 1.25)


def test_of_a_workload_without_a_replica_the_arrivals_at_its_gateways_are_shown() -> None:
    items: list[scene.Item] = []
    for t in range(4):
        for source in ("node/0", "node/1"):
            seen = Arrivals(workload="asleep", request_rate=0.5 * t, active=float(t))
            items.append(DemandTick(cell=scene.CELL, source=source, tick=scene.tick(t), partition=0, arrivals=(seen,)))
    view = view_of(items)
    workload = view.workloads.get("asleep")
    assert workload is not None
    options, text = demand_options(workload, PREFERENCES)
    assert [value for _, value in series(options)["observed"]] == [0.0, 1.0, 2.0, 3.0]
    assert (text.unit, text.observed, text.arrived, text.waiting) == ("requests/s", 3.0, 3.0, 6.0)
    assert (text.ready, text.replicas) == (0, 0)
    one = Demand(workload="asleep", replicas=1, ready=1, devices=1, work_rate=2.0)
    view.apply(DemandTick(cell=scene.CELL, source="node/0", tick=scene.tick(4), partition=0, demands=(one,)))
    _, text = demand_options(workload, PREFERENCES)
    assert text.observed == 3.0, "the other source may still add to the last tick"
    view.apply(DemandTick(cell=scene.CELL, source="node/1", tick=scene.tick(4), partition=0))
    _, text = demand_options(workload, PREFERENCES)
    assert (text.unit, text.observed, text.arrived) == ("work/s", 2.0, 3.0)


def test_series_do_not_come_and_go(view: FleetView) -> None:
    """A changed number of series would make the browser rebuild the chart."""
    full, _ = demand_options(chat(view), PREFERENCES)
    assert len(full["series"]) == len(empty_demand_options(PREFERENCES)["series"])
    charts = [carbon_options(view_of(scene.signals()[:n]), {}, PREFERENCES)[0] for n in range(4)]
    assert len({len(chart["series"]) for chart in charts}) == 1


def test_a_job_without_work_rate_shows_busy_gpus(view: FleetView) -> None:
    workload = view.workloads.get("pretrain-llm")
    assert workload is not None
    options, text = demand_options(workload, PREFERENCES)
    assert text.unit == "busy GPUs"
    assert series(options)["median"]


def test_a_forecast_with_odd_levels_is_drawn_or_left_out() -> None:
    workload = Workload("w")
    base = next(f for f in scene.forecasts(scene.Fleet()) if isinstance(f, Forecast))
    workload.forecast = replace(base, levels=(0.5,), quantiles=tuple((q[2],) for q in base.quantiles))
    data = series(demand_options(workload, PREFERENCES)[0])
    assert all(width[1] == 0 for width in data["5\u201395 %"])
    workload.forecast = replace(base, levels=(), quantiles=())
    assert series(demand_options(workload, PREFERENCES)[0])["median"] == []


def test_running_slots_are_joined() -> None:
    plan = next(p for p in scene.plans() if isinstance(p, Plan))
    plan = replace(plan, start_ns=0, step_s=1.0, run=(True, True, False, True))
    assert running_spans(plan) == [(0, 2 * NS_PER_S), (3 * NS_PER_S, 4 * NS_PER_S)]


def test_plans_come_with_the_nearest_deadline_first(view: FleetView) -> None:
    _, texts = carbon_options(view, view.times(), PREFERENCES)
    assert [text.subject for text in texts] == ["nightly-embed", "genome-fold", "risk-sim"]
    assert texts[0].runs_s == pytest.approx(4 * 3600)
    assert texts[2].next_ns is not None
    assert texts[2].next_ns <= scene.NOW  # it runs now


def test_a_year_of_signal_is_cut_to_the_window() -> None:
    hours = tuple(float(h) for h in range(8_760))
    start = scene.NOW - 100 * 3600 * NS_PER_S
    signal = Signal(zone="Z", kind="carbon_intensity", published_ns=0, start_ns=start, step_s=3600.0, p50=hours)
    view = view_of([*scene.demands(scene.Fleet()), *scene.inventories(scene.Fleet()), signal])
    for plan in scene.plans():
        view.apply(plan)
    options, _ = carbon_options(view, view.times(), PREFERENCES)
    points = series(options)["Z"]
    assert 20 < len(points) < 40
    assert points[0][1] == 97.0  # three hours before the present


def test_actual_values_win_over_the_forecast() -> None:
    forecast = next(s for s in scene.signals() if isinstance(s, Signal))
    actual = replace(forecast, forecast=False, p50=(999.0,))
    options, _ = carbon_options(view_of([forecast, actual]), {}, PREFERENCES)
    assert series(options)[forecast.zone][0][1] == 999.0


def test_axes_have_units_and_end_where_the_observations_do(view: FleetView) -> None:
    options, _ = demand_options(chat(view), PREFERENCES)
    work, replicas = options["yAxis"]
    highest = max(value for _, value in series(options)["observed"])
    assert (work["name"], replicas["name"]) == ("work/s", "replicas")
    assert highest < work["max"] < 2.5 * highest
    assert work["max"] / work["interval"] == pytest.approx(4)
    carbon, _ = carbon_options(view, view.times(), PREFERENCES)
    assert carbon["yAxis"][0]["name"] == "gCO\u2082e/kWh"


def test_a_capacity_far_above_the_demand_does_not_flatten_it(view: FleetView) -> None:
    workload = Workload("w", spec=chat(view).spec)
    for tick in range(5):
        demand = Demand(workload="w", replicas=900, ready=900, devices=900, work_rate=50.0)
        workload.add(demand, "node/0", scene.tick(tick))
    options, _ = demand_options(workload, PREFERENCES)
    assert options["yAxis"][0]["max"] <= 100


def test_charts_follow_the_look(view: FleetView) -> None:
    local = Preferences(LIGHT, ZoneInfo("Europe/Berlin"))
    options, _ = demand_options(chat(view), local)
    assert options["useUTC"] is False
    assert demand_options(chat(view), PREFERENCES)[0]["useUTC"] is True
    observed = next(one for one in options["series"] if one["name"] == "observed")
    assert observed["lineStyle"]["color"] == LIGHT.text
