"""Which open incident a symptom belongs to, and which incidents turn out to be one.

A symptom joins the open incident of its device, of its node, of its cause in the whole cell, or of its workload.
Effects on a gang join the incident of any of its members; a symptom that is more than an effect takes over effects that
came before it. Three GPUs of a node with one cause, whole or divided, become an incident of the node, several nodes of
a rack or leaf switch with one cause an incident of the rack or switch, and several nodes elsewhere an incident of the
cell. Devices of several workloads that depart at once in the same way are one incident, too (:mod:`.bursts`).
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Cause, IncidentAction, Symptom
from flyball_contracts.records.incidents import Level
from flyball_streams.engine.cell.incidents.bursts import bursts
from flyball_streams.engine.cell.incidents.domains import SHARED_BY, WIDE, Domain, Domains
from flyball_streams.engine.cell.incidents.open_incident import RANK, OpenIncident, level_of
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.symptoms import NO_TELEMETRY

EARLY_NS = 60 * NS_PER_S
"""An effect may show this long before its cause."""
LINK_NS = 300 * NS_PER_S
"""Symptoms that began longer than this before a cause are not its effects."""
TOGETHER_NS = 120 * NS_PER_S
GPUS_OF_NODE = 3
SPREADS = frozenset({"gpu", "link", "node", "rack", "leaf"})
NODES_OF_CELL = 3
DOMAINS_OF_CELL = 2
SHARED = frozenset({"power", "thermal", "network", "storage", "driver", "reclaimed", "telemetry", "host"})
"""Causes that nodes can share; any other cause needs more nodes before they count as one incident."""
MANY_NODES = 5
MANY_SHARE = 0.05
FIXED = frozenset({"node", "cell", "link", "rack", "leaf"})
"""Levels that a new lead does not change."""
VAGUE = frozenset({"unknown", "application", "intervention"})
Place = tuple[str, str]


@dataclass(slots=True)
class _IndexEntry:
    """Index entry of an incident: its places, and how many of its workloads, gangs and decisions are among them."""

    shape: tuple[Hashable, ...]
    places: list[Place]
    workloads: int = 0
    gangs: int = 0
    actions: int = 0


class Correlation:
    """The open incidents of a cell, indexed by place."""

    def __init__(self, cell: str, directory: FleetIndex, incidents: dict[str, OpenIncident], budget: float) -> None:
        self.cell = cell
        self.budget = budget
        self.directory = directory
        self.incidents = incidents
        self._at: dict[Place, dict[str, OpenIncident]] = defaultdict(dict)
        self._entries: dict[str, _IndexEntry] = {}
        self._wide: dict[str, OpenIncident] = {}
        self.domains = Domains(cell, directory)
        self._changed: dict[str, OpenIncident] = {}
        for incident in incidents.values():
            self._index(incident)

    def ingest(self, symptom: Symptom, now_ns: int, intervention: IncidentAction | None) -> OpenIncident:
        """Add a symptom to the incident that it belongs to, or open one.

        ``intervention`` is our own decision that explains the symptom, if there is one.
        """
        candidates = self._candidates(symptom, intervention)
        if not candidates:
            incident = self._open(symptom, now_ns, intervention)
        else:
            incident = candidates[0] if len(candidates) == 1 else max(candidates, key=lambda candidate: candidate.rank)
            lead = incident.lead
            incident.add(symptom, now_ns)
            if not symptom.device:
                self._add_gangs(incident, symptom)
            if len(candidates) == 1 and incident.lead is lead and _is_settled(incident):
                self._grow(incident, self._entries[incident.id])  # the same symptom again changes no place
                self._changed[incident.id] = incident
                return incident
            for other in candidates:
                if other is not incident:
                    self._merge(other, incident)
        self.settle(incident)
        self._changed[incident.id] = incident
        return incident

    def spread(self, now_ns: int) -> None:
        """Merge incidents that changed since the last call into ones of a link, node, rack, leaf switch or the cell."""
        changed, self._changed = self._changed, {}
        live = [incident for incident in changed.values() if incident.status == "open" and incident.cause not in VAGUE]
        for node in sorted({incident.node for incident in live if incident.level in ("gpu", "link")}):
            self._spread_node(node)
        causes: list[Cause] = sorted({_own_cause(incident) for incident in live if incident.status == "open"})
        for cause in causes:
            for level in SHARED_BY.get(cause, ()):
                self._spread_domains(cause, level, now_ns)
            self._spread_cell(cause, now_ns)
        departed = [incident for incident in changed.values() if incident.lead.statistical]
        if departed and len(self.incidents) > 1:
            self._join_bursts(departed)

    def close(self, incident: OpenIncident) -> None:
        """Remove an incident that is over."""
        self.incidents.pop(incident.id, None)
        self._unindex(incident)

    def of_device(self, device: str, node: str) -> Iterator[OpenIncident]:
        """Incidents of a device, of its node, or of a wider place that contains it."""
        for place in (("gpu", device), ("node", node)):
            yield from self._at.get(place, {}).values()
        for incident in self._wide.values():
            if device in incident.devices or (incident.level in WIDE and node in incident.nodes):
                yield incident

    def of_decision(self, decision: str) -> Iterator[OpenIncident]:
        """Incidents that have this decision among their actions."""
        yield from self._at.get(("decision", decision), {}).values()

    def settle(self, incident: OpenIncident) -> None:
        """Derive the place and cause of an incident from its lead."""
        if incident.intervention:
            self._index(incident)
            return
        lead, before = (
            incident.lead,
            (incident.level, incident.cause, incident.node, incident.device, incident.link, incident.workload),
        )
        if incident.level not in FIXED or _is_wider(lead, incident):
            incident.level = level_of(lead)
            if incident.is_effect and incident.level == "gpu" and len(incident.devices) > 1 and incident.workloads:
                incident.level = "workload"
        if lead.detector == NO_TELEMETRY:
            incident.cause = _cause_of_silence(incident)
        else:
            incident.cause = lead.cause if lead.cause not in VAGUE else _named_cause(incident) or lead.cause
        incident.node = lead.node if incident.level in ("gpu", "link", "node") else ""
        incident.device = lead.device if incident.level == "gpu" else ""
        incident.workload = lead.workload if incident.level in ("gpu", "workload") else ""
        incident.link = incident.link if incident.level == "link" else ""
        incident.model = self.model_of(lead)
        incident.dirty |= before != (
            incident.level,
            incident.cause,
            incident.node,
            incident.device,
            incident.link,
            incident.workload,
        )
        self._index(incident)

    def _candidates(self, symptom: Symptom, intervention: IncidentAction | None) -> list[OpenIncident]:
        level, cause = level_of(symptom), symptom.cause
        found: dict[str, OpenIncident] = {}
        if level != "workload" and (matches := self._at.get(("node", symptom.node))):
            found.update(matches)
        if level == "gpu" and (matches := self._at.get(("gpu", symptom.device))):
            found.update(matches)
        if level == "node" and RANK[symptom.strength] > 0:
            for incident in self._at.get(("on", symptom.node), {}).values():
                if (
                    incident.onset_ns >= symptom.since_ns - LINK_NS
                    and RANK[incident.lead.strength] <= RANK[symptom.strength]
                ):
                    found[incident.id] = incident
        if cause not in VAGUE and (matches := self._at.get(("cell", cause))):
            found.update(matches)
        for domain in self.domains.of(symptom.node, cause) if self._wide else ():
            if matches := self._at.get(domain):
                silent = symptom.detector == NO_TELEMETRY
                found.update(
                    (c.id, c) for c in matches.values() if c.cause == cause or (silent and c.cause in SHARED_BY)
                )
        if cause in VAGUE and symptom.node and self._wide:
            for incident in self._wide.values():  # another symptom of a place that is affected already
                affected = symptom.device in incident.devices
                affected |= incident.level in WIDE and symptom.node in incident.nodes
                if affected and symptom.since_ns >= incident.onset_ns - EARLY_NS:
                    found[incident.id] = incident
        if symptom.strength != "effect":
            for workload in (symptom.workload,) if symptom.workload else self._gangs(symptom):
                if matches := self._at.get(("effects", workload)):
                    found.update((c.id, c) for c in matches.values() if c.onset_ns >= symptom.since_ns - LINK_NS)
        elif symptom.workload and not found:
            of_it = self._at.get(("workload", symptom.workload), {}).values()
            near = [c for c in of_it if self._may_affect(c, symptom)]
            causes = [c for c in near if not c.is_effect]
            if causes:
                return [max(causes, key=lambda c: c.rank)]
            if intervention is not None:
                return list(self._at.get(("decision", intervention.decision), {}).values())[:1]
            return near[:1]
        return list(found.values())

    def _may_affect(self, incident: OpenIncident, symptom: Symptom) -> bool:
        """Whether an incident of a workload may be why an effect on it began.

        An incident that began long before, at a place that the workload has left since, is no cause.
        """
        if symptom.since_ns < incident.onset_ns - EARLY_NS or incident.intervention:
            return False
        if incident.is_effect or incident.level not in ("gpu", "link", "node"):
            return True
        recent = symptom.since_ns - incident.onset_ns <= LINK_NS
        return recent or bool(self.directory.staying(symptom.workload, incident.node))

    def _open(self, symptom: Symptom, now_ns: int, intervention: IncidentAction | None) -> OpenIncident:
        place = symptom.workload if symptom.gang else symptom.device or symptom.node or symptom.workload
        incident = OpenIncident(
            id=record_id("Incident", self.cell, place, symptom.detector, now_ns)[:16],
            lead=symptom, level=level_of(symptom), onset_ns=symptom.since_ns, opened_ns=now_ns, seen_ns=now_ns,
            severity=symptom.severity, cause=symptom.cause, node=symptom.node,
        )  # fmt: skip
        if intervention is not None:
            incident.intervention, incident.cause, incident.severity = intervention.decision, "intervention", "info"
            incident.level, incident.workload, incident.node = "workload", intervention.workload, ""
            incident.actions[intervention.decision] = intervention
        incident.add(symptom, now_ns)
        self._add_gangs(incident, symptom)
        self.incidents[incident.id] = incident
        return incident

    def _merge(self, incident: OpenIncident, into: OpenIncident) -> None:
        into.absorb(incident)
        self._unindex(incident)

    def _index(self, incident: OpenIncident) -> None:
        """Index an incident by its places; workloads and decisions, of which there may be many, are only added."""
        shape = incident.level, incident.cause, incident.node, incident.device, incident.link, incident.is_effect
        entry = self._entries.get(incident.id)
        if entry is None or entry.shape != shape:
            self._unindex(incident)
            entry = self._entries[incident.id] = _IndexEntry(shape, [])
            if incident.level == "cell" or incident.level in WIDE:
                self._wide[incident.id] = incident
            if incident.level == "cell":
                self._put(incident, entry, [("cell", incident.cause)])
            elif incident.level in WIDE:
                self._put(incident, entry, [(incident.level, incident.domain)])
            elif incident.level == "node":
                self._put(incident, entry, [("node", incident.node)])
            elif incident.level in ("gpu", "link"):
                devices = incident.link.split("|") if incident.link else [incident.device]
                self._put(incident, entry, [*(("gpu", device) for device in devices), ("on", incident.node)])
        self._grow(incident, entry)

    def _grow(self, incident: OpenIncident, entry: _IndexEntry) -> None:
        if entry.workloads < len(incident.workloads):
            new = list(islice(incident.workloads, entry.workloads, None))
            self._put(incident, entry, [("workload", name) for name in new])
            if entry.shape[-1]:
                self._put(incident, entry, [("effects", name) for name in new])
            entry.workloads = len(incident.workloads)
        if entry.gangs < len(incident.gangs):
            self._put(incident, entry, [("workload", name) for name in islice(incident.gangs, entry.gangs, None)])
            entry.gangs = len(incident.gangs)
        if entry.actions < len(incident.actions):
            self._put(incident, entry, [("decision", name) for name in islice(incident.actions, entry.actions, None)])
            entry.actions = len(incident.actions)

    def _put(self, incident: OpenIncident, entry: _IndexEntry, places: list[Place]) -> None:
        for place in places:
            self._at[place][incident.id] = incident
        entry.places += places

    def _unindex(self, incident: OpenIncident) -> None:
        entry = self._entries.pop(incident.id, None)
        self._wide.pop(incident.id, None)
        for place in entry.places if entry is not None else ():
            self._at[place].pop(incident.id, None)
            if not self._at[place]:
                del self._at[place]

    def _spread_node(self, node: str) -> None:
        by_cause: dict[str, list[OpenIncident]] = defaultdict(list)
        for incident in self._at.get(("on", node), {}).values():
            if incident.cause not in VAGUE:
                by_cause[incident.cause].append(incident)
        for cause, incidents in sorted(by_cause.items()):
            together = _together(incidents, TOGETHER_NS)
            if len(self._gpus_of(node, together)) >= GPUS_OF_NODE:
                self._widen(together, "node")
            elif cause == "nvlink" and len(together) == 2 and self._are_linked(node, *(c.device for c in together)):
                linked = "|".join(sorted(incident.device for incident in together))  # widening clears them
                first = self._widen(together, "link")
                first.link = linked
                self._index(first)

    def _gpus_of(self, node: str, incidents: Iterable[OpenIncident]) -> set[str]:
        """GPUs and links of a node that have incidents; a GPU and its MIG instances count once."""
        inventory = self.directory.inventories.get(node)
        parents = {d.id: d.parent for d in (inventory.devices if inventory is not None else ()) if d.parent}
        return {c.link or parents.get(c.device, c.device) for c in incidents}

    def _spread_domains(self, cause: Cause, level: Level, now_ns: int) -> None:
        """Merge incidents of nodes in one rack or on one leaf switch."""
        groups: dict[Domain, list[OpenIncident]] = defaultdict(list)
        for incident in self._shared(cause, now_ns):
            for domain in self.domains.of(incident.node, cause) if incident.level not in WIDE else ():
                if domain[0] == level:
                    groups[domain].append(incident)
        for domain, incidents in sorted(groups.items()):
            together = _together(incidents, EARLY_NS)
            nodes = {incident.node for incident in together}
            if self.domains.is_enough(domain, nodes, silent=all(c.lead.detector == NO_TELEMETRY for c in together)):
                self._widen(together, level, domain[1])

    def _spread_cell(self, cause: Cause, now_ns: int) -> None:
        together = _together(self._shared(cause, now_ns), EARLY_NS)
        wide = sum(incident.level in WIDE for incident in together)
        nodes = {incident.node for incident in together if incident.level not in WIDE}
        if cause not in SHARED:
            least = max(MANY_NODES, round(MANY_SHARE * len(self.directory.nodes(self.cell))))
            is_enough = len(nodes) >= least
        else:
            is_enough = wide >= DOMAINS_OF_CELL or (
                len(nodes) + wide >= NODES_OF_CELL and not self._share_domain(nodes, cause)
            )
        if is_enough:
            self._widen(together, "cell")

    def _join_bursts(self, changed: list[OpenIncident]) -> None:
        gpus = sum(len(inventory.devices) for inventory in self.directory.nodes(self.cell))
        for together in bursts(changed, self.incidents.values(), gpus, self.budget):
            self._join(together)

    def _shared(self, cause: Cause, now_ns: int) -> list[OpenIncident]:
        """Recent incidents with this cause that could be part of a wider one."""
        return [
            c for c in self.incidents.values()
            if _own_cause(c) == cause and c.level in SPREADS and c.status == "open" and now_ns - c.onset_ns <= LINK_NS
            and (c.lead.strength == "fault" or c.level not in ("gpu", "link"))
        ]  # fmt: skip

    def _share_domain(self, nodes: set[str], cause: Cause) -> bool:
        """Whether all of these nodes are in one rack or on one leaf switch."""
        shared = [set(self.domains.of(node, cause)) for node in nodes]
        return bool(shared) and bool(set[Domain].intersection(*shared))

    def _widen(self, incidents: list[OpenIncident], level: Level, domain: str = "") -> OpenIncident:
        """Merge several incidents into the first, and raise that one to a wider level."""
        first = min(incidents, key=_age)
        first.level, first.domain = level, domain
        return self._join(incidents)

    def _join(self, incidents: list[OpenIncident]) -> OpenIncident:
        """Merge several incidents into the first."""
        first = min(incidents, key=_age)
        for incident in incidents:
            if incident is not first:
                self._merge(incident, first)
        first.dirty = True
        self.settle(first)
        return first

    def _gangs(self, symptom: Symptom) -> Iterator[str]:
        """Gangs that wait for a node with a symptom of the whole node."""
        if symptom.device or symptom.gang or (symptom.cause == "telemetry" and symptom.detector != NO_TELEMETRY):
            return
        inventory = self.directory.inventories.get(symptom.node)
        for name in sorted({a.workload for a in inventory.allocations if a.devices}) if inventory is not None else ():
            spec = self.directory.spec(name)
            if spec is not None and spec.is_gang and self.directory.staying(name, symptom.node):
                yield name

    def _add_gangs(self, incident: OpenIncident, symptom: Symptom) -> None:
        if symptom.strength != "effect" and symptom.node and not symptom.device:
            incident.gangs.update(dict.fromkeys(self._gangs(symptom)))

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
        """Model of the GPU with the symptom, or of the first GPU of its node; empty if unknown."""
        inventory = self.directory.inventories.get(symptom.node)
        devices = inventory.devices if inventory is not None else ()
        return next((d.model for d in devices if d.id == symptom.device or not symptom.device), "")


def _age(incident: OpenIncident) -> tuple[int, int, str]:
    return incident.opened_ns, incident.onset_ns, incident.id


def _own_cause(incident: OpenIncident) -> Cause:
    """Cause that the incident shows by itself: that of a silent node may be derived from other nodes."""
    return "telemetry" if incident.lead.detector == NO_TELEMETRY else incident.cause


def _cause_of_silence(incident: OpenIncident) -> Cause:
    """The network if a whole rack or switch is silent, the host if its gang stands still, else the agent."""
    if incident.level in WIDE:
        return "network"
    halts = any(s.gang for s in incident.symptoms.values())
    return "host" if halts and incident.level == "node" else "telemetry"


def _is_settled(incident: OpenIncident) -> bool:
    """Whether place and cause follow from the lead alone, and not from other symptoms."""
    return incident.level == "cell" or (
        incident.lead.strength != "effect"
        and incident.lead.cause not in VAGUE
        and incident.lead.detector != NO_TELEMETRY
        and bool(incident.model)
        and not incident.intervention
    )


def _is_wider(lead: Symptom, incident: OpenIncident) -> bool:
    return level_of(lead) == "node" and incident.level == "link"


def _named_cause(incident: OpenIncident) -> Cause | None:
    """The cause with the strongest evidence among the symptoms of the incident's own place.

    A sensor that reports wrong values explains nothing else.
    """
    lead = incident.lead
    local = [
        s for s in incident.symptoms.values()
        if s.cause not in VAGUE and (s.cause, s.strength) != ("telemetry", "effect") and s.node == lead.node
        and (s.device == lead.device or not s.device)
    ]  # fmt: skip
    return max(local, key=lambda s: (RANK[s.strength], s.score, -s.since_ns)).cause if local else None


def _together(incidents: Iterable[OpenIncident], span_ns: int) -> list[OpenIncident]:
    """The largest group of incidents whose onsets lie within a span, the earliest first."""
    ordered = sorted(incidents, key=lambda c: (c.onset_ns, c.id))
    best: list[OpenIncident] = []
    first = 0
    for last, incident in enumerate(ordered):
        while incident.onset_ns - ordered[first].onset_ns > span_ns:
            first += 1
        if last + 1 - first > len(best):
            best = ordered[first : last + 1]
    return best
