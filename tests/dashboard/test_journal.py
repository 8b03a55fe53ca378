"""Decisions and their lives: order, groups, marks."""

from collections import Counter
from itertools import permutations
from typing import Any

from msgspec.structs import replace
from tests.dashboard.scenes import scene

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Outcome
from flyball_streams.dashboard.charts.demand import demand_options, window
from flyball_streams.dashboard.charts.marks import marks_of
from flyball_streams.dashboard.links import decision_link, node_link, workload_link
from flyball_streams.dashboard.preferences import DARK, Preferences
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.journal import MAX_DECISIONS, Journal, verdict

PREFERENCES = Preferences()


def journal(mode: str = "live") -> Journal:
    found = Journal()
    for decision in scene.decisions():
        found.decide(decision)
    for outcome in scene.outcomes(scene.decisions(), "live" if mode == "live" else "dry_run"):
        assert isinstance(outcome, Outcome)
        found.add(outcome)
    return found


def test_what_repeats_is_one_group_with_its_count_and_span() -> None:
    found = journal()
    groups = found.groups(found.newest())
    assert [(group.kind, group.workload, len(group.decisions)) for group in groups] == [
        ("Scale", "chat-70b", 2),
        ("Migrate", "pretrain-llm", 1),
        ("Preempt", "genome-fold", 1),
        ("Scale", "search-embed", 1),
        ("Scale", "vision-api", 3),
    ]
    assert groups[-1].span_ns == (scene.NOW - 176 * NS_PER_S, scene.NOW - 114 * NS_PER_S)
    assert groups[-1].verdicts == {"refused": 3}
    assert [group.workload for group in found.groups(found.newest(), "done")] == [
        "pretrain-llm", "genome-fold", "search-embed", "chat-70b",
    ]  # fmt: skip
    wanted = found.newest(lambda decision: decision.workload == "vision-api")
    assert [len(group.decisions) for group in found.groups(wanted)] == [3]


def test_a_life_is_reported_in_order_whatever_the_order_of_arrival() -> None:
    decision = scene.decisions()[1]
    steps = [step for step in scene.outcomes([scene.decisions()[0], decision])[-3:] if isinstance(step, Outcome)]
    for order in permutations(steps):
        found = Journal()
        for step in (*order, order[0]):
            found.add(step)
        found.decide(decision)
        assert [step.status for step in found.life(decision.id)] == ["accepted", "running", "done"]
        last = found.outcome(decision.id)
        assert last is not None
        assert last.status == "done"
        assert {word: n for word, n in found.verdicts.items() if n} == {"done": 1}


def test_after_a_start_the_newest_decisions_of_each_partition_are_kept_with_their_lives() -> None:
    decision = scene.decisions()[0]
    first = next(o for o in scene.outcomes([decision]) if isinstance(o, Outcome))
    done = replace(first, status="done", mode="live")
    found = Journal()
    for partition in range(4):  # the page reads one partition after another, the oldest messages first
        for i in range(MAX_DECISIONS // 2):
            id_, time_ns = f"{partition}/{i}", scene.NOW + i * NS_PER_S
            found.add(replace(done, id=id_, decision=id_, time_ns=time_ns))
    for partition in range(4):
        for i in range(MAX_DECISIONS // 2):
            id_, time_ns = f"{partition}/{i}", scene.NOW + i * NS_PER_S
            found.decide(replace(decision, id=id_, cell=f"c{partition}", time_ns=time_ns))
    assert Counter(one.cell for one in found.decisions.values()) == {f"c{i}": MAX_DECISIONS // 4 for i in range(4)}
    assert min(one.time_ns for one in found.decisions.values()) == scene.NOW + MAX_DECISIONS // 4 * NS_PER_S
    assert {verdict(found.outcome(one.id)) for one in found.decisions.values()} == {"done"}


def test_in_dry_run_nothing_counts_as_done() -> None:
    found = journal("dry_run")
    assert {word: n for word, n in found.verdicts.items() if n} == {"planned": 5, "refused": 3}
    outcome = found.outcome(scene.decisions()[1].id)
    assert outcome is not None
    assert verdict(replace(outcome, status="done")) == "planned"


def test_the_mode_is_what_the_newest_outcome_of_each_cell_says() -> None:
    found = Journal()
    assert found.mode("off") == "off"
    first, *_ = (o for o in scene.outcomes(scene.decisions()) if isinstance(o, Outcome))
    found.add(first)
    assert found.mode("off") == "live"
    found.add(replace(first, id="older", mode="dry_run", time_ns=first.time_ns - 1))
    assert found.mode("off") == "live"
    found.add(replace(first, id="other", mode="dry_run", cell="other"))
    assert found.mode("off") == "dry_run"


def seen(mode: str) -> dict[str, list[dict[str, Any]]]:
    view = FleetView()
    for item in scene.scene(mode="live" if mode == "live" else "dry_run"):
        view.apply(item)
    workload = view.workloads.get("chat-70b")
    assert workload is not None
    about = view.journal.newest(lambda decision: decision.workload == "chat-70b")
    marks = marks_of(view.journal, about, window(workload)[0].end_ns)
    options, _ = demand_options(workload, PREFERENCES, marks)
    return {one["name"]: one["data"] for one in options["series"]}


def test_a_decision_is_a_mark_at_its_time_and_at_the_time_of_its_effect() -> None:
    series = seen("live")
    newest, older = series["decisions"]
    decided = scene.decisions()[4]
    assert older["value"][0] == decided.time_ns / 1e6
    assert older["link"] == decision_link(decided.id)
    assert older["itemStyle"]["color"] == DARK.blue
    points: list[tuple[float, int]] = [tuple(point["value"]) for point in series["before and after"]]
    assert (decided.time_ns / 1e6, 4) in points
    assert ((decided.time_ns + 41 * NS_PER_S) / 1e6, 6) in points
    assert newest["name"] == "S"
    assert len(points) == 3  # the newest still runs and has no effect yet


def test_a_planned_decision_is_a_hollow_mark_without_an_effect() -> None:
    series = seen("dry_run")
    for mark in series["decisions"]:
        assert mark["itemStyle"]["color"] == DARK.panel
        assert mark["itemStyle"]["borderColor"] == DARK.planned
    assert len(series["before and after"]) == 2


def test_links_survive_any_name() -> None:
    assert node_link("a/b c?d") == "/nodes/a%2Fb%20c%3Fd"
    assert workload_link("ml/a") == "/workloads/ml%2Fa"
    assert workload_link("node:a/b") == node_link("a/b")  # what a check is about
