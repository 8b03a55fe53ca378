"""The cause of an incident against the one that was injected: the confusion matrix, and whether the rank is right.

One fault at a time strikes a fleet that has run for an hour, and is watched for fifteen minutes; decisions are not
carried out. Its incident is the one at its place, or else the worst that it led to ("other place"). A GPU's place is
the GPU, or a link of it; a node's, rack's or leaf switch's is that one. The rank is right where the incident names the
GPU, or the node where the fault is a whole node's.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from bench.anomalies.injected import CAUSES, Site, Story
from bench.common.incidents import incidents_in
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.codec import Message, frame_message, record_message
from flyball_contracts.config import FleetConfig, WorkerConfig
from flyball_contracts.frame import Frame, decode_frame, make_frame
from flyball_contracts.records import Incident
from flyball_contracts.records.incidents import worst_first
from flyball_contracts.topics import INVENTORY, SIGNALS, TELEMETRY, WORKLOADS
from flyball_simulator import Fleet
from flyball_simulator.hardware.faults import Faults
from flyball_simulator.hardware.outages import Outages
from flyball_streams.engine import Engine, Incoming, Lane

WARM_S, WATCHED_S = 3900.0, 900.0
TABLES = frozenset({INVENTORY.name, SIGNALS.name, WORKLOADS.name})
OTHER, MISSED = "other place", "missed"
GOAL_RANK, GOAL_CAUSE = 0.95, 0.90


class Warm(NamedTuple):
    """A fleet after an hour in which all was well: what its lanes know, the tables, and the incidents that there were.

    ``first`` are the messages of the first tick.
    """

    fleet: Fleet
    lanes: list[bytes]
    first: list[Incoming]
    tables: list[Incoming]
    known: frozenset[str]

    def engine(self) -> Engine:
        """An engine that knows all this."""
        made = Engine(WorkerConfig())
        made.feed(self.first)  # so that it has its lanes
        made.feed(self.tables)
        for lane, state in zip(_lanes(made), self.lanes, strict=True):
            lane.restore(state)
        return made


def warmed(config: FleetConfig, start_ns: int, incoming: Callable[[Message], Incoming]) -> Warm:
    """Let a clean fleet run until the detectors know it."""
    fleet, engine = Fleet(config, start_ns), Engine(WorkerConfig())
    first, tables, known = [incoming(m) for m in fleet.messages_at_start()], list[Incoming](), set[str]()
    engine.feed(first)
    for tick in range(round(WARM_S / config.tick_s)):
        arrived = [incoming(m) for m in fleet.tick(tick)]
        known |= {i.id for i in incidents_in(engine.feed(arrived))}
        if tick == 0:
            first += arrived
        else:
            tables += [m for m in arrived if m.topic in TABLES]
    return Warm(fleet, [lane.snapshot() for lane in _lanes(engine)], first, tables, frozenset(known))


def stories(warm: Warm, rounds: int, seed: int) -> Iterator[Story]:
    """So many faults of each kind."""
    config = warm.fleet.config
    for make in CAUSES.values():
        for n in range(rounds):
            random = np.random.default_rng([seed, n])
            yield from make(Site(warm.fleet, WARM_S + config.tick_s / 2, config.tick_s, random))


def incidents_of(warm: Warm, story: Story, incoming: Callable[[Message], Incoming], seed: int) -> list[Incident]:
    """Incidents that are new, as they are after the time, the worst first; those that became part of others not."""
    fleet, engine = copy.deepcopy(warm.fleet), warm.engine()
    plant, config = fleet.plant, fleet.config
    faults = replace(config, **story.simulated)
    plant.faults = Faults(faults, plant.site, plant.placement, fleet.start_ns)
    plant.outages = Outages(faults, plant.site)
    random, found, added = np.random.default_rng(seed), dict[str, Incident](), Counter[str]()
    for n in range(round(WATCHED_S / config.tick_s)):
        messages = fleet.tick(plant.index)
        since_s = (n + 0.5) * config.tick_s
        if story.change is not None:
            messages = _changed(messages, story, since_s, random, added)
        if n == 0:
            messages = [*(record_message(e, f"/agents/{e.node}") for e in story.events), *messages]
        for one in incidents_in(engine.feed([incoming(m) for m in messages])):
            if one.id not in warm.known:
                found[one.id] = one
    return sorted((i for i in found.values() if i.status != "merged"), key=worst_first)


def judged(story: Story, found: Sequence[Incident]) -> dict[str, Any]:
    """Which column of the matrix a story falls into, and whether the right rank is named."""
    at_place = [i for i in found if story.place in (i.device, i.node, i.domain, *i.link.split("|"))]
    mine = [i for i in at_place if story.place != i.node or i.level == "node"]
    shown = mine or found
    return {
        "part": "confusion",
        "cause": story.cause,
        "kind": story.kind,
        "got": mine[0].cause if mine else OTHER if found else MISSED,
        "level": shown[0].level if shown else "",
        "got_cause": shown[0].cause if shown else "",
        "rank_of": story.rank_of,
        "rank_right": bool(mine),
        "incidents": len(found),
    }


def confusion(
    config: FleetConfig, start_ns: int, incoming: Callable[[Message], Incoming], rounds: int
) -> Iterator[dict[str, Any]]:
    """All stories on one fleet, judged."""
    warm = warmed(config, start_ns, incoming)
    for n, story in enumerate(stories(warm, rounds, config.seed)):
        yield judged(story, incidents_of(warm, story, incoming, config.seed + n)) | {"seed": config.seed}


def matrix(rows: Sequence[dict[str, Any]]) -> tuple[list[str], dict[str, Counter[str]]]:
    """Columns, and for each injected cause how often each column was got."""
    mine = [r for r in rows if r["part"] == "confusion"]
    counts = {cause: Counter(r["got"] for r in mine if r["cause"] == cause) for cause in CAUSES}
    named = [*CAUSES, *sorted({r["got"] for r in mine} - {*CAUSES, OTHER, MISSED})]
    return [*named, OTHER, MISSED], {cause: got for cause, got in counts.items() if got}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Shares of right causes and ranks, and how many stories became one incident."""
    mine = [r for r in rows if r["part"] == "confusion"]
    ranks = [r for r in mine if r["rank_of"]]
    return {
        "part": "confusion_summary",
        "stories": len(mine),
        "cause_right": sum(r["got"] == r["cause"] for r in mine) / max(1, len(mine)),
        "ranks": len(ranks),
        "rank_right": sum(r["rank_right"] for r in ranks) / max(1, len(ranks)),
        "one_incident": sum(r["incidents"] == 1 for r in mine) / max(1, len(mine)),
    }


def _lanes(engine: Engine) -> list[Lane]:
    return [*(engine.nodes[p] for p in sorted(engine.nodes)), *engine.workloads, *engine.cells]


def _changed(
    messages: list[Message], story: Story, since_s: float, random: np.random.Generator, added: Counter[str]
) -> list[Message]:
    """The messages with the story's change in the frames; those that it leaves alone are the same.

    Frames of another layout that it adds come after the others of their node, and ``added`` counts them.
    """
    decoded = {n: decode_frame(m.value or b"") for n, m in enumerate(messages) if m.topic == TELEMETRY.name}
    before = {(f.node, f.schema): f.values for f in decoded.values()}
    after = {key: values.copy() for key, values in before.items()}
    if story.change is not None:
        story.change(after, since_s, random)
    found = list(messages)
    last: dict[str, Frame] = {}
    for n, frame in decoded.items():
        last[frame.node] = frame
        values = after.pop((frame.node, frame.schema))
        if added[frame.node] or not np.array_equal(values, before[frame.node, frame.schema], equal_nan=True):
            found[n] = _frame(frame, values, frame.schema, frame.seq + added[frame.node])
    for (node, schema), values in after.items():
        added[node] += 1
        found.append(_frame(last[node], values, schema, last[node].seq + added[node]))
    return found


def _frame(like: Frame, values: NDArray[np.float32], schema: int, seq: int) -> Message:
    kept = {f: getattr(like, f) for f in like.__struct_fields__ if f not in ("rows", "block", "schema", "seq")}
    return frame_message(make_frame(values, schema=schema, seq=seq, **kept))


def described(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Titles, columns and lines of the tables."""
    columns, counts = matrix(rows)
    for found in (r for r in rows if r["part"] == "confusion_summary"):
        title = (
            f"Injected cause and that of the incident: right in {found['cause_right']:.1%} of {found['stories']} "
            f"(goal {GOAL_CAUSE:.0%}), right rank named in {found['rank_right']:.1%} of {found['ranks']} "
            f"(goal {GOAL_RANK:.0%}), one incident in {found['one_incident']:.1%}"
        )
        lines = [(cause, *(str(got[column] or "") for column in columns)) for cause, got in counts.items()]
        yield title, ("injected", *(column.replace("_", " ") for column in columns)), lines
    kinds = Counter((r["cause"], r["kind"]) for r in rows if r["part"] == "confusion")
    right = Counter((r["cause"], r["kind"]) for r in rows if r["part"] == "confusion" and r["got"] == r["cause"])
    lines = [(cause, kind, f"{right[cause, kind]} of {of}") for (cause, kind), of in kinds.items()]
    if lines:
        yield "Injected faults by kind: right place and cause", ("cause", "fault", "right"), lines
