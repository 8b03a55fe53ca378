"""An open incident: part of the state of a cell lane."""

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

NARROW = frozenset[Level]({"gpu", "link", "node", "workload"})
"""Levels whose symptoms are of one node, or of none."""
MOST_SYMPTOMS = 32
MOST_NAMES = 4096
"""Most devices, nodes or workloads that one incident names; a cell has about as many nodes."""


class OpenIncident(msgspec.Struct):
    """One incident; :attr:`lead` is the symptom that names its cause.

    ``symptoms`` has the latest symptom of each place and detector, the oldest key first. ``devices`` maps devices with
    symptoms to their nodes. ``revision`` counts how often the incident was published, ``published_ns`` is the last
    time, and ``dirty`` means that it has changed since. ``gangs`` are gangs with GPUs on a node that fails as a whole.
    ``faults`` has the latest faults of all places of a wide incident, which may be more than its ``symptoms``.
    ``domain`` is the rack or leaf switch. ``intervention`` is the id of our own decision that explains the incident.
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
    faults: dict[str, Symptom] = {}
    gangs: dict[str, None] = {}
    acknowledged_by: str = ""
    silence: str = ""
    label: bool | None = None
    revision: int = 0
    published_ns: int = 0
    dirty: bool = True

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sort key: the greater of two incidents is the cause of the other, by evidence, level and onset."""
        return RANK[self.lead.strength], WIDTH[self.level], -self.onset_ns, self.id

    @property
    def is_effect(self) -> bool:
        """Whether the incident has only effects so far, and nothing that shows what is broken."""
        return self.lead.strength == "effect" and not self.intervention

    @property
    def signs(self) -> list[Symptom]:
        """Symptoms that are more than effects, the lead first; the lead counts even if a newer symptom replaced it."""
        return [s for s in (self.lead, *self.symptoms.values()) if s.strength != "effect"]

    def add(self, symptom: Symptom, now_ns: int) -> None:
        """Add a symptom; it becomes the lead if it is more specific than the current one."""
        place = f"{symptom.node}|{symptom.device}|{symptom.detector}" if not symptom.gang else symptom.detector
        known = self.symptoms.get(place)
        if known is not None:
            symptom = msgspec.structs.replace(
                symptom, count=known.count + symptom.count, since_ns=min(known.since_ns, symptom.since_ns)
            )
        is_lead = _is_more_specific(symptom, self.lead)
        if known is not None or len(self.symptoms) < MOST_SYMPTOMS or is_lead:
            self.symptoms[place] = symptom
            self.dirty |= known is None
        if len(self.symptoms) > MOST_SYMPTOMS:  # drop the least telling symptom, the newest of equals
            others = {p: s for p, s in self.symptoms.items() if p != place}
            del self.symptoms[min(others, key=lambda p: (RANK[others[p].strength], -others[p].since_ns))]
        self.count += 1
        self.onset_ns = min(self.onset_ns, symptom.since_ns)
        self.seen_ns = max(self.seen_ns, symptom.time_ns, now_ns)
        if SEVERITY[symptom.severity] > SEVERITY[self.severity] and not self.intervention:
            self.severity, self.dirty = symptom.severity, True
        self._add_names(symptom)
        if symptom.strength == "fault" and self.level not in NARROW:
            _extend(self.faults, {place: symptom})
        if is_lead:
            self.lead, self.dirty = symptom, True

    def absorb(self, other: "OpenIncident") -> None:
        """Merge another incident into this one; the other ends as ``merged``."""
        _extend(self.faults, other.faults or {p: s for p, s in other.symptoms.items() if s.strength == "fault"})
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
        if _is_more_specific(other.lead, self.lead):
            self.lead = other.lead
        self.dirty, other.dirty = True, True
        other.status, other.merged_into = "merged", self.id

    def _add_names(self, symptom: Symptom) -> None:
        if symptom.device and len(self.devices) < MOST_NAMES and symptom.device not in self.devices:
            self.devices[symptom.device], self.dirty = symptom.node, True
        if symptom.node and len(self.nodes) < MOST_NAMES:
            self.nodes[symptom.node] = None
        if symptom.workload and len(self.workloads) < MOST_NAMES:
            self.workloads[symptom.workload] = None


def level_of(symptom: Symptom) -> Level:
    """Level of the place that a symptom points at."""
    if symptom.gang:
        return "workload"
    return "gpu" if symptom.device else "node" if symptom.node else "workload"


_CAUSE_RANK: dict[Cause, int] = {"unknown": 0, "application": 1}


def _is_more_specific(new: Symptom, old: Symptom) -> bool:
    """Whether ``new`` is better evidence of the cause: stronger, with a named cause, or of a wider place.

    Among effects, one on a whole gang ranks above one on a single GPU.
    """
    if new.strength != old.strength:
        return RANK[new.strength] > RANK[old.strength]
    return _specificity(new) > _specificity(old)


def _specificity(symptom: Symptom) -> tuple[int, int, int, int]:
    wide = WIDTH[level_of(symptom)] if symptom.strength != "effect" else symptom.gang
    return _CAUSE_RANK.get(symptom.cause, 2), wide, SEVERITY[symptom.severity], -symptom.since_ns


def _extend(names: dict[str, Any], more: dict[str, Any]) -> None:
    """Add names in place, up to the limit: the first of many incidents that are merged grows large."""
    for name, value in more.items():
        if len(names) >= MOST_NAMES:
            return
        names.setdefault(name, value)
