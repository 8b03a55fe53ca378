"""Our own recent decisions about workloads, which explain departures on them."""

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import AnyDecision, IncidentAction, Outcome, Symptom

SETTLE_S = 300.0
"""An effect on a workload within this time after an action may follow from the action."""
EARLY_S = 5.0
VOID = frozenset({"refused", "failed", "planned", "superseded"})
"""Outcomes after which nothing was done, as far as is known."""


class Intervention(msgspec.Struct):
    """A decision and the time until which it explains effects on its workload."""

    action: IncidentAction
    until_ns: int


class Interventions(msgspec.Struct):
    """Recent decisions by id; ``of`` lists the ids of each workload."""

    known: dict[str, Intervention] = {}
    of: dict[str, list[str]] = {}

    def add(self, decision: AnyDecision) -> IncidentAction:
        """Add a decision that has just been made."""
        action = action_of(decision)
        self.of.setdefault(decision.workload, []).append(decision.id)
        self.known[decision.id] = Intervention(action, decision.expires_ns + round(SETTLE_S * NS_PER_S))
        return action

    def receive(self, outcome: Outcome) -> IncidentAction | None:
        """Apply an outcome; return the action as it stands now, ``None`` for a decision that is not known."""
        entry = self.known.get(outcome.decision)
        if entry is None or (outcome.status == "refused" and outcome.code == "duplicate"):
            return None
        entry.action = msgspec.structs.replace(
            entry.action, status=outcome.status, detail=outcome.detail or outcome.answer
        )
        entry.until_ns = 0 if outcome.status in VOID else outcome.time_ns + round(SETTLE_S * NS_PER_S)
        return entry.action

    def explains(self, symptom: Symptom) -> IncidentAction | None:
        """The newest decision that may have led to an effect on a workload."""
        if symptom.strength != "effect" or not symptom.workload:
            return None
        early_ns = round(EARLY_S * NS_PER_S)
        found = [
            i.action
            for i in map(self.known.__getitem__, self.of.get(symptom.workload, ()))
            if i.action.time_ns - early_ns <= symptom.since_ns < i.until_ns
        ]
        return max(found, key=lambda a: (a.time_ns, a.decision), default=None)

    def forget(self, now_ns: int) -> None:
        """Drop decisions that explain nothing any more, and those from before a clock was set back."""
        kept_ns = round(SETTLE_S * NS_PER_S)
        old = [
            name for name, i in self.known.items()
            if i.action.time_ns > now_ns or (i.until_ns <= now_ns and i.action.time_ns <= now_ns - 4 * kept_ns)
        ]  # fmt: skip
        for name in old:
            workload = self.known.pop(name).action.workload
            self.of[workload].remove(name)
            if not self.of[workload]:
                del self.of[workload]


def action_of(decision: AnyDecision) -> IncidentAction:
    """A decision as an action of an incident."""
    return IncidentAction(
        decision=decision.id,
        type=type(decision).__name__,  # type: ignore[arg-type]
        workload=decision.workload,
        time_ns=decision.time_ns,
    )
