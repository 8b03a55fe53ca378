"""Fault events through rules and correlation: how many a second, and whether one event becomes one incident.

``rate`` is one node lane, one cell lane and what stands between them, on one core: events are decoded, judged whose
fault they are, gathered into symptoms, put together to incidents, and these are encoded. Ticks and their frames count
too. ``flood`` is one broken GPU and what a gang of all GPUs reports about it, ``codes`` the same GPUs with a hundred
XIDs each, ``apart`` one error on each GPU in turn, so that no two events of a tick are about the same; all are to be
left at once, so each takes a decision, too. In ``apart, free`` no workload holds the GPUs, and there is nothing to
decide.

``stories`` are seeded faults with what follows from them, in random order; a story is right when one incident of its
kind of place, at its place and with its cause is open at the end, and nothing else of it. The sizes of racks and leaf
switches, and how many of their nodes fail, are drawn for each scenario. Last, nodes fail by themselves, far more often
than real ones, and it is counted how often that was taken for a rack or leaf switch.

``effective`` is the effective training time of a large job under published rates of faults, with Flyball's decisions
carried out and without (``bench/anomalies/effective.py``).
"""

import argparse
import gc
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.anomalies import effective
from bench.common.report import machine, machine_line, spread
from tests.streams.engine.incident_harness import IncidentHarness, nodes, symptom
from tests.streams.engine.scene import CELL, FIRST, ONE, PERIOD_NS, START_NS, Agent, Values, incoming_records

from flyball_contracts.cloudevents import header
from flyball_contracts.codec import decode_record
from flyball_contracts.records import (
    Allocation,
    Cause,
    Device,
    Incident,
    Inventory,
    NodeEvent,
    Record,
    Symptom,
    WorkloadSpec,
)
from flyball_contracts.records.events import node_event
from flyball_contracts.topics import INCIDENTS
from flyball_contracts.xids import XIDS, xid_of
from flyball_streams.engine import Engine
from flyball_streams.engine.parameters import Parameters
from flyball_streams.worker.process import calm_collector

PARTS = ("rates", "stories", "effective")
GOAL_PER_S = 50_000
SEED = 20_000
"""Nothing was tuned on stories from this seed on, nor on those of racks from the next."""
RACKS_SEED = 30_000
EFFECTIVE_SEED = 501


class Size(NamedTuple):
    """Nodes of 8 GPUs, events in a tick, ticks, repeats of a rate, and stories of each kind."""

    nodes: int
    events: int
    ticks: int
    repeats: int
    stories: int


SIZES = {"quick": Size(64, 20_000, 3, 1, 20), "full": Size(1024, 50_000, 3, 3, 300)}
Events = Callable[[int, int, Size], list[NodeEvent]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the figures where requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only these of: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a small cell and few stories; supports no claim")
    parser.add_argument("--days", type=float, default=2.0, help="event time of each run of ``effective``")
    parser.add_argument("--seeds", type=int, default=3, help="runs of ``effective``")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there")
    options = parser.parse_args(arguments)
    parts = options.parts or PARTS
    if unknown := sorted({*parts} - {*PARTS}):
        parser.error(f"PART: {unknown[0]!r} is not one of: {', '.join(PARTS)}")
    size = SIZES["quick" if options.quick else "full"]
    calm_collector()
    console, figures = Console(width=120), dict[str, Any](machine=machine())
    console.print(machine_line(figures["machine"]))
    reached = [_measured(part, size, options, console, figures) for part in parts]
    if options.quick:
        console.print("--quick supports no claim")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1))
    return 0 if all(reached) else 1


def _measured(part: str, size: Size, options: argparse.Namespace, console: Console, figures: dict[str, Any]) -> bool:
    """Measure and print one of :data:`PARTS`; whether its goal is reached."""
    if part == "rates":
        rates = figures["rates"] = [rate(name, make, size) for name, make in FLOODS.items()]
        console.print(_rates(rates))
        return all(np.median(row["per_core_s"]) >= GOAL_PER_S for row in rates)
    if part == "stories":
        stories = figures["stories"] = [incidents_right(name, make, size) for name, make in STORIES.items()]
        stories += [incidents_right(name, make, size, racked=True) for name, make in RACK_STORIES.items()]
        chances = figures["chances"] = [by_chance(per_day, size) for per_day in CHANCES_PER_DAY]
        console.print(_stories(stories), _chances(chances), sep="\n")
        return all(story["right"] == story["of"] for story in stories)
    jobs, days = (effective.JOBS[-1:], 0.05) if options.quick else (effective.JOBS, options.days)
    seeds = range(EFFECTIVE_SEED, EFFECTIVE_SEED + (1 if options.quick else options.seeds))
    found = figures["effective"] = list(effective.rows(jobs, days, seeds))
    table = Table(title=f"Effective training time, goal {effective.GOAL:.0%}; parts lost", title_justify="left")
    for column in effective.TITLES:
        table.add_column(column)
    for line in effective.described(found):
        table.add_row(*line)
    console.print(table)
    return effective.reached(found)


def rate(name: str, make: Events, size: Size) -> dict[str, Any]:
    """Events per second of CPU time through all lanes, and what came out."""
    found: list[float] = []
    opened: set[str] = set()
    last: list[Record] = []
    for repeat in range(1 + size.repeats):  # the first one compiles, and does not count
        opened.clear()
        engine, agents = _cell(size, held=not name.endswith("free"))
        gc.collect()
        gc.freeze()  # as the worker does before it begins
        spent_s, events = 0.0, 0
        for index in range(12 + size.ticks):
            frames = [f for agent in agents for f in agent.frames(index, VALUES, schemas=(1,))]
            due = make(index, 0, size) if index >= 8 and events < size.events * size.ticks else []
            batch = [*incoming_records(*due), *frames]
            begin_s = time.process_time()
            sent = engine.feed(batch)
            if index >= 8:
                spent_s += time.process_time() - begin_s
            events += len(due)
            opened |= {header(m.headers, "ce_id") or "" for m in sent if m.topic == INCIDENTS.name}
            last = [decode_record(m.topic, m.value, m.headers) for m in sent if m.topic == INCIDENTS.name]
        if repeat:
            found.append(events / spent_s)
    of_kind = Counter(i.level for i in last if isinstance(i, Incident))
    return {
        "name": name, "events": size.events * size.ticks, "gpus": size.nodes * 8, "per_core_s": found,
        "incident_records": len(opened), "last_tick": dict(of_kind),
    }  # fmt: skip


def incidents_right(name: str, make: "Story", size: Size, *, racked: bool = False) -> dict[str, Any]:
    """Share of stories that became the one incident that they are."""
    right = 0
    wrong: Counter[str] = Counter()
    for n in range(size.stories):
        seed = n + (RACKS_SEED if racked else SEED)
        random = np.random.default_rng(seed)
        bench = IncidentHarness(*(_racked(np.random.default_rng(seed)) if racked else ()))
        expected, symptoms = make(random)
        order = list(symptoms)
        for index in range(1, 61):
            due = [s for s in order if (s.since_ns - START_NS) // PERIOD_NS == index]
            random.shuffle(due)
            bench.at(index, *due)
        got = sorted((i.level, i.device or i.domain or i.node or i.workload, i.cause) for i in bench.open())
        if got == sorted(expected):
            right += 1
        else:
            wrong[f"{got}"[:90]] += 1
    return {"name": name, "of": size.stories, "right": right, "wrong": dict(wrong.most_common(2))}


def by_chance(per_day: float, size: Size) -> dict[str, Any]:
    """Racks and leaf switches that were blamed for nodes that failed by themselves."""
    random = np.random.default_rng(SEED)
    bench = IncidentHarness(
        *(replace(n, rack=f"r{i // 8}", leaf=f"l{i // 32}") for i, n in enumerate(nodes(CHANCE_NODES, 1)))
    )
    days = CHANCE_DAYS if size.stories >= 100 else 1
    found: Counter[str] = Counter()
    faults = 0
    for day in range(days):
        for at in np.sort(random.integers(1, 86_400, random.poisson(per_day * CHANCE_NODES))).tolist():
            cause: Cause = ("power", "thermal", "network")[int(random.integers(3))]
            node = f"node-{random.integers(CHANCE_NODES)}"
            reported = bench.at(86_400 * day + at, symptom(node, None, 86_400 * day + at, cause, "fault"))
            found.update(i.level for i in reported if i.status == "open" and i.revision == 1)
            found.update(
                f"became {i.level}" for i in reported if i.level in ("rack", "leaf", "cell") and i.revision > 1
            )
            faults += 1
    return {"per_node_day": per_day, "nodes": CHANCE_NODES, "days": days, "faults": faults, "levels": dict(found)}


CHANCES_PER_DAY = (0.1, 1.0)
CHANCE_NODES, CHANCE_DAYS = 256, 30
VALUES = Values({"hw.power": 300.0, "hw.gpu.utilization{task=general}": 0.9})


def _cell(size: Size, *, held: bool) -> tuple[Engine, list[Agent]]:
    engine = Engine(Parameters(lateness_ticks=2), ONE)
    agents = [Agent(_node(n, held=held)) for n in range(size.nodes)]
    spec = WorkloadSpec(workload="train", cell=CELL, time_ns=START_NS, kind="training", max_replicas=size.nodes * 8)
    engine.feed(incoming_records(spec, *(agent.inventory for agent in agents)))
    return engine, agents


def _node(n: int, *, held: bool) -> Inventory:
    devices = tuple(Device(id=f"node-{n}/{i}", model="h100", memory_bytes=80 << 30) for i in range(8))
    by = tuple(Allocation(workload="train", replica=f"{n}-{i}", devices=(i,)) for i in range(8 if held else 0))
    return Inventory(
        node=f"node-{n}", cell=CELL, epoch=1, time_ns=START_NS, boot_id="boot-1", devices=devices, allocations=by
    )


def _xid(gpu: int, code: int, at_ns: int) -> NodeEvent:
    known = xid_of(code)
    node = f"node-{gpu // 8}"
    return node_event(
        node, at_ns, "xid", severity=known.severity, device=f"{node}/{gpu % 8}", code=code, remedy=known.remedy,
        message=known.about,
    )  # fmt: skip


def _flood(index: int, _: int, size: Size) -> list[NodeEvent]:
    gpus, at_ns = size.nodes * 8, (FIRST + index) * PERIOD_NS
    codes = (13, 31, 43, 45)
    found = [_xid(i % gpus, codes[i // gpus % 4], at_ns + i) for i in range(size.events - 1)]
    return [_xid(3, 79, at_ns), *found]


def _codes(index: int, _: int, size: Size) -> list[NodeEvent]:
    gpus, at_ns = size.nodes * 8, (FIRST + index) * PERIOD_NS
    codes = sorted(XIDS)[:100]
    return [_xid(i // 100 % gpus, codes[i % 100], at_ns + i) for i in range(size.events)]


def _apart(index: int, _: int, size: Size) -> list[NodeEvent]:
    gpus, at_ns = size.nodes * 8, (FIRST + index) * PERIOD_NS
    codes = (48, 62, 64, 74, 79, 95, 119)
    return [_xid(i % gpus, codes[i // gpus % len(codes)], at_ns + i) for i in range(size.events)]


FLOODS: dict[str, Events] = {"flood": _flood, "codes": _codes, "apart": _apart, "apart, free": _apart}
Expected = list[tuple[str, str, Cause]]
Story = Callable[[np.random.Generator], tuple[Expected, list[Symptom]]]


def _effects(random: np.random.Generator, begin: int) -> list[Symptom]:
    """What a gang shows when one of its members stops: its GPUs depart, some errors of the program, then a hang."""
    found: list[Symptom] = []
    for node in range(4):
        for row in random.choice(8, 2, replace=False).tolist():
            at = begin + int(random.integers(0, 12))
            found.append(
                symptom(
                    f"node-{node}",
                    row,
                    at,
                    "unknown",
                    "effect",
                    workload="train",
                    detector="departure",
                    statistical=True,
                    score=0.8,
                )
            )
    at = begin + int(random.integers(1, 25))
    found.append(symptom("node-0", None, at, "unknown", "effect", workload="train", gang=True, detector="hang"))
    at = begin + int(random.integers(0, 5))
    found.append(symptom("node-2", 1, at, "application", "effect", workload="train", gang=True, detector="xid 43"))
    return found


def _gpu(random: np.random.Generator) -> tuple[Expected, list[Symptom]]:
    node, row, begin = f"node-{random.integers(4)}", int(random.integers(8)), int(random.integers(5, 20))
    cause: Cause = ("gpu", "pcie", "driver")[int(random.integers(3))]
    late = begin + int(random.integers(0, 15))
    lead = symptom(node, row, late, cause, "fault", workload="train")
    return [("gpu", f"{node}/{row}", cause)], [lead, *_effects(random, begin)]


def _straggler(random: np.random.Generator) -> tuple[Expected, list[Symptom]]:
    node, row, begin = f"node-{random.integers(4)}", int(random.integers(8)), int(random.integers(5, 20))
    slow = symptom(
        node, row, begin + int(random.integers(0, 12)), "unknown", "sign", workload="train", detector="straggling",
        statistical=True, score=0.9,
    )  # fmt: skip
    hot = symptom(node, row, begin, "thermal", "sign", workload="train", detector="throttle")
    return [("gpu", f"{node}/{row}", "thermal")], [slow, hot, *_effects(random, begin)]


def _switch(random: np.random.Generator) -> tuple[Expected, list[Symptom]]:
    node, begin = f"node-{random.integers(4)}", int(random.integers(5, 20))
    rows: list[int] = random.choice(8, int(random.integers(2, 9)), replace=False).tolist()
    found = [
        symptom(node, row, begin + int(random.integers(0, 8)), "nvlink", "fault", workload="train") for row in rows
    ]
    lead = symptom(node, None, begin + int(random.integers(0, 8)), "nvlink", "fault", detector="xid 12028")
    return [("node", node, "nvlink")], [lead, *found, *_effects(random, begin)]


def _power(random: np.random.Generator) -> tuple[Expected, list[Symptom]]:
    begin = int(random.integers(5, 20))
    nodes: list[int] = random.choice(4, 3, replace=False).tolist()
    found = [
        symptom(f"node-{n}", row, begin + int(random.integers(0, 10)), "power", "fault", workload="train")
        for n in nodes for row in range(8)
    ]  # fmt: skip
    return [("cell", "", "power")], [*found, *_effects(random, begin)]


def _application(random: np.random.Generator) -> tuple[Expected, list[Symptom]]:
    begin = int(random.integers(5, 20))
    return [("workload", "train", "application")], _effects(random, begin)


def _two(random: np.random.Generator) -> tuple[Expected, list[Symptom]]:
    begin = int(random.integers(5, 20))
    one, other = (int(n) for n in random.choice(4, 2, replace=False))
    first = symptom(f"node-{one}", 1, begin, "gpu", "fault", workload="train")
    second = symptom(f"node-{other}", 6, begin + int(random.integers(0, 15)), "pcie", "fault", workload="train")
    expected: Expected = [("gpu", first.device, "gpu"), ("gpu", second.device, "pcie")]
    return expected, [first, second, *_effects(random, begin)]


STORIES: dict[str, Story] = {
    "a GPU of a gang": _gpu, "a straggler that is hot": _straggler, "an NVSwitch": _switch,
    "power of three nodes": _power, "the program alone": _application, "two GPUs at once": _two,
}  # fmt: skip


class Shape(NamedTuple):
    """Nodes, and how many are in a rack and on a leaf switch."""

    nodes: int
    rack: int
    leaf: int


def _shape(random: np.random.Generator) -> Shape:
    rack = int(random.integers(2, 12))
    leaf = rack * int(random.integers(1, 4))
    return Shape(leaf * 3, rack, leaf)


def _racked(random: np.random.Generator) -> list[Inventory]:
    shape = _shape(random)
    found = nodes(shape.nodes)
    return [replace(n, rack=f"r{i // shape.rack}", leaf=f"l{i // shape.leaf}") for i, n in enumerate(found)]


def _down(random: np.random.Generator, of: Sequence[int], cause: Cause, begin: int, least: int) -> list[Symptom]:
    """Some of the nodes, at least so many, fail within ten seconds, as nodes or by their GPUs."""
    count = int(random.integers(min(least, len(of)), len(of) + 1))
    chosen: list[int] = random.choice(np.array(of), count, replace=False).tolist()
    found: list[Symptom] = []
    for n in chosen:
        at = begin + int(random.integers(0, 10))
        if random.random() < 0.5:
            found.append(symptom(f"node-{n}", None, at, cause, "fault"))
        else:
            found += [symptom(f"node-{n}", row, at, cause, "fault", workload="train") for row in range(8)]
    return found


def _rack(random: np.random.Generator) -> tuple[Expected, list[Symptom]]:
    shape = _shape(random)
    rack, begin = int(random.integers(shape.nodes // shape.rack)), int(random.integers(5, 20))
    cause: Cause = ("power", "thermal")[int(random.integers(2))]
    of = range(rack * shape.rack, (rack + 1) * shape.rack)
    found = _down(random, of, cause, begin, 3 if shape.rack >= 8 else 2)
    return [("rack", f"r{rack}", cause)], [*found, *_effects(random, begin)]


def _leaf(random: np.random.Generator) -> tuple[Expected, list[Symptom]]:
    shape = _shape(random)
    leaf, begin = int(random.integers(3)), int(random.integers(5, 20))
    of = range(leaf * shape.leaf, (leaf + 1) * shape.leaf)
    found = _down(random, of, "network", begin, 3 if shape.leaf >= 8 else 2)
    return [("leaf", f"l{leaf}", "network")], [*found, *_effects(random, begin)]


def _silent(random: np.random.Generator) -> tuple[Expected, list[Symptom]]:
    shape = _shape(random)
    rack, begin = int(random.integers(shape.nodes // shape.rack)), int(random.integers(5, 20))
    found = [
        symptom(f"node-{n}", None, begin, "telemetry", "sign", detector="no_telemetry", severity="warning")
        for n in range(rack * shape.rack, (rack + 1) * shape.rack)
    ]  # fmt: skip
    level, name = ("rack", f"r{rack}") if shape.leaf > shape.rack else ("leaf", f"l{rack}")
    return [(level, name, "network")], [*found, *_effects(random, begin)]


def _strangers(random: np.random.Generator) -> tuple[Expected, list[Symptom]]:
    shape = _shape(random)
    begin = int(random.integers(5, 20))
    one, other = (int(n) for n in random.choice(shape.nodes // shape.leaf, 2, replace=False))
    cause: Cause = ("power", "network")[int(random.integers(2))]
    at = [f"node-{n * shape.leaf + int(random.integers(shape.leaf))}" for n in (one, other)]
    expected: Expected = [("node", node, cause) for node in at]
    return expected, [symptom(node, None, begin + int(random.integers(0, 10)), cause, "fault") for node in at]


RACK_STORIES: dict[str, Story] = {
    "a rack's power or cooling": _rack, "a leaf switch": _leaf, "a rack that falls silent": _silent,
    "one node each of two racks": _strangers,
}  # fmt: skip


def _chances(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Nodes that fail by themselves, and what was made of it", title_justify="left")
    for column in ("faults a node and day", "nodes", "days", "faults", "incidents by level"):
        table.add_column(column)
    for row in rows:
        levels = ", ".join(f"{level} {count:,}" for level, count in sorted(row["levels"].items()))
        table.add_row(
            f"{row['per_node_day']:g}", str(row["nodes"]), str(row["days"]), f"{row['faults']:,}", levels
        )  # fmt: skip
    return table


def _rates(rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"Fault events a second and core, goal {GOAL_PER_S:,}", title_justify="left")
    for column in ("events", "GPUs", "in all", "a second and core", "of the goal", "incident records"):
        table.add_column(column, justify="left" if column == "events" else "right")
    for row in rows:
        got = spread(row["per_core_s"])
        table.add_row(
            row["name"], f"{row['gpus']:,}", f"{row['events']:,}",
            f"{got.median:,.0f} ({got.least:,.0f} to {got.most:,.0f})", f"{got.median / GOAL_PER_S:.2f}",
            str(row["incident_records"]),
        )  # fmt: skip
    return table


def _stories(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Stories that became the one incident that they are", title_justify="left")
    for column in ("story", "right", "of", "wrong, most often"):
        table.add_column(column)
    for row in rows:
        table.add_row(row["name"], str(row["right"]), str(row["of"]), "; ".join(row["wrong"]))
    return table


if __name__ == "__main__":
    sys.exit(main())
