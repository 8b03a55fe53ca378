"""The feed of decisions: what, why, what it should change, and what became of it."""

from dataclasses import dataclass

from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from flyball_contracts.records import AnyDecision, Migrate, Outcome, Preempt
from flyball_streams.dashboard.panels.anomalies import device_names
from flyball_streams.dashboard.panels.elements import box, head, panel, show, text
from flyball_streams.dashboard.state import FleetView
from flyball_streams.dashboard.text import change, clock, effects, outcome_text, percent, quantity

SHOWN = 40


@dataclass(slots=True)
class _Card:
    element: Element
    chip: TextElement
    answer: TextElement
    outcome: Outcome | None = None


class DecisionPanel:
    """Cards, newest first by event time; a card is built once and then only its outcome changes."""

    def __init__(self) -> None:
        self._cards: dict[str, _Card] = {}
        self._order: list[str] = []
        self._first = True
        with panel("feed", "Decisions"):
            with head("Decisions"):
                self._sub = text(classes="sub")
            self._empty = text("Awaiting decisions on flyball.decisions.v1", "empty")
            with box("body"):
                self._list = box("scroll").props('tabindex="0" role="log" aria-label="Decisions, newest first"')

    def update(self, view: FleetView) -> None:
        """Add what is new, drop what is old, patch the outcomes."""
        newest = sorted(view.decisions.values(), key=lambda d: (-d.time_ns, d.id))[:SHOWN]
        show(self._empty, not newest)
        total = sum(view.kinds.values())
        self._sub.set_text(f"newest {len(newest)} of {total}" if total > len(newest) else "")
        wanted = {decision.id for decision in newest}
        for gone in [key for key in self._order if key not in wanted]:
            self._cards.pop(gone).element.delete()
            self._order.remove(gone)
        names: dict[str, str] | None = None
        for place, decision in enumerate(newest):
            if decision.id not in self._cards:
                names = device_names(view) if names is None else names
                with self._list:
                    card = _card(decision, names)
                if not self._first:
                    card.element.classes(add="fresh")
                if place < len(self._order):
                    card.element.move(target_index=place)
                self._order.insert(place, decision.id)
                self._cards[decision.id] = card
            _patch(self._cards[decision.id], view.outcomes.get(decision.id))
        self._first = False


def _patch(card: _Card, outcome: Outcome | None) -> None:
    if outcome is None or outcome is card.outcome:
        return
    old, _ = outcome_text(card.outcome)
    style, words = outcome_text(outcome)
    card.chip.classes(add=style, remove=old)
    card.chip.set_text(words)
    card.outcome = outcome
    said = [part for part in (outcome.detail, outcome.answer) if part]
    delay = "" if outcome.effect_after_s is None else f" after {quantity(outcome.effect_after_s, 's')}"
    card.answer.set_text(f"{outcome.driver}{delay}: {'; '.join(said) or outcome.status}")


def _card(decision: AnyDecision, names: dict[str, str]) -> _Card:
    kind = type(decision).__name__
    element = box(f"card kind-{kind}", "article")
    with element:
        with box("line"):
            text(kind, "badge", "span")
            text(decision.workload or decision.target, "target", "span")
            text(clock(decision.time_ns), "at", "span").props(f'title="{clock(decision.time_ns, day=True)} UTC"')
        with box("second"):
            text(_what(decision, names), "what")
            style, words = outcome_text(None)
            chip = text(words, f"pill outcome {style}", "span")
        text(decision.reason, "reason")
        with box("line"):
            for name, words, good in effects(decision.expected):
                text(f"{name} {words}", "pill" if good is None else f"pill {'good' if good else 'worse'}", "span")
        with box(tag="details"):
            text(f"evidence ({len(decision.evidence)})", tag="summary")
            answer = _proof(decision)
    return _Card(element, chip, answer)


def _what(decision: AnyDecision, names: dict[str, str]) -> str:
    words = change(decision)
    match decision:
        case Migrate():
            source = names.get(decision.from_device) or decision.from_device or decision.from_node
            return f"{decision.replica}: {source} {words}"
        case Preempt() if decision.beneficiary:
            return f"{words}, makes room for {decision.beneficiary}"
        case _:
            return words


def _proof(decision: AnyDecision) -> TextElement:
    """Rows of evidence and of what else a reader may want; returns the place of the platform's answer."""
    with box("proof"):
        for item in decision.evidence:
            text(item.name)
            expected = "" if item.expected is None else f", expected {quantity(item.expected, item.unit)}"
            text(f"{quantity(item.value, item.unit)}{expected}")
        for name, value in (
            ("target", decision.target),
            ("policy", decision.policy),
            ("confidence", percent(decision.confidence)),
            ("expires", f"{clock(decision.expires_ns)} UTC"),
            ("id", decision.id),
        ):
            text(name)
            text(value)
        text("outcome")
        return text("none yet")
