"""Evidence of the open incidents of a cell against each node.

An incident of a GPU, a link or a node speaks against its node. One of a rack, a leaf switch or the cell speaks against
each node with a fault of its own: many nodes that fail together are no healthier than one.
"""

from collections.abc import Container, Iterable
from typing import NamedTuple

from flyball_contracts.records import Symptom
from flyball_streams.engine.cell.incidents.open_incident import NARROW, OpenIncident

NOT_THE_NODE = frozenset({"application", "reclaimed", "telemetry", "intervention"})
"""Causes for which no node goes out."""


class NodeEvidence(NamedTuple):
    """Evidence of one incident against one node; ``signs`` are its faults and signs, the most telling first."""

    incident: str
    signs: list[Symptom]
    devices: tuple[str, ...]
    whole: bool
    is_fault: bool
    critical: bool
    silenced: bool
    onset_ns: int
    seen_ns: int


def by_node(incidents: Iterable[OpenIncident], known: Container[str]) -> dict[str, list[NodeEvidence]]:
    """Evidence against each node; silenced incidents only against nodes that are ``known``."""
    found: dict[str, list[NodeEvidence]] = {}
    for incident in incidents:
        if incident.status != "open" or incident.cause in NOT_THE_NODE or incident.level == "workload":
            continue
        parts = [_narrow(incident)] if incident.level in NARROW else _wide(incident)
        for node, evidence in parts:
            if evidence.signs and (not evidence.silenced or node in known):
                found.setdefault(node, []).append(evidence)
    return found


def cited_by(symptom: Symptom) -> list[str]:
    """Records that a symptom rests on: the events that it names, or else itself."""
    return [e.record for e in symptom.evidence if e.record] or [symptom.record]


def independent(symptoms: Iterable[Symptom]) -> int:
    """Number of symptoms of different origin: those of one detector, or that rest on one record, count once."""
    groups: list[set[str]] = []
    for symptom in symptoms:
        group = {f"by {symptom.detector}", *(name for name in cited_by(symptom) if name)}
        apart = [one for one in groups if one.isdisjoint(group)]
        groups = [*apart, group.union(*(one for one in groups if not one.isdisjoint(group)))]
    return len(groups)


def _narrow(incident: OpenIncident) -> tuple[str, NodeEvidence]:
    whole = incident.level == "node"
    devices = (incident.device,) if incident.device else tuple(incident.link.split("|")) if incident.link else ()
    critical = incident.severity == "critical"
    return incident.node, NodeEvidence(
        incident.id, incident.signs, () if whole else devices, whole, critical and incident.lead.strength == "fault",
        critical, bool(incident.silence), incident.onset_ns, incident.seen_ns,
    )  # fmt: skip


def _wide(incident: OpenIncident) -> list[tuple[str, NodeEvidence]]:
    of: dict[str, list[Symptom]] = {}
    known = {(s.node, s.device, s.detector): s for s in (*incident.faults.values(), *incident.signs)}
    for symptom in known.values():
        if symptom.strength == "fault" and symptom.node:
            of.setdefault(symptom.node, []).append(symptom)
    return [
        (
            node,
            NodeEvidence(
                incident.id, signs, tuple(dict.fromkeys(s.device for s in signs)), any(not s.device for s in signs),
                any(s.severity == "critical" for s in signs), any(s.severity == "critical" for s in signs),
                bool(incident.silence), min(s.since_ns for s in signs), incident.seen_ns,
            ),
        )
        for node, signs in of.items()
    ]  # fmt: skip
