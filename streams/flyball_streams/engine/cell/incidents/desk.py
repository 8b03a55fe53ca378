"""The incidents of one cell: what opens, joins, is answered and ends, tick by tick."""

from collections.abc import Iterable, Iterator

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import (
    AnyDecision,
    Check,
    Incident,
    IncidentAction,
    Migrate,
    NodeCondition,
    Outcome,
    Proposal,
    Symptom,
    Tick,
)
from flyball_streams.engine.cell.incidents.answers import Answers
from flyball_streams.engine.cell.incidents.case import RANK, Case
from flyball_streams.engine.cell.incidents.correlate import Correlation
from flyball_streams.engine.cell.incidents.interventions import Interventions
from flyball_streams.engine.cell.incidents.limits import passes
from flyball_streams.engine.cell.incidents.quarantine import Ward, Wards, cited_by
from flyball_streams.engine.cell.incidents.words import incident_of, worst_first
from flyball_streams.engine.known import Known
from flyball_streams.engine.parameters import HealthParameters

QUIET_S = 600.0
QUIET_TICKS = 40
"""An incident of which nothing was seen for the longer of these is over; what lasts is said every 30 ticks."""
REPEAT_S = 300.0
"""What only goes on is told again after so long."""


class Book(msgspec.Struct):
    """State of a desk: open incidents, decisions of late, anomalies that labels hold back, and nodes that are out."""

    cases: dict[str, Case] = {}
    interventions: Interventions = msgspec.field(default_factory=Interventions)
    held: dict[str, int] = {}
    wards: Wards = msgspec.field(default_factory=Wards)


class Desk:
    """Makes the symptoms of one cell into incidents.

    In each tick: :meth:`take` symptoms, ask :meth:`permits` of each proposal, :meth:`note` the decisions, and publish
    :meth:`records`.
    """

    def __init__(self, cell: str, config: HealthParameters, directory: Known, book: Book | None = None) -> None:
        self.cell = cell
        self.config = config
        self.directory = directory
        self.book = book or Book()
        self.open = Correlation(cell, directory, self.book.cases)
        self.answers = Answers(cell, directory)
        self.released: list[Ward] = []

    def heed(self, outcome: Outcome) -> None:
        """Note what became of a decision, in the incidents that it is among the actions of, and of a check."""
        self.book.wards.heed(outcome)
        action = self.book.interventions.heed(outcome)
        if action is not None:
            for case in list(self.open.of_decision(action.decision)):
                self._act(case, action)

    def take(self, tick: Tick, symptoms: Iterable[Symptom]) -> None:
        """Take the symptoms of a tick: what is more telling first, then what began earlier."""
        now_ns, book = tick.end_ns, self.book
        self.answers.read()
        book.interventions.forget(now_ns)
        book.held = {name: at for name, at in book.held.items() if 0 <= now_ns - at < QUIET_S * NS_PER_S}
        order = sorted(
            symptoms, key=lambda s: (-RANK[s.strength], s.since_ns, s.node, s.device, s.workload, s.detector)
        )
        forgiven = book.wards.forgiven
        for symptom in order:
            if forgiven and all(name in forgiven for name in cited_by(symptom)):
                continue  # the node was found to be well since
            if self.answers.bits and symptom.statistical and not self._passes(symptom):
                book.held[symptom.record] = now_ns
            else:
                self.open.take(symptom, now_ns, book.interventions.explains(symptom))
        if order:
            self.open.spread(now_ns)
        self._answer(now_ns)
        share = self.config.quarantine_share
        book.wards.step(now_ns, self.cell, book.cases.values(), self.answers.readmitted, self.directory, share)
        self.released = [ward for ward in book.wards.nodes.values() if ward.condition == "back"]
        for case in book.cases.values():
            if any(case.id in ward.incidents and ward.evidence for ward in self.released):
                case.status, case.dirty = "resolved", True

    def quarantine(self, unhealthy: dict[str, int], until_ns: int) -> None:
        """Add what nothing may be placed on to the unhealthy devices, until a time, and take out what is back."""
        for ward in self.released:
            inventory = self.directory.inventories.get(ward.node)
            for device in ward.devices or [d.id for d in (inventory.devices if inventory is not None else ())]:
                unhealthy.pop(device, None)
        unhealthy.update(dict.fromkeys(self.book.wards.devices(self.directory), until_ns))

    def permits(self, proposal: Proposal) -> bool:
        """Whether a proposal to leave a device may be followed.

        Its incident is not silenced, nor held back by labels or because too many nodes are out, nor forgiven.
        """
        if proposal.action != "migrate":
            return True
        ward, forgiven = self.book.wards.nodes.get(proposal.node), self.book.wards.forgiven
        if ward is not None and ward.held:
            return False
        if forgiven and any(e.record in forgiven for e in proposal.evidence):
            return False
        cases = list(self.open.of_device(proposal.device, proposal.node))
        if not cases:
            cited = {e.record for e in proposal.evidence if e.name == "anomaly"}
            return cited.isdisjoint(self.book.held)
        return not all(case.silence for case in cases)

    def note(self, decision: AnyDecision) -> None:
        """Take a decision: it explains what its workload does, and it is what was done about incidents of a device."""
        action = self.book.interventions.decide(decision)
        cases: Iterable[Case] = ()
        if isinstance(decision, Migrate):
            cases = list(self.open.of_device(decision.from_device, decision.from_node))
        elif isinstance(decision, Check) and (ward := self.book.wards.nodes.get(decision.node)) is not None:
            cases = [case for name in ward.incidents if (case := self.book.cases.get(name)) is not None]
        for case in cases:
            self._act(case, action)

    def checks(self, tick: Tick, lives_ns: int) -> list[Check]:
        """Nodes that are to be checked now; such a decision lives for ``lives_ns``. Those silenced are left alone."""
        silenced = {case.node for case in self.book.cases.values() if case.silence}
        after_ns = round(self.config.check_after_s * NS_PER_S)
        return list(self.book.wards.checks(self.cell, tick.end_ns, after_ns, lives_ns, silenced, self.directory))

    def records(self, tick: Tick) -> Iterator[Incident]:
        """Incidents of which there is something new, the worst first; those that are over are let go of."""
        now_ns = tick.end_ns
        quiet_ns = max(round(QUIET_S * NS_PER_S), QUIET_TICKS * tick.period_ns)
        told: list[Case] = []
        checked = self.book.wards.checked(now_ns)
        for case in self.book.cases.values():
            if (
                case.status == "open"
                and case.id not in checked
                and not case.opened_ns <= now_ns < case.seen_ns + quiet_ns
            ):
                case.status, case.dirty = "resolved", True
            again = case.count and now_ns - case.said_ns >= REPEAT_S * NS_PER_S and case.seen_ns > case.said_ns
            if (case.dirty or again) and (case.published or case.status == "open"):
                told.append(case)
        for case in sorted(told, key=worst_first):
            yield incident_of(case, self.cell, self.directory, now_ns)
        for case in [case for case in self.book.cases.values() if case.status != "open"]:
            self.open.close(case)

    def conditions(self, tick: Tick) -> Iterator[NodeCondition]:
        """Conditions of nodes that changed."""
        yield from self.book.wards.records(self.cell, tick.end_ns, self.directory)

    def _passes(self, symptom: Symptom) -> bool:
        return passes(symptom, self.answers.bits.get((symptom.cause, self.open.model_of(symptom)), 0.0))

    def _answer(self, now_ns: int) -> None:
        answers = self.answers
        for case in self.book.cases.values():
            if case.status != "open":
                continue
            found = answers.silence_of(case, now_ns) if answers.silences else ""
            by, label = answers.acknowledged.get(case.id, ""), answers.labels.get(case.id)
            if (found, by, label) != (case.silence, case.acknowledged_by, case.label):
                case.silence, case.acknowledged_by, case.label, case.dirty = found, by, label, True

    def _act(self, case: Case, action: IncidentAction) -> None:
        if case.actions.get(action.decision) != action:
            case.actions[action.decision], case.dirty = action, True
            self.open.settle(case)
