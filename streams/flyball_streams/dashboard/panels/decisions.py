"""The list of decisions: repeated ones share a row; each decision has its own view."""

from collections.abc import Callable

from nicegui.element import Element

from flyball_contracts.records import DECISION_TYPES, AnyDecision
from flyball_streams.dashboard.links import decision_link, workload_link
from flyball_streams.dashboard.panels.elements import Choices, anchor, box, head, panel, readdress, restyle, show, text
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.sentences import effects, outcome_text, wording
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.journal import VERDICTS, Group, Journal, Verdict, verdict
from flyball_streams.dashboard.text import count, plural

SHOWN = 40
MEMBERS = 25


class DecisionPanel:
    """Groups of decisions, the newest first, with filters; ``wanted`` limits a list to one subject."""

    def __init__(
        self,
        prefs: Preferences,
        title: str = "Decisions",
        wanted: Callable[[AnyDecision], bool] = lambda _: True,
        nothing: str = "Awaiting decisions on flyball.decisions.v1",
    ) -> None:
        self._prefs = prefs
        self._wanted = wanted
        self._cards: dict[str, _Card] = {}
        self._order: list[str] = []
        self._first = self._stale = True
        self._seen = -1
        self._nothing = nothing
        with panel("feed", title):
            with head(title):
                self._sub = text(classes="sub")
            self._silent = text(classes="reason")
            with box("filters") as self._filters:
                self._kind = Choices("Type", "every type", self._changed)
                self._workload = Choices("Workload", "every workload", self._changed)
                self._verdict = Choices("Outcome", "every outcome", self._changed)
            self._empty = text(nothing, "empty")
            with box("body"):
                self._list = box("scroll").props(f'tabindex="0" role="log" aria-label="{title}, newest first"')

    def _changed(self) -> None:
        self._stale = True

    def update(self, view: FleetView) -> None:
        """Patch the groups if something new came."""
        if view.version == self._seen and not self._stale:
            return
        self._seen, self._stale = view.version, False
        known = view.journal.newest(self._wanted)
        self._kind.offer([kind for kind in DECISION_TYPES if any(type(d).__name__ == kind for d in known)])
        self._workload.offer(sorted({decision.workload for decision in known if decision.workload}))
        present = {verdict(view.journal.outcome(decision.id)) for decision in known}
        self._verdict.offer([word for word in VERDICTS if word in present])
        groups = self._groups(view.journal, known)
        show(self._filters, len(known) > 1)
        show(self._empty, not groups)
        self._empty.set_text("No decision is like this" if known else self._nothing)
        silent = [
            f"Platform {one.driver} of {one.cells} gives no answer since {self._prefs.clock(one.since_ns)}: "
            f"calls are held back ({one.problem})"
            for one in view.silent_platforms(view.times())
        ]
        show(self._silent, bool(silent))
        self._silent.set_text("; ".join(silent))
        total = sum(len(group.decisions) for group in groups)
        newest = f", newest {SHOWN} shown" if len(groups) > SHOWN else ""
        self._sub.set_text(f"{plural(total, 'decision')} in {plural(len(groups), 'row')}{newest}" if groups else "")
        self._arrange(view, groups[:SHOWN])
        self._first = False

    def _groups(self, journal: Journal, known: list[AnyDecision]) -> list[Group]:
        kind, workload = self._kind.value, self._workload.value
        shown: Verdict | None = next((word for word in VERDICTS if word == self._verdict.value), None)
        fitting = [d for d in known if kind in (None, type(d).__name__) and workload in (None, d.workload)]
        return journal.groups(fitting, shown)

    def _arrange(self, view: FleetView, groups: list[Group]) -> None:
        wanted = {group.key for group in groups}
        for gone in [key for key in self._order if key not in wanted]:
            self._cards.pop(gone).element.delete()
            self._order.remove(gone)
        for place, group in enumerate(groups):
            if group.key not in self._cards:
                with self._list:
                    self._cards[group.key] = _Card(group, self._prefs)
                if not self._first:
                    self._cards[group.key].element.classes(add="fresh")
                if place < len(self._order):
                    self._cards[group.key].element.move(target_index=place)
                self._order.insert(place, group.key)
            elif self._order[place] != group.key:
                self._order.remove(group.key)
                self._order.insert(place, group.key)
                self._cards[group.key].element.move(target_index=place)
            self._cards[group.key].update(view, group)


class _Card:
    """One group: its newest decision, count and times, and its members when opened."""

    def __init__(self, group: Group, prefs: Preferences) -> None:
        self._prefs = prefs
        self._shown: list[tuple[str, str]] = []
        self.element: Element = box(f"card kind-{group.kind}", "article")
        with self.element:
            with box("line"):
                text(group.kind, "badge", "span")
                anchor(group.workload, workload_link(group.workload), "target")
                self._times = text(classes="times", tag="span")
                self._at = text(classes="at", tag="span")
            with box("second"):
                self._what = anchor("", "#", "what open")
                self._chip = text(classes="pill outcome", tag="span")
            self._reason = text(classes="reason")
            with box("line"):
                self._effects = [text(classes="pill", tag="span") for _ in range(5)]
            with box(tag="details") as self._details:
                self._summary = text(tag="summary")
                self._members = box("members")

    def update(self, view: FleetView, group: Group) -> None:
        """Patch what changed."""
        newest, outcome = group.newest, view.journal.outcome(group.newest.id)
        style, label = outcome_text(outcome)
        oldest_ns, newest_ns = group.span_ns
        number_of = len(group.decisions)
        show(self._times, number_of > 1)
        self._times.set_text(f"\N{MULTIPLICATION SIGN}{count(number_of)}")
        first = f"{self._prefs.clock(oldest_ns)}\N{EN DASH}" if number_of > 1 else ""
        self._at.set_text(f"{first}{self._prefs.clock(newest_ns)}")
        readdress(self._what, what(newest, view, self._prefs), decision_link(newest.id))
        self._chip.set_text(label)
        restyle(self._chip, "was", style)
        self._reason.set_text(newest.reason)
        lines = effects(newest.expected)
        for place, pill in enumerate(self._effects):
            show(pill, place < len(lines))
            if place < len(lines):
                name, amount, good = lines[place]
                pill.set_text(f"{name} {amount}")
                restyle(pill, "is", "neutral" if good is None else "better" if good else "worse")
        show(self._details, number_of > 1)
        tally = ", ".join(f"{count(group.verdicts[word])} {word}" for word in VERDICTS if group.verdicts[word])
        self._summary.set_text(f"all {count(number_of)}: {tally}")
        members = [(d.id, outcome_text(view.journal.outcome(d.id))[1]) for d in group.decisions[:MEMBERS]]
        if number_of > 1 and members != self._shown:
            self._shown = members
            self._members.clear()
            with self._members:
                for decision in group.decisions[:MEMBERS]:
                    _member(decision, view, self._prefs)
                if number_of > MEMBERS:
                    text(f"and {count(number_of - MEMBERS)} older", "older")


def _member(decision: AnyDecision, view: FleetView, prefs: Preferences) -> None:
    style, label = outcome_text(view.journal.outcome(decision.id))
    with box("member"):
        text(prefs.clock(decision.time_ns), "at", "span")
        anchor(what(decision, view, prefs), decision_link(decision.id), "what")
        text(label, f"pill outcome was-{style}", "span")


def what(decision: AnyDecision, view: FleetView, prefs: Preferences) -> str:
    """What a decision does, in a few words."""
    return decision.change(wording(prefs, view.place))
