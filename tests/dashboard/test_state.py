"""The state behind the page: what each record changes, in any order, in bounded memory."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace
from tests.dashboard import scene

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU
from flyball_contracts.records import DemandTick, NodeEvent, Portion, Preempt, ProposalTick, Resources, WorkloadSpec
from flyball_streams.dashboard.bounded import Bounded
from flyball_streams.dashboard.state import MAX_DECISIONS, FleetView, health_of
from flyball_streams.dashboard.summary import summarise

SMALL = scene.Fleet(nodes=6, gpus=4)


def viewed(items: Sequence[scene.Item]) -> FleetView:
    view = FleetView()
    for item in items:
        view.apply(item)
    return view


def test_bounded_keeps_the_last_writes() -> None:
    kept: Bounded[int, str] = Bounded(2)
    for i in range(4):
        kept[i] = str(i)
    kept[2] = "again"
    assert kept.newest() == ["again", "3"]
    assert kept.evicted == 2
    assert 0 not in kept


def test_summary_adds_up_what_was_measured() -> None:
    summary = summarise(viewed(scene.scene()))
    assert (summary.gpus, summary.gpu_nodes) == (384, 48)
    assert summary.utilization == pytest.approx(0.69, abs=0.03)
    assert summary.power_w == pytest.approx(384 * 489, rel=0.03)
    assert summary.health == {"failing": 1, "straggling": 1, "anomalous": 2}
    assert [(cell.name, cell.gpus) for cell in summary.cells] == [("fleet", 384), ("host", 0)]
    assert summary.cells[1].cpu == pytest.approx(0.31)


def test_advice_to_resize_is_kept_beside_the_wish_to_scale() -> None:
    said = next(r for r in scene.scene() if isinstance(r, ProposalTick))
    (wish,) = said.proposals
    advice = replace(wish, id="p2", wish="resize", replicas=None, resources=Resources(cpu=2.0))
    late = replace(said, tick=scene.tick(0), proposals=(replace(advice, id="p0"),))
    workload = viewed([replace(said, proposals=(wish, advice)), late]).workloads.get(wish.workload)
    assert workload is not None
    assert (workload.proposal, workload.advice) == (wish, advice)


def test_the_choice_of_machines_is_kept_beside_it() -> None:
    said = next(r for r in scene.scene() if isinstance(r, ProposalTick))
    (wish,) = said.proposals
    choice = replace(wish, id="p3", wish="choose", mix=(Portion(offer="spot", replicas=2),))
    workload = viewed([replace(said, proposals=(wish, choice))]).workloads.get(wish.workload)
    assert workload is not None
    assert (workload.proposal, workload.choice) == (wish, choice)


def test_nothing_known_is_not_zero() -> None:
    summary = summarise(FleetView())
    assert summary.utilization is None
    assert summary.power_w is None


def test_a_frame_without_an_inventory_waits_for_it() -> None:
    view = viewed(list(scene.frames(SMALL, [3])))
    assert summarise(view).gpus == 0
    for inventory in scene.inventories(SMALL):
        view.apply(inventory)
    assert summarise(view).utilization is not None


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
    summary = summarise(viewed([scene.inventories(SMALL)[0], blank]))
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
    assert view.now_ns(scene.CELL) == scene.NOW


def test_demand_history_is_bounded() -> None:
    view = FleetView()
    one = scene.demands(SMALL)[0]
    for i in range(2_000):
        view.apply(replace(one, tick=scene.tick(i)))
    (workload,) = view.workloads.values()
    assert len(workload.points()) < 400


def test_removed_workloads_and_tombstones_go() -> None:
    view = viewed([*scene.specs(), *scene.inventories(SMALL)])
    view.apply(WorkloadSpec(workload="chat-70b", cell=scene.CELL, time_ns=scene.NOW, kind="inference", removed=True))
    view.forget("workload", "risk-sim")
    view.forget("node", scene.node_name(0))
    assert view.workloads.get("chat-70b") is None
    assert view.workloads.get("risk-sim") is None
    assert summarise(view).gpus == 20


def test_late_messages_are_counted_once_although_every_partition_hears_of_them() -> None:
    mark = DemandTick(cell="fleet", source="node/0", tick=replace(scene.tick(5), late=3), partition=0)
    view = viewed([mark, mark, mark, replace(mark, source="node/1"), replace(mark, tick=scene.tick(6))])
    assert view.late == 6


def test_frame_rate_is_in_event_time() -> None:
    view = viewed([*scene.inventories(SMALL), *scene.frames(SMALL, range(30))])
    assert view.frame_rate() == pytest.approx(7.0)  # six GPU nodes and the host


def test_marks_fade_in_event_time_but_failures_stay_longer() -> None:
    view = viewed([*scene.inventories(scene.Fleet()), *scene.troubles()])
    soon = view.active_marks({"fleet": scene.NOW})
    later = view.active_marks({"fleet": scene.NOW + 300 * NS_PER_S})
    assert len(soon) == 4
    assert {mark.health for mark in later.values()} == {"failing"}


def test_an_informational_event_is_no_finding() -> None:
    event = NodeEvent(id="i", node="n", time_ns=1, kind="agent_started")
    assert len(viewed([event]).findings) == 0


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
    assert dict(view.kinds) == {"Scale": 3, "Migrate": 1, "Preempt": 1}
    statuses = {d.workload: _status(view, d.id) for d in view.decisions.values()}
    assert statuses == {
        "chat-70b": "accepted",
        "pretrain-llm": "done",
        "genome-fold": "done",
        "search-embed": "done",
        "vision-api": "refused",
    }
    newest = {key: finding.time_ns for key, finding in view.findings.items()}
    assert newest[scene.device_id(38, 4), "record_ratio"] == scene.NOW - 4 * NS_PER_S


def _status(view: FleetView, decision: str) -> str | None:
    outcome = view.outcomes.get(decision)
    return None if outcome is None else outcome.status


def test_decisions_are_bounded_and_all_counted() -> None:
    view = FleetView()
    preempt = next(d for d in scene.decisions() if isinstance(d, Preempt))
    for i in range(1_000):
        view.apply(replace(preempt, id=f"d{i}"))
    assert len(view.decisions) == MAX_DECISIONS
    assert view.kinds["Preempt"] == 1_000


def test_mode_is_what_the_outcomes_say() -> None:
    view = viewed([*scene.outcomes(scene.decisions())])
    assert view.mode == "dry_run"
    last = view.outcomes.values()[-1]
    view.apply(replace(last, id="other", mode="live", status="failed"))
    assert view.mode == "live"
