"""Observed behaviour of platforms, by decisions and their final outcomes."""

from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import median

import msgspec

from flyball_actuators.execution.effect import difference
from flyball_contracts.records import AnyDecision, Outcome, Preempt, SetsReplicas


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Observed behaviour of one driver; each pair is (successes, attempts).

    ``verbs``: decisions that were done, of those attempted, by type. ``planned`` counts dry runs, ``refused`` refusals.
    ``victims``: stops that named replicas, after which the platform showed each of these replicas stopped.
    ``checkpoints`` counts the stops that were done and had requested a checkpoint. ``gang``: starts from zero replicas,
    and stops of all replicas, that ended with all replicas or none. ``rollback``: failures that left as many replicas
    as there were before, or more that are all ready. ``effect``: decisions that were done, after which the platform
    showed the expected state; ``effect_after_s`` is the median time until it did.
    """

    driver: str
    verbs: Mapping[str, tuple[int, int]] = {}
    planned: int = 0
    refused: int = 0
    victims: tuple[int, int] = (0, 0)
    checkpoints: int = 0
    gang: tuple[int, int] = (0, 0)
    rollback: tuple[int, int] = (0, 0)
    effect: tuple[int, int] = (0, 0)
    effect_after_s: float | None = None


def rows(decisions: Iterable[AnyDecision], outcomes: Iterable[Outcome]) -> dict[str, Row]:
    """One row for each driver that published a final outcome."""
    by_id = {decision.id: decision for decision in decisions}
    last: dict[str, dict[str, Outcome]] = {}
    for outcome in outcomes:
        if outcome.final:
            last.setdefault(outcome.driver, {})[outcome.decision] = outcome
    return {driver: _row(driver, list(found.values()), by_id) for driver, found in sorted(last.items())}


def _row(driver: str, outcomes: list[Outcome], by_id: Mapping[str, AnyDecision]) -> Row:
    tried = [o for o in outcomes if o.status in ("done", "failed")]
    done = [o for o in tried if o.status == "done"]
    failed = [o for o in tried if o.status == "failed"]
    confirmed = [o for o in done if o.observed is not None and not difference(o.expected, o.observed)]
    after = [o.effect_after_s for o in done if o.effect_after_s is not None]
    stops = [(d, o) for o in done if isinstance(d := by_id.get(o.decision), Preempt)]
    named = [(stop, o) for stop, o in stops if stop.victims]
    whole = [o for o in tried if _all_or_none(by_id.get(o.decision))]
    kinds, ended = Counter(o.type for o in tried), Counter(o.type for o in done)
    return Row(
        driver=driver,
        verbs={kind: (ended[kind], count) for kind, count in sorted(kinds.items())},
        planned=sum(o.status == "planned" for o in outcomes),
        refused=sum(o.status == "refused" for o in outcomes),
        victims=(sum(_all_stopped(stop, o) for stop, o in named), len(named)),
        checkpoints=sum(stop.checkpoint for stop, _ in stops),
        gang=(sum(_together(o) for o in whole), len(whole)),
        rollback=(sum(_as_before(o) for o in failed), len(failed)),
        effect=(len(confirmed), len(done)),
        effect_after_s=median(after) if after else None,
    )


def _all_stopped(stop: Preempt, outcome: Outcome) -> bool:
    seen = outcome.observed
    return seen is not None and all(seen.nodes.get(victim) == "" for victim in stop.victims)


def _all_or_none(decision: AnyDecision | None) -> bool:
    if not isinstance(decision, SetsReplicas):
        return False
    return 0 in (decision.replicas, decision.replicas_before) and decision.replicas != decision.replicas_before


def _together(outcome: Outcome) -> bool:
    ready = None if outcome.observed is None else outcome.observed.ready
    wanted = None if outcome.expected is None else outcome.expected.replicas
    return ready is not None and ready in (0, wanted)


def _as_before(outcome: Outcome) -> bool:
    before, after = outcome.before, outcome.observed
    if before is None or after is None:
        return False
    return before.replicas == after.replicas or (before.replicas or 0) < (after.replicas or 0) == after.ready
