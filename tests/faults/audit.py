"""What must hold at the far end, whatever was killed: the oracles, each a list of what breaks it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec
from tests.faults.platform import EndState

from flyball_contracts.frame import Frame
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import AnyDecision, Check, DemandTick, Inventory, Migrate, Outcome, ProposalTick, Tick
from flyball_contracts.simulated import Operation

SHOWN = 8
DEMANDED = "demand follows from the frames"
LOST, MADE_UP = "no decision is lost", "no decision is made up"
GIVEN_UP = "no service ends by itself"
SAME_TICK = "each decision is at its tick"
REPORTED = frozenset({SAME_TICK, MADE_UP, GIVEN_UP})
"""Figures of runs with faults, not a condition: events and frames have no common order, so a replay may know an event
a tick earlier. A service that finds no broker at its start ends, and its supervisor starts it again."""
LATE_NS = 120 * NS_PER_S
"""Event time by which a decision may be earlier or later than in the replay: what a broker that is away for long, and
the wait before a decision is taken again, add up to."""


class Finding(NamedTuple):
    """One oracle: how much was looked at, and what breaks it, in words with ids."""

    oracle: str
    checked: int
    broken: list[str]


def one_effect(decisions: Sequence[AnyDecision], operations: Sequence[Operation]) -> Finding:
    """(a) No decision has two effects: one operation for each id, each of a decision, none with two effects."""
    known = {d.id for d in decisions}
    counts = Counter(o.id for o in operations)
    broken = [
        f"{o.id}: {o.effects} effects ({o.workload}, {o.submissions} submissions)" for o in operations if o.effects > 1
    ]
    broken += [f"{identity}: {n} operations" for identity, n in counts.items() if n > 1]
    broken += [f"{o.id}: an operation on {o.workload} of no decision" for o in operations if o.id not in known]
    return Finding("no decision has two effects", len(operations), broken)


def one_final_outcome(decisions: Sequence[AnyDecision], outcomes: Sequence[Outcome]) -> Finding:
    """(b) Every decision has exactly one last outcome; the same one, repeated to the byte, counts once."""
    encoded: dict[str, set[bytes]] = defaultdict(set)
    for outcome in outcomes:
        if outcome.final:
            encoded[outcome.decision].add(msgspec.json.encode(outcome))
    broken: list[str] = []
    for identity, d in {d.id: d for d in decisions}.items():
        recorded = [msgspec.json.decode(word, type=Outcome) for word in sorted(encoded.pop(identity, ()))]
        if len(recorded) != 1:
            how = ", ".join(f"{o.status}{o.code and f' {o.code}'} by {o.actuator} at {o.time_ns}" for o in recorded)
            broken.append(f"{identity}: {len(recorded)} last outcomes ({how}); {type(d).__name__} of {d.workload}")
    broken += [f"{identity}: an outcome of no decision" for identity in encoded]
    return Finding("each decision has one last outcome", len({d.id for d in decisions}), broken)


def one_content(messages: Iterable[tuple[str, bytes]]) -> Finding:
    """No id of a decision carries two contents: a replayed tick decides as it did."""
    contents: dict[str, set[bytes]] = defaultdict(set)
    for identity, value in messages:
        contents[identity].add(value)
    broken = [f"{identity}: {len(values)} contents" for identity, values in contents.items() if len(values) > 1]
    return Finding("no decision has two contents", len(contents), broken)


def same_demand(recorded: Iterable[DemandTick], replays: Iterable[DemandTick]) -> Finding:
    """What node lanes said first of each tick is what they say of the same frames, whatever was killed between.

    How far the tables had been read by then is another matter.
    """
    first, replayed = _first(recorded), _first(replays)
    broken = [
        f"{source} to {partition}, tick {index}: {_difference(one, replayed.get((source, partition, index, part)))}"
        for (source, partition, index, part), one in first.items()
        if one != replayed.get((source, partition, index, part))
    ]
    return Finding(DEMANDED, len(first), broken)


def _first(recorded: Iterable[DemandTick]) -> dict[tuple[str, int, int, int], DemandTick]:
    found: dict[tuple[str, int, int, int], DemandTick] = {}
    for one in recorded:
        plain = msgspec.structs.replace(one, table_offsets={})
        found.setdefault((one.source, one.partition, one.tick.index, one.part), plain)
    return found


def _difference(original: DemandTick, replays: DemandTick | None) -> str:
    if replays is None:
        return "not said in a replay"
    pairs = [(original.tick, replays.tick), *zip_longest(original.demands, replays.demands)]
    return "; ".join(f"{a} instead of {b}" for a, b in pairs if a != b)[:600]


def as_replayed(decisions: Sequence[AnyDecision], reference: Sequence[AnyDecision]) -> tuple[Finding, Finding, Finding]:
    """(c) Decisions are those of a replay of what was on the topics: none lost, none made up, each at its tick.

    None is lost where the same was decided about the same subject at nearly the same time.
    """
    seen, due = ({(d.workload, d.time_ns): d for d in found} for found in (decisions, reference))
    made = defaultdict[tuple[object, ...], list[int]](list)
    for d in decisions:
        made[_deed(d)].append(d.time_ns)
    lost = [_place(d) for d in due.values() if all(abs(at - d.time_ns) > LATE_NS for at in made[_deed(d)])]
    elsewhere = [_place(due[key]) for key in due if key not in seen]
    made_up = [_place(seen[key]) for key in seen if key not in due]
    return (
        Finding(LOST, len(due), lost),
        Finding(SAME_TICK, len(due), elsewhere),
        Finding(MADE_UP, len(seen), made_up),
    )


def same_end(disturbed: EndState, undisturbed: EndState) -> Finding:
    """(d) The fleet stands as it does after a run without trouble."""
    broken: list[str] = []
    for field in EndState.__struct_fields__:
        have: Mapping[str, Any] = getattr(disturbed, field)
        want: Mapping[str, Any] = getattr(undisturbed, field)
        for name in sorted(have.keys() | want.keys()):
            if have.get(name) != want.get(name):
                broken.append(f"{field} of {name}: {have.get(name)} instead of {want.get(name)}")
    return Finding("the fleet ends as undisturbed", len(undisturbed.replicas), broken)


def no_frame_lost(frames: Iterable[Frame]) -> Finding:
    """(e) In each run of an agent, every sequence number is on the topic, and the next run goes on in time."""
    numbers: dict[tuple[str, str, int], set[int]] = defaultdict(set)
    ticks: dict[tuple[str, int], set[int]] = defaultdict(set)
    count = 0
    for frame in frames:
        count += 1
        numbers[frame.node, frame.boot_id, frame.epoch].add(frame.seq)
        ticks[frame.node, frame.schema].add(frame.time_ns // frame.period_ns)
    broken: list[str] = []
    for (node, boot, epoch), found in sorted(numbers.items()):
        if lost := max(found) - min(found) + 1 - len(found):
            broken.append(f"{node} (boot {boot}, epoch {epoch}): {lost} of {max(found) - min(found) + 1} frames")
    for (node, schema), found in sorted(ticks.items()):
        if lost := max(found) - min(found) + 1 - len(found):
            broken.append(f"{node} (schema {schema}): {lost} of {max(found) - min(found) + 1} ticks without a frame")
    return Finding("no frame is lost", count, broken)


def nothing_late(demand: Sequence[DemandTick]) -> Finding:
    """(e) No frame came too late for its tick. What lanes say again after a crash is late by its nature, and known."""
    marks = {key: tick for key, tick in _marks(demand, []).items() if key[0].startswith("node/")}
    broken = [f"{source}, tick {index}: {tick.late} late" for (source, index), tick in marks.items() if tick.late]
    return Finding("no frame is late", len(marks), broken)


def whole_ticks(demand: Sequence[DemandTick], proposals: Sequence[ProposalTick]) -> Finding:
    """Every tick was closed with all its sources, and no lane left one out."""
    marks = _marks(demand, proposals)
    broken = [
        f"{source}, tick {index}: without {', '.join(tick.missing[:4])}"
        for (source, index), tick in marks.items()
        if tick.missing
    ]
    lanes: dict[str, set[int]] = defaultdict(set)
    for source, index in marks:
        lanes[source].add(index)
    for source, found in sorted(lanes.items()):
        if lost := max(found) - min(found) + 1 - len(found):
            broken.append(f"{source}: {lost} of {max(found) - min(found) + 1} ticks were never told")
    return Finding("each tick is whole", len(marks), broken)


def no_dead_letters(reasons: Sequence[str]) -> Finding:
    """(e) Nothing was refused unread."""
    return Finding("no dead letters", len(reasons), [f"{n} x {reason}" for reason, n in Counter(reasons).items()])


def node_names(inventories: Iterable[Inventory]) -> list[str]:
    """Nodes of the fleet."""
    return sorted({inventory.node for inventory in inventories})


def table(findings: Sequence[Finding]) -> str:
    """What held and what did not, for people."""
    lines = [f"{'oracle':38} {'looked at':>9} {'broken':>7}"]
    for finding in findings:
        note = "  (a figure)" if finding.oracle in REPORTED else ""
        lines.append(f"{finding.oracle:38} {finding.checked:9,} {len(finding.broken):7,}{note}")
        lines += [f"    {text}" for text in finding.broken[:SHOWN]]
        if len(finding.broken) > SHOWN:
            lines.append(f"    and {len(finding.broken) - SHOWN:,} more")
    return "\n".join(lines)


def _marks(demand: Sequence[DemandTick], proposals: Sequence[ProposalTick]) -> dict[tuple[str, int], Tick]:
    """The first version of each tick; readers use that one."""
    found: dict[tuple[str, int], Tick] = {}
    ticks: list[DemandTick | ProposalTick] = [*demand, *proposals]
    for one in ticks:
        found.setdefault((one.source, one.tick.index), one.tick)
    return found


def _deed(d: AnyDecision) -> tuple[object, ...]:
    """What a decision does, however many replicas it takes: it may be decided on another tick."""
    if isinstance(d, Check):
        return Check, d.node
    return (type(d), d.workload, d.replica if isinstance(d, Migrate) else d.replicas > d.replicas_before)


def _place(d: AnyDecision) -> str:
    return f"{d.id}: {type(d).__name__} of {d.workload} at {d.time_ns}: {d.reason}"
