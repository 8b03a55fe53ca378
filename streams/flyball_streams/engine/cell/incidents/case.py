"""One open incident, as the desk keeps it."""

from typing import Any

import msgspec

from flyball_contracts.records import Cause, IncidentAction, Symptom
from flyball_contracts.records.events import Severity
from flyball_contracts.records.incidents import (
    RANK as RANK,
    SEVERITY as SEVERITY,
    WIDTH as WIDTH,
    IncidentStatus,
    Level,
)

MOST_SYMPTOMS = 32
MOST_NAMES = 4096
"""Devices, nodes or workloads that one incident knows by name; a cell has about as many nodes."""


class Case(msgspec.Struct):
    """One incident; :attr:`lead` is the symptom that names its cause.

    ``symptoms`` are those of each place and detector, by both, the oldest first. ``devices`` maps those that show
    symptoms to their nodes. ``published`` is how often it was said, ``said_ns`` when last. ``dirty``: it has changed
    since. ``gangs`` hold GPUs of a node that fails as a whole. ``domain`` is a rack or leaf switch. ``intervention`` is
    the decision of ours that explains it.
    """

    id: str
    lead: Symptom
    level: Level
    onset_ns: int
    opened_ns: int
    seen_ns: int
    severity: Severity
    cause: Cause
    node: str = ""
    device: str = ""
    link: str = ""
    workload: str = ""
    model: str = ""
    symptoms: dict[str, Symptom] = {}
    count: int = 0
    devices: dict[str, str] = {}
    nodes: dict[str, None] = {}
    workloads: dict[str, None] = {}
    actions: dict[str, IncidentAction] = {}
    intervention: str = ""
    status: IncidentStatus = "open"
    merged_into: str = ""
    domain: str = ""
    gangs: dict[str, None] = {}
    acknowledged_by: str = ""
    silence: str = ""
    label: bool | None = None
    published: int = 0
    said_ns: int = 0
    dirty: bool = True

    @property
    def rank(self) -> tuple[Any, ...]:
        """Which of two is the cause of the other, the greatest first: what is more telling, then what came earlier."""
        return RANK[self.lead.strength], WIDTH[self.level], -self.onset_ns, self.id

    @property
    def is_effect(self) -> bool:
        """Whether nothing so far says what is broken."""
        return self.lead.strength == "effect" and not self.intervention

    @property
    def signs(self) -> list[Symptom]:
        """What says that something is broken: the cause first, which stays when a newer symptom takes its place."""
        return [s for s in (self.lead, *self.symptoms.values()) if s.strength != "effect"]

    def add(self, symptom: Symptom, now_ns: int) -> None:
        """Take a symptom; a more telling one becomes the cause."""
        place = f"{symptom.node}|{symptom.device}|{symptom.detector}" if not symptom.gang else symptom.detector
        known = self.symptoms.get(place)
        if known is not None:
            symptom = msgspec.structs.replace(
                symptom, count=known.count + symptom.count, since_ns=min(known.since_ns, symptom.since_ns)
            )
        leads = _leads(symptom, self.lead)
        if known is not None or len(self.symptoms) < MOST_SYMPTOMS or leads:
            self.symptoms[place] = symptom
            self.dirty |= known is None
        if len(self.symptoms) > MOST_SYMPTOMS:  # the least telling goes, of those the newest
            others = {p: s for p, s in self.symptoms.items() if p != place}
            del self.symptoms[min(others, key=lambda p: (RANK[others[p].strength], -others[p].since_ns))]
        self.count += 1
        self.onset_ns = min(self.onset_ns, symptom.since_ns)
        self.seen_ns = max(self.seen_ns, symptom.time_ns, now_ns)
        if SEVERITY[symptom.severity] > SEVERITY[self.severity] and not self.intervention:
            self.severity, self.dirty = symptom.severity, True
        self._name(symptom)
        if leads:
            self.lead, self.dirty = symptom, True

    def absorb(self, other: "Case") -> None:
        """Take all of another one, which ends."""
        for place, symptom in other.symptoms.items():
            if len(self.symptoms) >= MOST_SYMPTOMS:
                break
            self.symptoms.setdefault(place, symptom)
        self.count += other.count
        self.onset_ns = min(self.onset_ns, other.onset_ns)
        self.seen_ns = max(self.seen_ns, other.seen_ns)
        if SEVERITY[other.severity] > SEVERITY[self.severity]:
            self.severity = other.severity
        _extend(self.devices, other.devices)
        _extend(self.nodes, other.nodes)
        _extend(self.workloads, other.workloads)
        _extend(self.gangs, other.gangs)
        self.actions.update(other.actions)
        self.acknowledged_by = self.acknowledged_by or other.acknowledged_by
        if _leads(other.lead, self.lead):
            self.lead = other.lead
        self.dirty, other.dirty = True, True
        other.status, other.merged_into = "merged", self.id

    def _name(self, symptom: Symptom) -> None:
        if symptom.device and len(self.devices) < MOST_NAMES and symptom.device not in self.devices:
            self.devices[symptom.device], self.dirty = symptom.node, True
        if symptom.node and len(self.nodes) < MOST_NAMES:
            self.nodes[symptom.node] = None
        if symptom.workload and len(self.workloads) < MOST_NAMES:
            self.workloads[symptom.workload] = None


def level_of(symptom: Symptom) -> Level:
    """Kind of place that a symptom points at."""
    if symptom.gang:
        return "workload"
    return "gpu" if symptom.device else "node" if symptom.node else "workload"


_NAMED: dict[Cause, int] = {"unknown": 0, "application": 1}


def _leads(new: Symptom, old: Symptom) -> bool:
    """Whether a symptom says more of the cause: it is more telling, names one, or shows it in a wider place.

    Of effects, what a gang shows as a whole goes before what one of its GPUs does.
    """
    if new.strength != old.strength:
        return RANK[new.strength] > RANK[old.strength]
    return _says(new) > _says(old)


def _says(symptom: Symptom) -> tuple[int, int, int, int]:
    wide = WIDTH[level_of(symptom)] if symptom.strength != "effect" else symptom.gang
    return _NAMED.get(symptom.cause, 2), wide, SEVERITY[symptom.severity], -symptom.since_ns


def _extend(names: dict[str, Any], more: dict[str, Any]) -> None:
    """Add names in place, as many as may be: the first of many that are merged grows large."""
    for name, value in more.items():
        if len(names) >= MOST_NAMES:
            return
        names.setdefault(name, value)
