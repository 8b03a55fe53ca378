"""The state behind the page: what each record changes, in any order, in bounded memory."""

from collections.abc import Sequence
from importlib.resources import files
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace
from tests.contracts.strategies import samples
from tests.dashboard.scenes import scene

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU
from flyball_contracts.records import (
    DECISION_TYPES,
    Anomaly,
    AnyDecision,
    Demand,
    DemandTick,
    MachineChoice,
    NodeCondition,
    NodeEvent,
    PlatformStatus,
    Portion,
    Preempt,
    ProposalTick,
    Resources,
    WorkloadSpec,
)
from flyball_contracts.topics import INVENTORY, WORKLOADS
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.bounded import Bounded
from flyball_streams.dashboard.state.fleet import MAX_WORKLOADS, FleetView
from flyball_streams.dashboard.state.journal import MAX_DECISIONS, verdict
from flyball_streams.dashboard.state.nodes import History
from flyball_streams.dashboard.state.reports import health_of, report_id
from flyball_streams.dashboard.state.summary import Summary, SummaryCache, summarise
from flyball_streams.dashboard.views.base import condition_facts, node_facts

SMALL = scene.Fleet(nodes=6, gpus=4)


def viewed(items: Sequence[scene.Item]) -> FleetView:
    view = FleetView()
    for item in items:
        view.apply(item)
    return view


def summed(view: FleetView) -> Summary:
    return summarise(view, view.times())


def test_bounded_keeps_the_last_writes() -> None:
    kept: Bounded[int, str] = Bounded(2)
    for i in range(4):
        kept[i] = str(i)
    kept[2] = "again"
    assert kept.newest() == ["again", "3"]
    assert kept.evicted == 2
    assert 0 not in kept


def test_summary_adds_up_what_was_measured() -> None:
    summary = summed(viewed(scene.scene()))
    assert (summary.gpus, summary.gpu_nodes) == (384, 48)
    assert summary.utilization == pytest.approx(0.69, abs=0.03)
    assert summary.power_w == pytest.approx(384 * 489, rel=0.03)
    assert summary.health == {"failing": 1, "straggling": 1, "anomalous": 2}
    assert [(cell.name, cell.gpus) for cell in summary.cells] == [("fleet", 384), ("host", 0)]
    assert summary.cells[1].cpu == pytest.approx(0.31)


def test_advice_to_resize_is_kept_beside_the_proposal_to_scale() -> None:
    tick = next(r for r in scene.scene() if isinstance(r, ProposalTick))
    (proposal,) = tick.proposals
    advice = replace(proposal, id="p2", action="resize", replicas=None, resources=Resources(cpu=2.0))
    late = replace(tick, tick=scene.tick(0), proposals=(replace(advice, id="p0"),))
    workload = viewed([replace(tick, proposals=(proposal, advice)), late]).workloads.get(proposal.workload)
    assert workload is not None
    assert (workload.proposal, workload.advice) == (proposal, advice)


def test_the_choice_of_machines_is_kept_beside_it() -> None:
    tick = next(r for r in scene.scene() if isinstance(r, ProposalTick))
    (proposal,) = tick.proposals
    requested = replace(proposal, id="p3", action="choose")
    choice = MachineChoice(
        id="c1",
        subject=proposal.workload,
        cell=tick.cell,
        time_ns=tick.tick.end_ns,
        replicas=2,
        mix=(Portion(offer="spot", replicas=2),),
        reason="it costs less",
        proposal="p3",
    )
    late = replace(choice, id="c0", time_ns=choice.time_ns - 1)
    records = [replace(tick, proposals=(proposal, requested)), choice, late]
    workload = viewed(records).workloads.get(proposal.workload)
    assert workload is not None
    assert (workload.proposal, workload.choice) == (proposal, choice)


def test_nothing_known_is_not_zero() -> None:
    summary = summed(FleetView())
    assert summary.utilization is None
    assert summary.power_w is None


def test_a_frame_without_an_inventory_waits_for_it() -> None:
    view = viewed(list(scene.frames(SMALL, [3])))
    assert summed(view).gpus == 0
    for inventory in scene.inventories(SMALL):
        view.apply(inventory)
    assert summed(view).utilization is not None


def test_duplicate_and_reordered_frames_change_nothing() -> None:
    inventories = scene.inventories(SMALL)
    frames = scene.frames(SMALL, range(5))
    first = viewed([*inventories, *frames])
    again = viewed([*inventories, *frames, *frames[:7]])
    for name in first.nodes:
        old, new = first.nodes.get(name), again.nodes.get(name)
        assert old is not None
        assert new is not None
        assert old.time_ns == new.time_ns
        np.testing.assert_array_equal(old.table(), new.table())


def test_a_restarted_agent_is_followed_although_its_sequence_starts_again() -> None:
    frame = scene.frames(SMALL, [9])[0]
    view = viewed([*scene.inventories(SMALL), frame])
    values = np.full((4, len(GPU)), 0.25, np.float32)
    restarted = replace(frame, epoch=2, seq=0, time_ns=frame.time_ns + NS_PER_S, block=values.tobytes())
    view.apply(restarted)
    node = view.nodes.get(frame.node)
    assert node is not None
    assert node.table()[0, 0] == pytest.approx(0.25)


def test_a_missing_measurement_stays_missing() -> None:
    frame = scene.frames(SMALL, [1])[0]
    blank = replace(frame, block=np.full((4, len(GPU)), np.nan, np.float32).tobytes())
    summary = summed(viewed([scene.inventories(SMALL)[0], blank]))
    assert summary.gpus == 4
    assert summary.utilization is None


def test_demand_is_summed_over_its_sources() -> None:
    view = viewed(scene.demands(SMALL))
    workload = view.workloads.get("search-embed")
    assert workload is not None
    points = workload.points()
    assert len(points) == scene.TICKS
    assert points[-1].end_ns == scene.NOW
    assert points[-1].ready == 4
    assert points[-1].busy == 4.0
    assert view.times()[scene.CELL] == scene.NOW


def test_a_tick_is_shown_when_all_sources_have_reported_it() -> None:
    view = FleetView()

    def report(source: str, at: int, *parts: Demand, parts_of: tuple[int, int] = (0, 1)) -> list[tuple[int, int]]:
        part, count = parts_of
        one = DemandTick(
            cell=scene.CELL, source=source, tick=scene.tick(at), partition=0, demands=parts, part=part, parts=count
        )  # fmt: skip
        view.apply(one)
        workload = view.workloads.get("chat")
        assert workload is not None
        return [(point.end_ns, point.replicas) for point in workload.points()]

    def ends(*shown: tuple[int, int]) -> list[tuple[int, int]]:
        return [(scene.tick(at).end_ns, replicas) for at, replicas in shown]

    half = Demand(workload="chat", replicas=2, ready=2, devices=2)
    report("node/0", 0, half)
    assert report("node/1", 0, half) == ends((0, 4))
    assert report("node/0", 1, half) == ends((0, 4)), "no drop to 2"
    assert report("node/1", 1, parts_of=(0, 2)) == ends((0, 4)), "its demand may be in the second part"
    assert report("node/1", 1, half, parts_of=(1, 2)) == ends((0, 4), (1, 4))
    assert report("node/0", 2, half) == report("node/0", 1, half), "what is repeated takes nothing back"
    assert report("node/1", 2) == ends((0, 4), (1, 4), (2, 2)), "its replicas have gone"
    for at in range(3, 8):
        assert report("node/0", at, half)[-1] == ends((2, 2))[0]
    assert report("node/0", 8, half)[-1] == ends((8, 2))[0], "a lane that is away is waited for no longer"


def test_demand_history_is_bounded() -> None:
    view = FleetView()
    one = scene.demands(SMALL)[0]
    for i in range(2_000):
        view.apply(replace(one, tick=scene.tick(i), demands=one.demands[:1]))
    (workload,) = view.workloads.values()
    assert len(workload.points()) < 400
    history = workload.history()
    assert len(history) < 800
    assert history[0].end_ns == scene.tick(0).end_ns
    assert [point.end_ns for point in history] == sorted({point.end_ns for point in history})


def test_removed_workloads_and_tombstones_go() -> None:
    view = viewed([*scene.specs(), *scene.inventories(SMALL)])
    view.apply(WorkloadSpec(workload="chat-70b", cell=scene.CELL, time_ns=scene.NOW, kind="inference", removed=True))
    view.forget(WORKLOADS.name, "risk-sim")
    view.forget(INVENTORY.name, scene.node_name(0))
    assert view.workloads.get("chat-70b") is None
    assert view.workloads.get("risk-sim") is None
    assert summed(view).gpus == 20


def test_of_two_actuators_each_says_whether_a_platform_answers_it() -> None:
    status = PlatformStatus(
        id="a", subject="platform:slurm/fleet", driver="slurm", cells="fleet", actuator="one", time_ns=scene.NOW,
        open=True, since_ns=scene.NOW, failures=5, opened=1, problem="no answer",
    )  # fmt: skip
    view = viewed([status, replace(status, id="b", actuator="two", time_ns=scene.NOW + 1, open=False)])
    assert view.silent_platforms({"fleet": scene.NOW}) == [status]
    view.apply(replace(status, id="c", time_ns=scene.NOW + 2, open=False))
    assert view.silent_platforms({"fleet": scene.NOW}) == []


def test_an_older_specification_does_not_bring_back_a_removed_workload() -> None:
    old = next(item for item in scene.specs() if item.workload == "chat-70b")
    gone = replace(old, time_ns=old.time_ns + 1, removed=True)
    for order in ([old, gone], [gone, old]):
        assert viewed([*order]).workloads.get("chat-70b") is None


def test_late_messages_are_counted_once_although_every_partition_hears_of_them() -> None:
    mark = DemandTick(cell="fleet", source="node/0", tick=replace(scene.tick(5), late=3), partition=0)
    view = viewed([mark, mark, mark, replace(mark, source="node/1"), replace(mark, tick=scene.tick(6))])
    assert view.late == 6


def test_frame_rate_is_in_event_time() -> None:
    view = viewed([*scene.inventories(SMALL), *scene.frames(SMALL, range(30))])
    assert view.frame_rate(view.times()) == pytest.approx(7.0)  # six GPU nodes and the host


def test_marks_fade_in_event_time_but_failures_stay_longer() -> None:
    view = viewed([*scene.inventories(scene.Fleet()), *scene.troubles()])
    soon = view.active_marks({"fleet": scene.NOW})
    later = view.active_marks({"fleet": scene.NOW + 300 * NS_PER_S})
    assert len(soon) == 4
    assert {mark.health for mark in later.values()} == {"failing"}


def test_a_weaker_report_does_not_hide_a_failure_before_its_time() -> None:
    node = scene.inventories(SMALL)[0]
    device = node.devices[0].id
    fault = NodeEvent(
        id="e", node=node.node, device=device, time_ns=scene.NOW, kind="xid", severity="critical", code=79
    )
    odd = Anomaly(
        id="a", subject=device, cell=node.cell, node=node.node, time_ns=scene.NOW + 95 * NS_PER_S, detector="forecast",
        score=0.9,
    )  # fmt: skip
    view = viewed([node, fault, odd])
    (mark,) = view.active_marks({node.cell: scene.NOW + 300 * NS_PER_S}).values()
    assert mark.health == "failing"


def test_only_gpus_of_the_fleet_count_as_unhealthy() -> None:
    node, other, *_ = scene.inventories(SMALL)
    of_host = Anomaly(
        id="a", subject=node.node, cell=node.cell, node=node.node, time_ns=scene.NOW, detector="peers", score=0.9
    )
    fault = NodeEvent(
        id="e", node=other.node, device=other.devices[0].id, time_ns=scene.NOW, kind="xid", severity="critical"
    )
    view = viewed([node, other, of_host, fault])
    assert summarise(view, {node.cell: scene.NOW}).health == {"failing": 1, "straggling": 0, "anomalous": 0}
    view.forget(INVENTORY.name, other.node)
    later = {node.cell: scene.NOW + 86_400 * NS_PER_S}
    assert summarise(view, later).health == {"failing": 0, "straggling": 0, "anomalous": 0}


def test_a_silent_node_counts_with_its_gpus_but_not_with_its_last_measurements() -> None:
    frames = scene.frames(SMALL, range(30))
    view = viewed([*scene.inventories(SMALL), *frames])
    late = {cell: at + 40 * NS_PER_S for cell, at in view.times().items()}
    silent = summarise(view, late)
    assert (silent.gpus, silent.busy, silent.utilization, silent.power_w) == (24, 0, None, None)
    assert silent.cells[0].cpu is None
    slow = [replace(frame, period_ns=60 * NS_PER_S) for frame in frames]
    assert summarise(viewed([*scene.inventories(SMALL), *slow]), late).busy == summed(view).busy > 0


def test_a_history_goes_on_after_a_clock_was_set_back() -> None:
    history, table = History(), np.zeros((1, 4), np.float32)
    history.add(scene.NOW + 86_400 * NS_PER_S, table)
    for i in range(3):
        history.add(scene.NOW + 10 * i * NS_PER_S, table)
    assert history.read()[0].tolist() == [scene.NOW + 10 * i * NS_PER_S for i in range(3)]


def test_a_gpu_with_an_open_critical_incident_stays_marked() -> None:
    view = viewed(scene.scene())
    later = {"fleet": scene.NOW + 86_400 * NS_PER_S}
    (incident,) = (one for one in view.open_incidents() if one.severity == "critical" and one.device)
    assert [device for _, device in view.active_marks(later)] == [incident.device]
    view.apply(replace(incident, status="closed", revision=incident.revision + 1))
    assert view.active_marks(later) == {}


def test_a_critical_incident_is_marked_where_a_weaker_report_is_fresh() -> None:
    view = viewed([*scene.inventories(scene.Fleet()), *scene.troubles()])
    weaker = next(key for key, mark in view.active_marks(view.times()).items() if mark.health != "failing")
    open_one = next(one for one in viewed(scene.scene()).open_incidents() if one.severity == "critical")
    view.apply(replace(open_one, device=weaker[1]))
    mark = view.active_marks(view.times())[weaker]
    assert (mark.health, mark.text) == ("failing", open_one.summary)


def test_a_cordon_is_shown_for_the_gpus_that_are_there() -> None:
    view = viewed(scene.scene())
    node = next(one for one in view.nodes.values() if one.inventory is not None and len(one.inventory.devices) > 1)
    assert node.inventory is not None
    ids = tuple(device.id for device in node.inventory.devices)
    taken, cordoned = list[str](), list[str]()
    for devices in (("GPU-gone",), ("GPU-gone", ids[0]), ids, ()):
        condition = NodeCondition(
            node=node.name, cell="fleet", time_ns=scene.NOW, revision=1, condition="cordoned",
            since_ns=scene.NOW, reason="a fault", devices=devices,
        )  # fmt: skip
        taken += [f.label for f in node_facts(node, condition, Preferences()) if f.name == "takes new work"]
        shown, *_ = condition_facts(node.inventory, condition, Preferences())
        cordoned.append(shown.label.partition(" since ")[0])
    assert taken == ["yes", "yes, but not on GPU 0", "no, it is cordoned", "no, it is cordoned"]
    assert cordoned == ["cordoned", "GPU 0 cordoned", "cordoned", "cordoned"]


def test_every_kind_of_decision_is_shown() -> None:
    view = viewed([replace(samples()[kind][0], id=kind) for kind in DECISION_TYPES])
    assert set(view.journal.kinds) == set(DECISION_TYPES) == {kind.__name__ for kind in get_args(AnyDecision)}
    style = files("flyball_streams.dashboard").joinpath("static", "flyball.css").read_text()
    assert all(f".kind-{kind}" in style for kind in DECISION_TYPES)


def test_an_informational_event_is_no_finding() -> None:
    event = NodeEvent(id="i", node="n", time_ns=1, kind="agent_started")
    assert len(viewed([event]).reports) == 0


@pytest.mark.parametrize(
    ("detector", "health"),
    [("failing", "failing"), ("straggling", "straggling"), ("record_ratio", "anomalous"), ("xid", "failing")],
)
def test_health_follows_the_detector(detector: str, health: str) -> None:
    assert health_of(detector) == health


@settings(max_examples=40, deadline=None)
@given(st.permutations(scene.decisions() + scene.outcomes(scene.decisions()) + scene.troubles()))
def test_the_order_of_arrival_does_not_matter(items: list[scene.Item]) -> None:
    view = viewed(items + items[:4])
    assert dict(view.journal.kinds) == {"Scale": 6, "Migrate": 1, "Preempt": 1}
    assert {word: n for word, n in view.journal.verdicts.items() if n} == {"running": 1, "done": 4, "refused": 3}
    words = [verdict(view.journal.outcome(decision.id)) for decision in view.journal.newest()]
    assert words == ["running", "done", "done", "done", "done", "refused", "refused", "refused"]
    incident = view.reports.get(report_id(scene.device_id(38, 4), "record_ratio"))
    assert incident is not None
    assert (incident.count, incident.time_ns) == (3, scene.NOW - 4 * NS_PER_S)
    assert incident.first_ns == scene.NOW - 6 * NS_PER_S


def test_more_workloads_than_are_kept_cost_the_kept_ones_nothing() -> None:
    names = [f"job-{i}" for i in range(MAX_WORKLOADS + 1)]
    view = viewed([WorkloadSpec(workload=name, cell="c", time_ns=1, kind="batch") for name in names])

    def report(ticks: range, reported: Sequence[str]) -> None:
        demands = tuple(Demand(workload=name, replicas=1, ready=1, devices=8) for name in reported)
        for t in ticks:
            view.apply(DemandTick(cell="c", source="node/0", tick=scene.tick(t), partition=0, demands=demands))

    report(range(3), names)
    kept = view.workloads.values()
    assert len(kept) == MAX_WORKLOADS
    assert all(len(one.ticks) == 3 and one.spec is not None for one in kept)
    (left_out,) = {*names} - {one.name for one in kept}
    report(range(3, 23), [name for name in names if name != kept[15].name])
    assert view.workloads.get(kept[15].name) is None  # it has ended and made room
    taken = view.workloads.get(left_out)
    assert taken is not None
    assert taken.spec is not None


def test_decisions_are_bounded_and_all_counted() -> None:
    view = FleetView()
    preempt = next(d for d in scene.decisions() if isinstance(d, Preempt))
    for i in range(MAX_DECISIONS + 100):
        view.apply(replace(preempt, id=f"d{i}"))
    assert len(view.journal.decisions) == MAX_DECISIONS
    assert view.journal.kinds["Preempt"] == MAX_DECISIONS + 100


def test_a_device_is_found_by_its_id_until_its_node_goes() -> None:
    view = viewed(scene.inventories(SMALL))
    assert view.place(scene.device_id(2, 3)) == f"{scene.node_name(2)} \N{MIDDLE DOT} GPU 3"
    view.forget(INVENTORY.name, scene.node_name(2))
    assert view.place(scene.device_id(2, 3)) == scene.device_id(2, 3)


def test_a_device_that_moved_to_another_node_stays_there_when_the_old_node_is_reported_again() -> None:
    old, new = scene.inventories(SMALL)[:2]
    moved = replace(new, epoch=2, time_ns=new.time_ns + 1, devices=old.devices)
    view = viewed([old, new, moved, replace(old, epoch=2, time_ns=old.time_ns + 2, devices=())])
    assert view.places[old.devices[0].id] == (new.node, 0)


def test_a_node_remembers_its_measurements_at_least_five_seconds_apart() -> None:
    view = viewed([*scene.inventories(SMALL), *scene.frames(SMALL, range(21))])
    node = view.nodes.get(scene.node_name(0))
    assert node is not None
    times, values = node.history.read()
    assert [(time - scene.T0) // NS_PER_S for time in times] == [0, 5, 10, 15, 20]
    assert values.shape == (5, 4, 4)
    np.testing.assert_allclose(values[-1], node.table(), rtol=1e-3)


def test_a_glance_is_taken_anew_only_when_something_came_and_time_passed() -> None:
    now = [0.0]
    view = viewed(scene.inventories(SMALL))
    cache = SummaryCache(view, clock=lambda: now[0])
    cache.refresh()
    assert cache.summary.gpus == 24
    view.forget(INVENTORY.name, scene.node_name(0))
    cache.refresh()
    assert cache.summary.gpus == 24
    now[0] = 1.0
    cache.refresh()
    assert cache.summary.gpus == 20


def test_cost_and_carbon_of_the_present_follow_from_prices_power_and_the_grid() -> None:
    view = viewed(scene.scene(SMALL))
    summary = summed(view)
    assert summary.usd_per_hour == pytest.approx(6 * 24.0)
    assert summary.priced == 6
    assert summary.power_w is not None
    assert summary.carbon_g_per_hour is not None
    mean = summary.carbon_g_per_hour / (summary.power_w / 1000)
    assert 12.0 < mean < 510.0  # between the cleanest and the dirtiest of the three zones


def test_what_fails_now_comes_before_what_is_merely_newer() -> None:
    view = viewed([*scene.inventories(scene.Fleet()), *scene.troubles()])
    known = view.reports.values()
    now = view.ordered(known, {"fleet": scene.NOW})
    assert [incident.health for incident in now] == ["failing", "failing", "straggling", "anomalous", "anomalous"]
    later = view.ordered(known, {"fleet": scene.NOW + 3600 * NS_PER_S})
    assert [incident.time_ns for incident in later] == sorted((i.time_ns for i in known), reverse=True)
