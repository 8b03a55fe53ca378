"""Whether decisions come in storms: more than one a minute about a target, or again what was refused lately.

The oracle goes by decisions and outcomes alone, in event time, so it reads a broker as well as an engine.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import AnyDecision, Check, Migrate, Outcome, Scale

MINUTE_NS = 60 * NS_PER_S
FAILING = 0.9
"""Least confidence of a decision to leave a device that fails; there is less in those that straggle."""
MOST_WAIT_S, MOST_URGENT_S = 3600.0, 120.0
"""Longest windows of a refusal: of what can wait, and of what cannot."""


class Target(NamedTuple):
    """Decisions about one target.

    ``most`` is the largest number in any minute that begins with a decision, and ``over`` counts clock minutes with
    more than one. ``urgent`` counts decisions within a minute of the one before that an emergency explains; ``crowded``
    names those that none does, and ``repeated`` those that say again what was refused before its window is over.
    """

    name: str
    decisions: int
    most: int
    over: int
    urgent: int
    crowded: list[str]
    refused: int
    repeated: list[str]


def storms(decisions: Iterable[AnyDecision], outcomes: Iterable[Outcome], cooldown_s: float) -> list[Target]:
    """Judge each target; the first window of a refusal is ``cooldown_s`` (s), and it doubles with each in a row."""
    by_target: dict[str, dict[str, AnyDecision]] = defaultdict(dict)
    for d in decisions:
        by_target[d.target].setdefault(d.id, d)
    ends = {o.decision: o.status for o in outcomes if o.final}
    return [
        _judged(name, sorted(found.values(), key=lambda d: d.time_ns), ends, cooldown_s)
        for name, found in sorted(by_target.items())
    ]


def is_urgent(d: AnyDecision) -> bool:
    """Whether a decision cannot wait: a device fails, or nothing runs of what is needed."""
    if isinstance(d, Migrate):
        return d.confidence >= FAILING
    return isinstance(d, Scale) and d.replicas_before == 0


def _judged(name: str, found: Sequence[AnyDecision], ends: Mapping[str, str], cooldown_s: float) -> Target:
    times = [d.time_ns for d in found]
    clock = Counter(at // MINUTE_NS for at in times)
    most = max(sum(at <= other < at + MINUTE_NS for other in times) for at in times)
    crowded: list[str] = []
    urgent = 0
    for before, d in pairwise(found):
        if d.time_ns - before.time_ns >= MINUTE_NS:
            continue
        urgent += is_urgent(d)
        if not is_urgent(d):
            crowded.append(f"{(d.time_ns - before.time_ns) / NS_PER_S:.0f} s after {before.id}: {d.reason}")
    repeated, refused = _repeated(found, ends, cooldown_s)
    return Target(name, len(found), most, sum(n > 1 for n in clock.values()), urgent, crowded, refused, repeated)


def _repeated(found: Sequence[AnyDecision], ends: Mapping[str, str], cooldown_s: float) -> tuple[list[str], int]:
    """Decisions within the window of a refusal of the same, and how many refusals there were."""
    row: dict[tuple[object, ...], tuple[int, int]] = {}
    repeated: list[str] = []
    refused = 0
    for d in found:
        what = _said(d)
        count, at_ns = row.get(what, (0, 0))
        most_s = MOST_URGENT_S if is_urgent(d) else MOST_WAIT_S
        if count and d.time_ns - at_ns < min(most_s, cooldown_s * 2.0 ** (count - 1)) * NS_PER_S:
            repeated.append(f"{(d.time_ns - at_ns) / NS_PER_S:.0f} s after it was refused: {d.reason}")
        end = ends.get(d.id)
        if end == "refused":
            refused += 1
            row[what] = count + 1, d.time_ns
        elif end == "done":
            row = {}
    return repeated, refused


def _said(d: AnyDecision) -> tuple[object, ...]:
    """What a decision tells the platform to do."""
    if isinstance(d, Migrate):
        return Migrate, d.replica, d.from_node, bool(d.to_node)
    if isinstance(d, Check):
        return Check, d.node, d.attempt
    resources = d.resources if isinstance(d, Scale) else None
    mix = tuple((part.offer, part.replicas) for part in d.mix) if isinstance(d, Scale) else ()
    return type(d), d.replicas_before, d.replicas, resources, mix
