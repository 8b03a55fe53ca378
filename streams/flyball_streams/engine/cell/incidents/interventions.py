"""What we ourselves have just done to workloads: it explains what departs on them."""

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import AnyDecision, IncidentAction, Outcome, Symptom

SETTLE_S = 300.0
"""What a workload shows for so long after something was done to it may follow from that."""
EARLY_S = 5.0
VOID = frozenset({"refused", "failed", "planned", "superseded"})
"""Nothing was done, or nothing that is known of."""


class Intervention(msgspec.Struct):
    """A decision and the time until which it explains effects on its workload."""

    action: IncidentAction
    until_ns: int


class Interventions(msgspec.Struct):
    """Decisions of late, by their ids; ``of`` names those of each workload."""

    known: dict[str, Intervention] = {}
    of: dict[str, list[str]] = {}

    def decide(self, decision: AnyDecision) -> IncidentAction:
        """Take a decision that has just been made."""
        action = action_of(decision)
        self.of.setdefault(decision.workload, []).append(decision.id)
        self.known[decision.id] = Intervention(action, decision.expires_ns + round(SETTLE_S * NS_PER_S))
        return action

    def heed(self, outcome: Outcome) -> IncidentAction | None:
        """Take what became of a decision; how it stands now, ``None`` where it is not known."""
        found = self.known.get(outcome.decision)
        if found is None or (outcome.status == "refused" and outcome.code == "duplicate"):
            return None
        found.action = msgspec.structs.replace(
            found.action, status=outcome.status, detail=outcome.detail or outcome.answer
        )
        found.until_ns = 0 if outcome.status in VOID else outcome.time_ns + round(SETTLE_S * NS_PER_S)
        return found.action

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
        """Drop what explains nothing any more; and what was decided before a clock was set back."""
        kept_ns = round(SETTLE_S * NS_PER_S)
        old = [
            name for name, i in self.known.items()
            if not i.action.time_ns <= now_ns < max(i.until_ns, i.action.time_ns + 4 * kept_ns)
        ]  # fmt: skip
        for name in old:
            workload = self.known.pop(name).action.workload
            self.of[workload].remove(name)
            if not self.of[workload]:
                del self.of[workload]


def action_of(decision: AnyDecision) -> IncidentAction:
    """A decision as an action that was taken."""
    return IncidentAction(
        decision=decision.id,
        type=type(decision).__name__,  # type: ignore[arg-type]
        workload=decision.workload,
        time_ns=decision.time_ns,
    )
