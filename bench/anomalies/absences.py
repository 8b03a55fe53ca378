"""Nodes that are taken for silent: a clean fleet whose agents restart, are killed and are late, and nodes that do die.

Of each node and day: ``RESTARTS`` restarts that the agent tells of, ``KILLS`` of which it says nothing, and ``DELAYS``
in which its messages wait and then come all at once. Their lengths are lognormal, so some kills and delays last longer
than the rule's minute. Twice a day nothing of any node arrives for two minutes, as when a broker restarts, and once a
day all agents are replaced within ten minutes. ``DEATHS`` nodes a node and day die for ten minutes without a word.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from bench.common.incidents import incidents_in

from flyball_contracts.codec import Message, frame_message, record_message
from flyball_contracts.config import FleetConfig, WorkerConfig
from flyball_contracts.frame import decode_frame, make_frame
from flyball_contracts.records import Incident
from flyball_contracts.records.events import node_event
from flyball_contracts.topics import EVENTS, INVENTORY, TELEMETRY
from flyball_simulator import Fleet
from flyball_streams.engine import Engine, Incoming
from flyball_streams.engine.node.detectors.absences import SILENT_S
from flyball_streams.engine.symptoms import NO_TELEMETRY

DAY_S = 86_400.0
RESTARTS, KILLS, DELAYS, DEATHS = 4.0, 4.0, 4.0, 1.0
MEDIAN_S, SIGMA = 10.0, 0.7
DEAD_S = 600.0
OUTAGES, OUTAGE_S = 2.0, 120.0
UPGRADE_S = 600.0
OF_AGENTS = frozenset({TELEMETRY.name, EVENTS.name, INVENTORY.name})


class Spell(NamedTuple):
    """Seconds for which nothing comes of a node; ``kind`` is why."""

    begin_s: float
    end_s: float
    kind: str


def schedule(nodes: int, seconds: float, seed: int) -> list[list[Spell]]:
    """The spells of each node, in order, those that meet others left out."""
    random = np.random.default_rng(seed)
    days = seconds / DAY_S
    outages = [float(t) for t in random.uniform(0.0, seconds, random.poisson(OUTAGES * days))]
    upgrades = [float(t) for t in random.uniform(0.0, seconds, random.poisson(days))]
    found: list[list[Spell]] = []
    for _ in range(nodes):
        mine = [Spell(t, t + OUTAGE_S, "late") for t in outages]
        for kind, rate in (("restart", RESTARTS), ("kill", KILLS), ("late", DELAYS), ("death", DEATHS)):
            for t in random.uniform(0.0, seconds, random.poisson(rate * days)).tolist():
                lasts_s = DEAD_S if kind == "death" else float(MEDIAN_S * random.lognormal(0.0, SIGMA))
                mine.append(Spell(t, t + lasts_s, kind))
        for t in upgrades:
            begin_s = t + float(random.uniform(0.0, UPGRADE_S))
            mine.append(Spell(begin_s, begin_s + float(MEDIAN_S * random.lognormal(0.0, SIGMA)), "restart"))
        kept: list[Spell] = []
        for spell in sorted(mine):
            if not kept or spell.begin_s >= kept[-1].end_s + 2 * SILENT_S:
                kept.append(spell)
        found.append(kept)
    return found


class Agents:
    """Messages of a fleet whose agents have such spells; ``epochs`` counts the restarts of each."""

    def __init__(self, fleet: Fleet, spells: list[list[Spell]]) -> None:
        self._start_ns = fleet.start_ns
        self.spells = {node.node: mine for node, mine in zip(fleet.nodes, spells, strict=True)}
        self.epochs = dict.fromkeys(self.spells, 0)
        self._first: dict[str, int] = {}
        self._waiting: dict[str, list[Message]] = {}
        self._away: dict[str, Spell] = {}

    def arrived(self, second: float, messages: list[Message]) -> list[Message]:
        """What comes in the tick at a second; all messages of a node keep their order."""
        found: list[Message] = []
        for node, spells in self.spells.items():
            spell = next((s for s in spells if s.begin_s <= second < s.end_s), None)
            before = self._away.pop(node, None)
            if spell is not None:
                self._away[node] = spell
            if spell is not None and spell is not before and spell.kind == "restart":
                found.append(self._event(node, spell.begin_s, "agent_stopped"))
            if before is not None and spell is not before:
                if before.kind == "late":
                    found += self._waiting.pop(node, [])
                else:
                    self.epochs[node] += 1
                    self._first.pop(node, None)
                    found.append(self._event(node, before.end_s, "agent_started"))
        for message in messages:
            node = message.key.decode()
            if message.topic not in OF_AGENTS or node not in self.spells:
                found.append(message)
                continue
            away = self._away.get(node)
            if away is None:
                found.append(self._renumbered(node, message))
            elif away.kind == "late":
                self._waiting.setdefault(node, []).append(self._renumbered(node, message))
            elif message.topic == INVENTORY.name:
                found.append(message)  # an agent tells it when it is back; the fleet says it once
        return found

    def _renumbered(self, node: str, message: Message) -> Message:
        """Frames of a restarted agent are counted from 0 in an epoch of their own."""
        if message.topic != TELEMETRY.name or not self.epochs[node]:
            return message
        frame = decode_frame(message.value or b"")
        first = self._first.setdefault(node, frame.seq)
        kept = {f: getattr(frame, f) for f in frame.__struct_fields__ if f not in ("rows", "block", "epoch", "seq")}
        epoch, seq = frame.epoch + self.epochs[node], frame.seq - first
        return frame_message(make_frame(frame.values, epoch=epoch, seq=seq, **kept))

    def _event(self, node: str, second: float, kind: Any) -> Message:
        at_ns = self._start_ns + round(second * 1e9)
        return record_message(node_event(node, at_ns, kind), f"/agents/{node}")


def silent_nodes(
    config: FleetConfig,
    start_ns: int,
    incoming: Callable[[Message], Incoming],
    hours: float,
    partitions: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """False incidents of silent nodes, beside the whole budget, and how soon nodes that died were named."""
    fleet, engine = Fleet(config, start_ns), Engine(WorkerConfig(), partitions)
    seconds = hours * 3600.0
    agents = Agents(fleet, schedule(len(fleet.nodes), seconds, config.seed))
    engine.feed([incoming(m) for m in fleet.messages_at_start()])
    opened: dict[str, tuple[float, Incident]] = {}
    for tick in range(round(seconds / config.tick_s)):
        second = tick * config.tick_s
        for record in incidents_in(engine.feed([incoming(m) for m in agents.arrived(second, fleet.tick(tick))])):
            if any(s.detector == NO_TELEMETRY for s in record.symptoms):
                opened.setdefault(record.id, (second, record))
    deaths = [(node, s) for node, mine in agents.spells.items() for s in mine if s.kind == "death"]
    delays: list[float] = []
    true: set[str] = set()
    for node, spell in deaths:
        mine = [
            (at, i.id) for at, i in opened.values()
            if node in i.nodes and spell.begin_s <= at < spell.end_s + config.tick_s
        ]  # fmt: skip
        true |= {name for _, name in mine}
        delays += [min(mine)[0] - spell.begin_s] if mine else []
    deaths = [(node, s) for node, s in deaths if s.begin_s < seconds - 2 * SILENT_S]
    others = [s for mine in agents.spells.values() for s in mine if s.kind != "death"]
    gpu_days = sum(len(node.devices) for node in fleet.nodes) * hours / 24
    budget = WorkerConfig().health.false_incidents_per_1000_gpu_days
    return {
        "part": "silent",
        "seed": config.seed,
        "tick_s": config.tick_s,
        "gpu_days": gpu_days,
        "restarts": sum(s.kind == "restart" for s in others),
        "kills": sum(s.kind == "kill" for s in others),
        "kills_over_a_minute": sum(s.kind == "kill" and s.end_s - s.begin_s > SILENT_S for s in others),
        "delays": sum(s.kind == "late" for s in others),
        "delays_over_a_minute": sum(s.kind == "late" and s.end_s - s.begin_s > SILENT_S for s in others),
        "per_1000_gpu_days": budget,
        "asked": budget / 1000.0 * gpu_days,
        "got": len(opened.keys() - true),
        "deaths": len(deaths),
        "deaths_found": len(delays),
        "delay_s": float(np.median(delays)) if delays else None,
    }


def rows_of(found: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Lines of the table."""
    for r in found:
        if r["part"] == "silent":
            yield (
                f"{r['gpu_days']:.0f}",
                str(r["restarts"]),
                f"{r['kills']} ({r['kills_over_a_minute']})",
                f"{r['delays']} ({r['delays_over_a_minute']})",
                f"{r['asked']:.2f}",
                str(r["got"]),
                f"{r['deaths_found']} of {r['deaths']}",
                "" if r["delay_s"] is None else f"{r['delay_s']:.0f}",
            )


TITLES = (
    "GPU-days", "restarts told", "kills (over 60 s)", "delays (over 60 s)", "asked, all detectors", "got",
    "dead nodes named", "after s",
)  # fmt: skip
