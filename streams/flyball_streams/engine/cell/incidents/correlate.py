"""Which open incident a symptom belongs to, and which incidents turn out to be one.

A symptom joins what is known of its device, of its node, of its cause in the whole cell, or of its workload. Effects on
a gang join whatever is wrong with one of its members; what says more than an effect takes over the effects that came
before it. Three GPUs of a node with one cause are the node's incident, several nodes of a rack or leaf switch with one
cause that of the rack or switch, and several elsewhere the cell's.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Cause, IncidentAction, Symptom
from flyball_contracts.records.incidents import Level
from flyball_streams.engine.cell.incidents.case import RANK, Case, level_of
from flyball_streams.engine.cell.incidents.domains import SHARED_BY, WIDE, Domain, Domains
from flyball_streams.engine.known import Known
from flyball_streams.engine.symptoms import NO_TELEMETRY

EARLY_NS = 60 * NS_PER_S
"""An effect may be seen this much before its cause."""
LINK_NS = 300 * NS_PER_S
"""What began longer before a cause does not follow from it."""
TOGETHER_NS = 120 * NS_PER_S
GPUS_OF_NODE = 3
SPREADS = frozenset({"gpu", "link", "node", "rack", "leaf"})
NODES_OF_CELL = 3
DOMAINS_OF_CELL = 2
SHARED = frozenset({"power", "thermal", "network", "storage", "driver", "reclaimed", "telemetry", "host"})
"""Causes that nodes have in common; of others it takes more nodes to believe in one cause."""
MANY_NODES = 5
MANY_SHARE = 0.05
FIXED = frozenset({"node", "cell", "link", "rack", "leaf"})
"""Levels that what leads an incident does not change."""
VAGUE = frozenset({"unknown", "application", "intervention"})
Place = tuple[str, str]


@dataclass(slots=True)
class _Known:
    """Where a case is found: its places, and how many of its workloads and decisions are among them."""

    shape: tuple[Hashable, ...]
    places: list[Place]
    workloads: int = 0
    gangs: int = 0
    actions: int = 0


class Correlation:
    """The open incidents of a cell, found by their places."""

    def __init__(self, cell: str, directory: Known, cases: dict[str, Case]) -> None:
        self.cell = cell
        self.directory = directory
        self.cases = cases
        self._at: dict[Place, dict[str, Case]] = defaultdict(dict)
        self._known: dict[str, _Known] = {}
        self._wide: dict[str, Case] = {}
        self.domains = Domains(cell, directory)
        self._touched: dict[str, Case] = {}
        for case in cases.values():
            self._index(case)

    def take(self, symptom: Symptom, now_ns: int, explained: IncidentAction | None) -> Case:
        """Add a symptom to the incident that it belongs to, or open one; ``explained`` by a decision of ours."""
        homes = self._homes(symptom, explained)
        if not homes:
            case = self._open(symptom, now_ns, explained)
        else:
            case = homes[0] if len(homes) == 1 else max(homes, key=lambda home: home.rank)
            lead = case.lead
            case.add(symptom, now_ns)
            if not symptom.device:
                self._bind(case, symptom)
            if len(homes) == 1 and case.lead is lead and _is_settled(case):
                self._grow(case, self._known[case.id])  # what shows the same again is not placed anew
                self._touched[case.id] = case
                return case
            for other in homes:
                if other is not case:
                    self._merge(other, case)
        self.settle(case)
        self._touched[case.id] = case
        return case

    def spread(self, now_ns: int) -> None:
        """See whether incidents that were touched of late are those of a link, a node or the cell."""
        touched, self._touched = self._touched, {}
        live = [case for case in touched.values() if case.status == "open" and case.cause not in VAGUE]
        for node in sorted({case.node for case in live if case.level in ("gpu", "link")}):
            self._spread_node(node)
        causes: list[Cause] = sorted({_shown(case) for case in live if case.status == "open"})
        for cause in causes:
            for level in SHARED_BY.get(cause, ()):
                self._spread_domains(cause, level, now_ns)
            self._spread_cell(cause, now_ns)

    def close(self, case: Case) -> None:
        """Let go of an incident that is over."""
        self.cases.pop(case.id, None)
        self._leave(case)

    def of_device(self, device: str, node: str) -> Iterator[Case]:
        """Incidents that a device has, by itself, with its node, or with what is wider."""
        for place in (("gpu", device), ("node", node)):
            yield from self._at.get(place, {}).values()
        for case in self._wide.values():
            if device in case.devices or (case.level in WIDE and node in case.nodes):
                yield case

    def of_decision(self, decision: str) -> Iterator[Case]:
        """Incidents that a decision is among the actions of."""
        yield from self._at.get(("decision", decision), {}).values()

    def settle(self, case: Case) -> None:
        """Let the place and cause of an incident follow from what leads it."""
        if case.intervention:
            self._index(case)
            return
        lead, before = case.lead, (case.level, case.cause, case.node, case.device, case.link, case.workload)
        if case.level not in FIXED or _is_wider(lead, case):
            case.level = level_of(lead)
            if case.is_effect and case.level == "gpu" and len(case.devices) > 1 and case.workloads:
                case.level = "workload"
        if lead.detector == NO_TELEMETRY:
            case.cause = _why_silent(case)
        else:
            case.cause = lead.cause if lead.cause not in VAGUE else _named(case) or lead.cause
        case.node = lead.node if case.level in ("gpu", "link", "node") else ""
        case.device = lead.device if case.level == "gpu" else ""
        case.workload = lead.workload if case.level in ("gpu", "workload") else ""
        case.link = case.link if case.level == "link" else ""
        case.model = self.model_of(lead)
        case.dirty |= before != (case.level, case.cause, case.node, case.device, case.link, case.workload)
        self._index(case)

    def _homes(self, symptom: Symptom, explained: IncidentAction | None) -> list[Case]:
        level, cause = level_of(symptom), symptom.cause
        found: dict[str, Case] = {}
        if level != "workload" and (held := self._at.get(("node", symptom.node))):
            found.update(held)
        if level == "gpu" and (held := self._at.get(("gpu", symptom.device))):
            found.update(held)
        if level == "node" and RANK[symptom.strength] > 0:
            for case in self._at.get(("on", symptom.node), {}).values():
                if case.onset_ns >= symptom.since_ns - LINK_NS and RANK[case.lead.strength] <= RANK[symptom.strength]:
                    found[case.id] = case
        if cause not in VAGUE and (held := self._at.get(("cell", cause))):
            found.update(held)
        for domain in self.domains.of(symptom.node, cause) if self._wide else ():
            if held := self._at.get(domain):
                silent = symptom.detector == NO_TELEMETRY
                found.update((c.id, c) for c in held.values() if c.cause == cause or (silent and c.cause in SHARED_BY))
        if symptom.strength != "effect":
            for workload in (symptom.workload,) if symptom.workload else self._gangs(symptom):
                if held := self._at.get(("effects", workload)):
                    found.update((c.id, c) for c in held.values() if c.onset_ns >= symptom.since_ns - LINK_NS)
        elif symptom.workload and not found:
            of_it = self._at.get(("workload", symptom.workload), {}).values()
            near = [c for c in of_it if symptom.since_ns >= c.onset_ns - EARLY_NS and not c.intervention]
            causes = [c for c in near if not c.is_effect]
            if causes:
                return [max(causes, key=lambda c: c.rank)]
            if explained is not None:
                return list(self._at.get(("decision", explained.decision), {}).values())[:1]
            return near[:1]
        return list(found.values())

    def _open(self, symptom: Symptom, now_ns: int, explained: IncidentAction | None) -> Case:
        place = symptom.workload if symptom.gang else symptom.device or symptom.node or symptom.workload
        case = Case(
            id=record_id("Incident", self.cell, place, symptom.detector, now_ns)[:16],
            lead=symptom, level=level_of(symptom), onset_ns=symptom.since_ns, opened_ns=now_ns, seen_ns=now_ns,
            severity=symptom.severity, cause=symptom.cause, node=symptom.node,
        )  # fmt: skip
        if explained is not None:
            case.intervention, case.cause, case.severity = explained.decision, "intervention", "info"
            case.level, case.workload, case.node = "workload", explained.workload, ""
            case.actions[explained.decision] = explained
        case.add(symptom, now_ns)
        self._bind(case, symptom)
        self.cases[case.id] = case
        return case

    def _merge(self, case: Case, into: Case) -> None:
        into.absorb(case)
        self._leave(case)

    def _index(self, case: Case) -> None:
        """Find a case by its places; workloads and decisions, of which there may be many, are only ever added."""
        shape = case.level, case.cause, case.node, case.device, case.link, case.is_effect
        known = self._known.get(case.id)
        if known is None or known.shape != shape:
            self._leave(case)
            known = self._known[case.id] = _Known(shape, [])
            if case.level == "cell" or case.level in WIDE:
                self._wide[case.id] = case
            if case.level == "cell":
                self._put(case, known, [("cell", case.cause)])
            elif case.level in WIDE:
                self._put(case, known, [(case.level, case.domain)])
            elif case.level == "node":
                self._put(case, known, [("node", case.node)])
            elif case.level in ("gpu", "link"):
                devices = case.link.split("|") if case.link else [case.device]
                self._put(case, known, [*(("gpu", device) for device in devices), ("on", case.node)])
        self._grow(case, known)

    def _grow(self, case: Case, known: "_Known") -> None:
        if known.workloads < len(case.workloads):
            new = list(islice(case.workloads, known.workloads, None))
            self._put(case, known, [("workload", name) for name in new])
            if known.shape[-1]:
                self._put(case, known, [("effects", name) for name in new])
            known.workloads = len(case.workloads)
        if known.gangs < len(case.gangs):
            self._put(case, known, [("workload", name) for name in islice(case.gangs, known.gangs, None)])
            known.gangs = len(case.gangs)
        if known.actions < len(case.actions):
            self._put(case, known, [("decision", name) for name in islice(case.actions, known.actions, None)])
            known.actions = len(case.actions)

    def _put(self, case: Case, known: "_Known", places: list[Place]) -> None:
        for place in places:
            self._at[place][case.id] = case
        known.places += places

    def _leave(self, case: Case) -> None:
        known = self._known.pop(case.id, None)
        self._wide.pop(case.id, None)
        for place in known.places if known is not None else ():
            self._at[place].pop(case.id, None)
            if not self._at[place]:
                del self._at[place]

    def _spread_node(self, node: str) -> None:
        by_cause: dict[str, list[Case]] = defaultdict(list)
        for case in self._at.get(("on", node), {}).values():
            if case.cause not in VAGUE:
                by_cause[case.cause].append(case)
        for cause, cases in sorted(by_cause.items()):
            together = _together(cases, TOGETHER_NS)
            if len(together) >= GPUS_OF_NODE:
                self._widen(together, "node")
            elif cause == "nvlink" and len(together) == 2 and self._are_linked(node, *(c.device for c in together)):
                linked = "|".join(sorted(case.device for case in together))  # which widening forgets
                first = self._widen(together, "link")
                first.link = linked
                self._index(first)

    def _spread_domains(self, cause: Cause, level: Level, now_ns: int) -> None:
        """Put nodes of one rack or leaf switch together."""
        groups: dict[Domain, list[Case]] = defaultdict(list)
        for case in self._shared(cause, now_ns):
            for domain in self.domains.of(case.node, cause) if case.level not in WIDE else ():
                if domain[0] == level:
                    groups[domain].append(case)
        for domain, cases in sorted(groups.items()):
            together = _together(cases, EARLY_NS)
            nodes = {case.node for case in together}
            if self.domains.is_enough(domain, nodes, silent=all(c.lead.detector == NO_TELEMETRY for c in together)):
                self._widen(together, level, domain[1])

    def _spread_cell(self, cause: Cause, now_ns: int) -> None:
        together = _together(self._shared(cause, now_ns), EARLY_NS)
        wide = sum(case.level in WIDE for case in together)
        nodes = {case.node for case in together if case.level not in WIDE}
        if cause not in SHARED:
            least = max(MANY_NODES, round(MANY_SHARE * len(self.directory.nodes(self.cell))))
            is_enough = len(nodes) >= least
        else:
            is_enough = wide >= DOMAINS_OF_CELL or (
                len(nodes) + wide >= NODES_OF_CELL and not self._is_one(nodes, cause)
            )
        if is_enough:
            self._widen(together, "cell")

    def _shared(self, cause: Cause, now_ns: int) -> list[Case]:
        """Incidents of late with a cause that may be that of something wider, by what they show."""
        return [
            c for c in self.cases.values()
            if _shown(c) == cause and c.level in SPREADS and c.status == "open" and now_ns - c.onset_ns <= LINK_NS
            and (c.lead.strength == "fault" or c.level not in ("gpu", "link"))
        ]  # fmt: skip

    def _is_one(self, nodes: set[str], cause: Cause) -> bool:
        """Whether all of the nodes are those of one rack or leaf switch, of which others are well."""
        shared = [set(self.domains.of(node, cause)) for node in nodes]
        return bool(shared) and bool(set[Domain].intersection(*shared))

    def _widen(self, cases: list[Case], level: Level, domain: str = "") -> Case:
        """Make several incidents the first of them, and that one of a wider place."""
        first = min(cases, key=lambda c: (c.opened_ns, c.onset_ns, c.id))
        for case in cases:
            if case is not first:
                self._merge(case, first)
        first.level, first.domain = level, domain
        first.dirty = True
        self.settle(first)
        return first

    def _gangs(self, symptom: Symptom) -> Iterator[str]:
        """Gangs that wait while a node that shows a symptom as a whole does nothing."""
        if symptom.device or symptom.gang or (symptom.cause == "telemetry" and symptom.detector != NO_TELEMETRY):
            return
        inventory = self.directory.inventories.get(symptom.node)
        for name in sorted({a.workload for a in inventory.allocations if a.devices}) if inventory is not None else ():
            spec = self.directory.spec(name)
            if spec is not None and (spec.kind == "training" or spec.gang_size > 1):
                yield name

    def _bind(self, case: Case, symptom: Symptom) -> None:
        if symptom.strength != "effect" and symptom.node and not symptom.device:
            case.gangs.update(dict.fromkeys(self._gangs(symptom)))

    def _are_linked(self, node: str, one: str, other: str) -> bool:
        inventory = self.directory.inventories.get(node)
        rows = {d.id: row for row, d in enumerate(inventory.devices)} if inventory is not None else {}
        if inventory is None or one not in rows or other not in rows:
            return False
        return any(
            link.peer == rows[other] and link.kind in ("nvlink", "nvswitch")
            for link in inventory.devices[rows[one]].links
        )

    def model_of(self, symptom: Symptom) -> str:
        """Model of the GPU that a symptom is of, or of its node's first one; empty where it is not known."""
        inventory = self.directory.inventories.get(symptom.node)
        devices = inventory.devices if inventory is not None else ()
        return next((d.model for d in devices if d.id == symptom.device or not symptom.device), "")


def _shown(case: Case) -> Cause:
    """What it shows by itself; why a node is silent may follow from others."""
    return "telemetry" if case.lead.detector == NO_TELEMETRY else case.cause


def _why_silent(case: Case) -> Cause:
    """The network where all of a rack or switch is silent, the node where its gang stands still, else its agent."""
    if case.level in WIDE:
        return "network"
    halts = any(s.gang for s in case.symptoms.values())
    return "host" if halts and case.level == "node" else "telemetry"


def _is_settled(case: Case) -> bool:
    """Whether place and cause follow from what leads it alone, and not from its other symptoms."""
    return case.level == "cell" or (
        case.lead.strength != "effect"
        and case.lead.cause not in VAGUE
        and case.lead.detector != NO_TELEMETRY
        and bool(case.model)
        and not case.intervention
    )


def _is_wider(lead: Symptom, case: Case) -> bool:
    return level_of(lead) == "node" and case.level == "link"


def _named(case: Case) -> Cause | None:
    """The most telling cause that a symptom of the incident's own place names."""
    lead = case.lead
    mine = [
        s for s in case.symptoms.values()
        if s.cause not in VAGUE and (s.device == lead.device or not s.device) and s.node == lead.node
    ]  # fmt: skip
    return max(mine, key=lambda s: (RANK[s.strength], s.score, -s.since_ns)).cause if mine else None


def _together(cases: Iterable[Case], span_ns: int) -> list[Case]:
    """The largest number of cases whose onsets lie within a span, the earliest first."""
    ordered = sorted(cases, key=lambda c: (c.onset_ns, c.id))
    best: list[Case] = []
    first = 0
    for last, case in enumerate(ordered):
        while case.onset_ns - ordered[first].onset_ns > span_ns:
            first += 1
        if last + 1 - first > len(best):
            best = ordered[first : last + 1]
    return best
