"""Difference between two sets of decisions, such as those of two policies on one recording, by target and time."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from flyball_contracts.codec import decode_message
from flyball_contracts.errors import DecodeError, RecordingError
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import AnyDecision, SetsReplicas
from flyball_contracts.topics import DECISIONS
from flyball_streams.recording.reader import Recording, begins_as_parquet

Verdict = Literal["same", "moved", "changed", "gone", "added"]
WITHIN_S = 60.0
_decode = msgspec.json.Decoder(AnyDecision).decode


class Pair(NamedTuple):
    """A decision of each side about the same target, or of one side alone.

    The verdict is ``same`` for the same decision at the same time, ``moved`` for the same decision at another time,
    ``changed`` for a different decision, ``gone`` on the old side only, and ``added`` on the new side only.
    """

    verdict: Verdict
    old: AnyDecision | None
    new: AnyDecision | None

    @property
    def either(self) -> AnyDecision:
        """The old decision, or the new one if there is no old one."""
        found = self.old or self.new
        assert found is not None
        return found


class Replicas(NamedTuple):
    """Mean number of replicas that one target's decisions request, over the time of both sides."""

    old: float
    new: float


def read_decisions(path: Path) -> list[AnyDecision]:
    """Decisions of a recording, or of the JSON lines of ``flyball replay --out``, by time, each id once.

    Raises :class:`RecordingError` with file and line for any other file.
    """
    try:
        found = _recorded(path) if begins_as_parquet(path) else _listed(path)
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read: {error.strerror}") from error
    first: dict[str, AnyDecision] = {}
    for decision in found:
        first.setdefault(decision.id, decision)
    return sorted(first.values(), key=lambda d: (d.time_ns, d.target, d.id))


def compare(old: Iterable[AnyDecision], new: Iterable[AnyDecision], within_s: float = WITHIN_S) -> list[Pair]:
    """Pair the decisions of two sides and return the pairs by time; each decision is in exactly one pair.

    Only decisions of the same target and type are paired: first those with the same id, then each old one with the
    nearest new one that is left, at most ``within_s`` seconds of event time away.
    """
    sides: defaultdict[tuple[str, str], tuple[list[AnyDecision], list[AnyDecision]]] = defaultdict(lambda: ([], []))
    for place, decisions in enumerate((old, new)):
        for decision in decisions:
            sides[decision.target, type(decision).__name__][place].append(decision)
    pairs = [pair for before, now in sides.values() for pair in _paired(before, now, round(within_s * NS_PER_S))]
    return sorted(pairs, key=lambda p: (p.either.time_ns, p.either.target, p.either.id))


def requested_replicas(old: Sequence[AnyDecision], new: Sequence[AnyDecision]) -> dict[str, Replicas]:
    """Mean requested replicas of each target over time, from the first decision of either side to the last.

    Before its first decision, a target has the ``replicas_before`` of that decision; if one side has no decision about
    a target, it keeps the initial replicas of the other.
    """
    times = [d.time_ns for d in (*old, *new)]
    if not times or min(times) == max(times):
        return {}
    span = min(times), max(times)
    sides = _steps(old), _steps(new)
    found: dict[str, Replicas] = {}
    for target in sorted(sides[0].keys() | sides[1].keys()):
        before, now = (side.get(target, []) for side in sides)
        start = (before or now)[0].replicas_before
        found[target] = Replicas(_mean(before, start, span), _mean(now, start, span))
    return found


def _recorded(path: Path) -> Iterable[AnyDecision]:
    for batch in Recording.open(path).messages():
        for message in batch:
            if message.topic == DECISIONS.name:
                try:
                    decision = decode_message(message.topic, message.value, message.headers)
                except DecodeError as error:
                    raise RecordingError(f"{path}: {message.topic}@{message.offset}: {error}") from error
                if isinstance(decision, AnyDecision):
                    yield decision


def _listed(path: Path) -> Iterable[AnyDecision]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield _decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                remedy = "give a recording, or what `flyball replay --out` wrote"
                raise RecordingError(f"{path}:{number}: this line is not a decision: {error}; {remedy}") from error


def _paired(old: list[AnyDecision], new: list[AnyDecision], within_ns: int) -> Iterable[Pair]:
    by_id = {d.id: d for d in new}
    alone: list[AnyDecision] = []
    for before in old:
        now = by_id.pop(before.id, None)
        if now is None:
            alone.append(before)
        else:
            yield _judged(before, now)
    left = list(by_id.values())
    for before in alone:
        now = min(left, key=lambda d: (abs(d.time_ns - before.time_ns), d.time_ns, d.id), default=None)
        if now is None or abs(now.time_ns - before.time_ns) > within_ns:
            yield Pair("gone", before, None)
        else:
            left.remove(now)
            yield _judged(before, now)
    for now in left:
        yield Pair("added", None, now)


def _judged(old: AnyDecision, new: AnyDecision) -> Pair:
    if old.content() != new.content():
        return Pair("changed", old, new)
    return Pair("same" if old.time_ns == new.time_ns else "moved", old, new)


def _steps(decisions: Iterable[AnyDecision]) -> dict[str, list[SetsReplicas]]:
    found: dict[str, list[SetsReplicas]] = {}
    for decision in sorted(decisions, key=lambda d: d.time_ns):
        if isinstance(decision, SetsReplicas):
            found.setdefault(decision.target, []).append(decision)
    return found


def _mean(steps: Sequence[SetsReplicas], start: int, span: tuple[int, int]) -> float:
    first, last = span
    total, level, since = 0, start, first
    for step in steps:
        total += level * (step.time_ns - since)
        level, since = step.replicas, step.time_ns
    return (total + level * (last - since)) / (last - first)
