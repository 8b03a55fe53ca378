"""Decisions as marks on a time chart: when each was made, when its effect was seen, and what it changed."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import AnyDecision, Outcome, SetsReplicas
from flyball_streams.dashboard.charts.palette import FONT, MS, Options
from flyball_streams.dashboard.links import decision_link
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.sentences import change, outcome_text
from flyball_streams.dashboard.state.journal import Journal, Verdict

MAX_MARKS = 40


class DecisionMark(NamedTuple):
    """A decision on a chart; ``effect_ns`` and ``after`` are set once its effect was observed."""

    decision: AnyDecision
    verdict: Verdict
    text: str
    effect_ns: int | None
    before: int | None
    wanted: int | None
    after: int | None


def marks_of(journal: Journal, decisions: Iterable[AnyDecision], since_ns: int) -> list[DecisionMark]:
    """Marks of the newest decisions since a time; ``decisions`` are sorted, newest first."""
    found: list[DecisionMark] = []
    for decision in decisions:
        if decision.time_ns < since_ns or len(found) == MAX_MARKS:
            break
        found.append(_mark(decision, journal.outcome(decision.id)))
    return found


def _mark(decision: AnyDecision, outcome: Outcome | None) -> DecisionMark:
    verdict, text = outcome_text(outcome)
    before = wanted = after = effect_ns = None
    if isinstance(decision, SetsReplicas):
        before, wanted = decision.replicas_before, decision.replicas
    if outcome is not None and verdict == "done":
        delay = outcome.effect_after_s
        effect_ns = outcome.time_ns if delay is None else decision.time_ns + round(delay * NS_PER_S)
        if outcome.before is not None and outcome.before.replicas is not None:
            before = outcome.before.replicas
        if outcome.observed is not None:
            after = outcome.observed.ready if outcome.observed.ready is not None else outcome.observed.replicas
    return DecisionMark(decision, verdict, text, effect_ns, before, wanted, after)


def kind_colour(decision: AnyDecision, prefs: Preferences) -> str:
    """Colour of a command."""
    palette = prefs.palette
    colours = {"Scale": palette.blue, "Migrate": palette.amber, "Preempt": palette.violet, "Check": palette.amber}
    return colours.get(type(decision).__name__, palette.blue)


def flags(marks: list[DecisionMark], height: float, prefs: Preferences, focus: str = "") -> list[dict[str, Any]]:
    """A lettered flag for each decision at this height; hollow if it was not carried out."""
    data: list[dict[str, Any]] = []
    for mark in marks:
        colour = kind_colour(mark.decision, prefs)
        solid = mark.verdict in ("done", "running", "accepted")
        data.append(
            {
                "value": [mark.decision.time_ns / MS, height],
                "link": decision_link(mark.decision.id),
                "tip": [f"{type(mark.decision).__name__}: {change(mark.decision, prefs)}", mark.text],
                "symbolSize": 19 if mark.decision.id == focus else 15,
                "itemStyle": {
                    "color": colour if solid else prefs.palette.panel,
                    "borderColor": prefs.palette.planned if mark.verdict == "planned" else colour,
                    "borderType": "dashed" if mark.verdict == "planned" else "solid",
                    "borderWidth": 1.5,
                },
                "label": {"color": prefs.palette.panel if solid else colour},
                "name": type(mark.decision).__name__[0],
            }
        )
    return data


def flag_series(data: list[dict[str, Any]], **more: Any) -> Options:
    """The series that shows flags."""
    return {
        "name": "decisions", "type": "scatter", "symbol": "roundRect", "animation": False, "z": 8, "clip": False,
        "cursor": "pointer", "data": data,
        "label": {"show": True, "formatter": "{b}", "fontSize": 10, "fontWeight": 700, "fontFamily": FONT},
        "tooltip": {"trigger": "item", ":formatter": "flyball.flagTip"},
        **more,
    }  # fmt: skip


def stems(marks: list[DecisionMark], prefs: Preferences) -> Options:
    """A line at the time of each decision, and one at the time at which its effect was observed."""
    data: list[dict[str, Any]] = []
    for mark in marks:
        colour = prefs.palette.planned if mark.verdict == "planned" else kind_colour(mark.decision, prefs)
        stroke = {"color": colour, "width": 1, "opacity": 0.75}
        data.append({"xAxis": mark.decision.time_ns / MS, "lineStyle": {**stroke, "type": [2, 3]}})
        if mark.effect_ns is not None:
            data.append({"xAxis": mark.effect_ns / MS, "lineStyle": {**stroke, "type": "solid"}})
    return {"silent": True, "symbol": "none", "animation": False, "label": {"show": False}, "data": data}


def waits(marks: list[DecisionMark], prefs: Preferences) -> Options:
    """The time between each decision and its effect."""
    data = [
        [
            {"xAxis": mark.decision.time_ns / MS,
             "itemStyle": {"color": kind_colour(mark.decision, prefs), "opacity": 0.1}},
            {"xAxis": mark.effect_ns / MS},
        ]
        for mark in marks
        if mark.effect_ns is not None
    ]  # fmt: skip
    return {"silent": True, "animation": False, "data": data}


def before_after(marks: list[DecisionMark], prefs: Preferences) -> list[dict[str, Any]]:
    """Points at the replicas before a decision (hollow) and at those observed after it (filled)."""
    data: list[dict[str, Any]] = []
    for mark in marks:
        if mark.before is None:
            continue
        colour = prefs.palette.planned if mark.verdict == "planned" else kind_colour(mark.decision, prefs)
        link = decision_link(mark.decision.id)
        hollow = {"color": prefs.palette.panel, "borderColor": colour, "borderWidth": 2}
        tip = [f"{type(mark.decision).__name__}: {change(mark.decision, prefs)}", mark.text]
        data.append(
            {"value": [mark.decision.time_ns / MS, mark.before], "link": link, "tip": tip, "itemStyle": hollow,
             "symbolSize": 8}
        )  # fmt: skip
        if mark.effect_ns is not None and mark.after is not None:
            data.append(
                {"value": [mark.effect_ns / MS, mark.after], "link": link, "tip": tip, "itemStyle": {"color": colour},
                 "symbolSize": 10}
            )  # fmt: skip
    return data
