"""Index of the outcomes topic by decision: the ledger that all actuators of a group share.

The order of the log decides: of several claims the first counts, and of several final outcomes the first is final.
"""

from collections.abc import Iterator

from flyball_actuators.guard import Grant
from flyball_contracts.records import Counted, Outcome, SubjectState
from flyball_contracts.records.subjects import pool_of

MOST_SETTLED = 20_000


class DecisionOutcomes:
    """The outcomes of one decision: who claimed it, in order, and its first final outcome."""

    def __init__(self) -> None:
        self.claims: list[str] = []
        self.accepted: Outcome | None = None
        self.running: Outcome | None = None
        self.final: Outcome | None = None
        self.final_ms = 0


class OutcomeIndex:
    """Outcomes by partition and decision; of finished decisions, the newest :data:`MOST_SETTLED` of each partition."""

    def __init__(self) -> None:
        self._by_partition: dict[int, dict[str, DecisionOutcomes]] = {}

    def add(self, partition: int, outcome: Outcome, at_ms: int) -> None:
        """Add the next outcome of a partition; ``at_ms`` is when it was sent."""
        pages = self._by_partition.setdefault(partition, {})
        outcomes = pages.setdefault(outcome.decision, DecisionOutcomes())
        if outcome.status == "accepted":
            outcomes.claims.append(outcome.actuator)
            outcomes.accepted = outcomes.accepted or outcome
        elif outcome.status == "running":
            outcomes.running = outcome
        elif outcomes.final is None:
            outcomes.final, outcomes.final_ms = outcome, at_ms
            if len(pages) > 2 * MOST_SETTLED:
                self._by_partition[partition] = _newest(pages)

    def outcomes_of(self, partition: int, decision: str) -> DecisionOutcomes | None:
        """Outcomes of a decision, ``None`` if there are none."""
        return self._by_partition.get(partition, {}).get(decision)

    def grants(self, partition: int) -> Iterator[Grant]:
        """Grants of the decisions that any actuator carried out."""
        for outcomes in self._by_partition.get(partition, {}).values():
            outcome = outcomes.running or outcomes.accepted
            if outcome is not None and outcome.counted is None and outcomes.accepted is not None:
                outcome = outcomes.accepted  # an actuator that took over does not know what was counted
            if outcome is not None and not (outcomes.final is not None and outcomes.final.status == "refused"):
                yield grant_of(outcome)

    def forget(self, partition: int) -> None:
        """Drop a partition that another actuator now owns."""
        self._by_partition.pop(partition, None)


def grant_of(outcome: Outcome) -> Grant:
    """Rebuild a grant from an outcome.

    Outcomes of older versions do not record what the guard counted. Then it is derived from the observed state; every
    migration counts as a rescue, and no preemption as a deferral. What the decision starts is derived from the states,
    too.
    """
    counted = outcome.counted or Counted(
        urgency="rescue" if outcome.type == "Migrate" else "normal", taken=_taken(outcome), decided_ns=0
    )
    return Grant(
        cell=outcome.cell,
        target=outcome.target,
        subject=outcome.target,
        decided_ns=0,  # a decision of another process makes none of ours stale
        at_ns=outcome.time_ns,
        taken=counted.taken,
        decision=outcome.decision,
        urgency=counted.urgency,
        workload=outcome.workload,
        type=outcome.type,
        usd_per_hour=counted.usd_per_hour,
        starts=None if pool_of(outcome.workload) else _starts(outcome),
        replicas=None if pool_of(outcome.workload) or outcome.expected is None else outcome.expected.replicas,
    )


def _starts(outcome: Outcome) -> str | None:
    """As in a grant: ``""`` if an outcome's decision may start replicas anywhere, ``None`` if it starts none."""
    before, after = (state or SubjectState() for state in (outcome.before, outcome.expected))
    if outcome.type == "Migrate":
        return ""  # whether the platform keeps to the node that was named is not in the outcome
    if outcome.type != "Scale":
        return None
    was = before.ready if before.replicas is None else before.replicas  # other decisions started pending replicas
    more = was is None or after.replicas is None or after.replicas > was
    return "" if more or any(part.replicas > part.replicas_before for part in after.mix) else None


def _taken(outcome: Outcome) -> int:
    if outcome.type == "Migrate":
        return 1
    before, after = (state or SubjectState() for state in (outcome.before, outcome.expected))
    shown = [n for n in (before.replicas, before.ready) if n is not None]
    if after.resources is not None:  # all of them restart
        return max(*shown, after.replicas or 0, 1)
    moved = sum(max(0, part.replicas_before - part.replicas) for part in after.mix)
    return moved if not shown or after.replicas is None else max(0, max(shown) - after.replicas, moved)


def _newest(pages: dict[str, DecisionOutcomes]) -> dict[str, DecisionOutcomes]:
    settled = [decision for decision, outcomes in pages.items() if outcomes.final is not None]
    old = set(settled[:-MOST_SETTLED])
    return {decision: outcomes for decision, outcomes in pages.items() if decision not in old}
