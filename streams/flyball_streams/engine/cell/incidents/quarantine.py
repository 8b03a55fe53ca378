"""The state machine of unhealthy nodes: suspect, watched, cordoned, drained, checked, back.

One sign alone has no consequence. A critical fault, or two detectors that agree with one of them critical, cordons a
node; never more than a share of the cell at once. A cordoned node comes back by evidence alone: it passes a check; an
operator or a job readmits it; the platform makes it schedulable again after it was not; or its faulty GPUs were
replaced.
"""

from collections.abc import Container, Iterable, Iterator

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Check, NodeCondition, Outcome, Readmission, Symptom
from flyball_contracts.records.incidents import Condition
from flyball_contracts.records.nodes import node_of
from flyball_streams.engine.cell.incidents.checks import NodeCheck
from flyball_streams.engine.cell.incidents.open_incident import OpenIncident
from flyball_streams.engine.fleet_index import FleetIndex

PERSISTS_S = 60.0
"""A sign that is still seen after this time is not noise."""
LEAST_NODES = 2
MOST_CITED = 1024
MAX_CLEARED = 4096
OUT: frozenset[Condition] = frozenset({"cordoned", "drained", "checked"})
NOT_THE_NODE = frozenset({"application", "reclaimed", "telemetry", "intervention"})
TRANSITIONS: dict[Condition, frozenset[Condition]] = {
    "suspect": frozenset({"watched", "cordoned", "back"}),
    "watched": frozenset({"cordoned", "back"}),
    "cordoned": frozenset({"drained", "checked"}),
    "drained": frozenset({"cordoned", "checked"}),
    "checked": frozenset({"back", "cordoned"}),
    "back": frozenset(),
}
"""Conditions that may follow each condition."""


class QuarantinedNode(msgspec.Struct):
    """One node that is suspect, watched or out.

    ``cited`` are the records of its faults so far, which are cleared when it comes back. ``closed`` says that the
    platform made it unschedulable since it was cordoned. ``faulty_ns`` is the time of the newest fault or sign that
    counts: only a later readmission or check ends it. ``known`` are the records of all its faults and signs, and
    ``news_ns`` is the time of the newest. ``held`` says why it is not cordoned though it should be.
    """

    node: str
    condition: Condition
    since_ns: int
    reason: str
    devices: dict[str, None] = {}
    incidents: dict[str, None] = {}
    cited: dict[str, None] = {}
    held: str = ""
    evidence: str = ""
    checked_by: str = ""
    closed: bool = False
    faulty_ns: int = 0
    known: dict[str, None] = {}
    news_ns: int = 0
    check: NodeCheck = msgspec.field(default_factory=NodeCheck)
    revision: int = 0
    dirty: bool = True

    def transition(self, condition: Condition, now_ns: int, reason: str) -> None:
        """Change the condition."""
        assert condition in TRANSITIONS[self.condition], f"{self.node}: {self.condition} -> {condition}"
        self.condition, self.since_ns, self.reason, self.dirty = condition, now_ns, reason, True


class Quarantine(msgspec.Struct):
    """Quarantined nodes of a cell by name, and the records of faults that were cleared, with the time."""

    nodes: dict[str, QuarantinedNode] = {}
    cleared: dict[str, int] = {}

    def step(
        self, now_ns: int, cell: str, incidents: Iterable[OpenIncident], readmitted: dict[str, Readmission],
        directory: FleetIndex, share: float,
    ) -> None:  # fmt: skip
        """Update all nodes from the open incidents, readmissions and inventories of a tick."""
        self._drop_released()
        by_node: dict[str, list[OpenIncident]] = {}
        for incident in incidents:
            concerns = incident.level in ("gpu", "link", "node") and incident.cause not in NOT_THE_NODE
            if concerns and incident.status == "open" and not incident.silence:
                by_node.setdefault(incident.node, []).append(incident)
        capacity = max(LEAST_NODES, int(share * len(directory.nodes(cell))))
        for node in sorted(self.nodes.keys() | by_node.keys()):
            self._update_node(node, by_node.get(node, []), now_ns, capacity, readmitted.get(node), directory)

    def receive(self, outcome: Outcome) -> None:
        """Apply an outcome of a check."""
        entry = self.nodes.get(node_of(outcome.workload))
        message = "" if entry is None else entry.check.receive(outcome)
        if entry is not None and message and entry.condition in ("cordoned", "drained"):
            entry.reason, entry.dirty = f"{message}; it stays out until there is evidence that it is well", True

    def checks(
        self, cell: str, now_ns: int, after_ns: int, lives_ns: int, skip: Container[str], directory: FleetIndex
    ) -> Iterator[Check]:
        """Checks of the nodes that are empty and without new symptoms for ``after_ns``, except those to ``skip``."""
        for node, entry in sorted(self.nodes.items()):
            if entry.condition != "drained" or node in skip:
                continue
            if entry.check.is_due(now_ns, max(entry.since_ns, entry.faulty_ns, entry.news_ns) + after_ns):
                devices, incidents = to_check(entry, directory), tuple(entry.incidents)
                yield entry.check.start(cell, node, devices, incidents, now_ns, lives_ns)

    def checked(self, now_ns: int) -> set[str]:
        """Incidents of nodes whose check is under way: they stay open until it ends."""
        return {i for entry in self.nodes.values() if entry.check.is_under_way(now_ns) for i in entry.incidents}

    def records(self, cell: str, now_ns: int, directory: FleetIndex) -> Iterator[NodeCondition]:
        """Conditions that changed; nodes that are back are removed."""
        for node, entry in sorted(self.nodes.items()):
            if entry.dirty:
                entry.dirty, entry.revision = False, entry.revision + 1
                yield NodeCondition(
                    node=node, cell=cell, time_ns=now_ns, revision=entry.revision, condition=entry.condition,
                    since_ns=entry.since_ns, reason=entry.reason, devices=tuple(sorted(entry.devices)[:16]),
                    incidents=tuple(entry.incidents)[:16], gpus_moved=gpus_moved(entry, directory), held=entry.held,
                    evidence=entry.evidence, checked_by=entry.checked_by,
                )  # fmt: skip
        self._drop_released()

    def devices(self, directory: FleetIndex) -> Iterator[str]:
        """Devices on which nothing may be placed."""
        for entry in self.nodes.values():
            if entry.condition in OUT:
                inventory = directory.inventories.get(entry.node)
                yield from entry.devices or [d.id for d in (inventory.devices if inventory is not None else ())]

    def _drop_released(self) -> None:
        self.nodes = {node: entry for node, entry in self.nodes.items() if entry.condition != "back"}

    def _update_node(
        self,
        node: str,
        incidents: list[OpenIncident],
        now_ns: int,
        capacity: int,
        readmission: Readmission | None,
        directory: FleetIndex,
    ) -> None:
        entry = self.nodes.get(node)
        if entry is None:
            entry = self.nodes[node] = QuarantinedNode(node, "suspect", now_ns, incidents[0].lead.detector)
        self._add_evidence(entry, incidents)
        inventory = directory.inventories.get(node)
        if inventory is None:
            self._release(entry, now_ns, "the node is gone")
            return
        if entry.condition in ("suspect", "watched"):
            self._decide(entry, incidents, now_ns, capacity)
            return
        ids = {d.id for d in inventory.devices}
        open_ = inventory.schedulable and all(d.schedulable for d in inventory.devices if d.id in entry.devices)
        evidence, by = "", ""
        if readmission is not None and readmission.time_ns >= entry.faulty_ns:
            evidence, by = readmission.evidence, readmission.by
        elif entry.check.passed and entry.check.decided_ns > entry.faulty_ns:
            evidence, by = entry.check.passed, f"check {entry.check.decision}"
        elif entry.closed and open_ and not entry.check.is_under_way(now_ns):
            evidence, by = "the platform takes work on it again", "the platform"
        elif entry.devices and ids.isdisjoint(entry.devices):
            evidence, by = "its sick GPUs are not there any more", "the inventory"
        entry.closed |= not open_
        if entry.condition == "checked":
            self._release(entry, now_ns, entry.evidence)
        elif evidence:
            entry.evidence, entry.checked_by = evidence, by
            entry.transition("checked", now_ns, f"{by}: {evidence}")
        else:
            held = has_replicas(entry, directory)
            if entry.condition == "cordoned" and not held:
                entry.transition("drained", now_ns, "no replica is left on it; it waits for evidence that it is well")
            elif entry.condition == "drained" and held:
                entry.transition("cordoned", now_ns, "work was placed on it all the same")

    def _decide(self, entry: QuarantinedNode, incidents: list[OpenIncident], now_ns: int, capacity: int) -> None:
        if not incidents:
            self._release(entry, now_ns, "nothing more was seen")
            return
        fault = next((c for c in incidents if c.lead.strength == "fault" and c.severity == "critical"), None)
        signs = {s.detector for c in incidents for s in c.signs}
        confirmed = len(signs) >= 2 and any(c.severity == "critical" for c in incidents)
        persists = any(c.seen_ns - c.onset_ns >= PERSISTS_S * NS_PER_S for c in incidents)
        if fault is not None or confirmed:
            why = fault.lead.detector if fault is not None else " and ".join(sorted(signs))
            out = sum(other.condition in OUT for other in self.nodes.values())
            if out < capacity:
                entry.held = ""
                entry.faulty_ns = max(entry.faulty_ns, *(s.time_ns for c in incidents for s in c.signs))
                entry.transition(
                    "cordoned", now_ns, f"{why}; nothing is placed on it until there is evidence that it is well"
                )
            elif not entry.held:
                entry.held = f"{out} nodes of the cell are cordoned already, and no more may be; a person decides"
                entry.dirty = True
        elif entry.held:
            entry.held, entry.dirty = "", True
        if entry.condition == "suspect" and (persists or len(signs) >= 2 or entry.held):
            entry.transition("watched", now_ns, " and ".join(sorted(signs)) or incidents[0].lead.detector)

    def _add_evidence(self, entry: QuarantinedNode, incidents: list[OpenIncident]) -> None:
        """Add faulty devices and the records of faults; a new record invalidates older evidence of health."""
        whole = any(incident.level == "node" for incident in incidents)
        for incident in incidents:
            if incident.id not in entry.incidents:
                entry.incidents[incident.id], entry.dirty = None, True
            devices = [incident.device] if incident.device else incident.link.split("|") if incident.link else []
            for device in () if whole else devices:
                if device not in entry.devices:
                    entry.devices[device], entry.dirty = None, True
            for symptom in incident.signs:
                cited = cited_by(symptom)
                if any(name not in entry.known for name in cited):
                    entry.known.update((name, None) for name in cited if len(entry.known) < MOST_CITED)
                    entry.news_ns = max(entry.news_ns, symptom.time_ns)
                new = [name for name in cited if name not in entry.cited]
                if symptom.strength == "fault" and new:
                    entry.cited.update((name, None) for name in new if len(entry.cited) < MOST_CITED)
                    entry.faulty_ns = max(entry.faulty_ns, symptom.time_ns)
        if whole and entry.devices:
            entry.devices, entry.dirty = {}, True

    def _release(self, entry: QuarantinedNode, now_ns: int, reason: str) -> None:
        if entry.condition not in ("suspect", "watched", "checked"):
            entry.evidence, entry.checked_by = reason, "the inventory"
            entry.transition("checked", now_ns, reason)
        entry.transition("back", now_ns, reason)
        self.cleared.update(dict.fromkeys(entry.cited, now_ns))
        while len(self.cleared) > MAX_CLEARED:
            del self.cleared[next(iter(self.cleared))]


def cited_by(symptom: Symptom) -> list[str]:
    """Records that a symptom rests on: the events that it names, or else itself."""
    return [e.record for e in symptom.evidence if e.record] or [symptom.record]


def has_replicas(entry: QuarantinedNode, directory: FleetIndex) -> bool:
    """Whether a replica runs on the faulty devices of a node."""
    inventory = directory.inventories.get(entry.node)
    if inventory is None:
        return False
    rows = {i for i, d in enumerate(inventory.devices) if not entry.devices or d.id in entry.devices}
    return any(rows.intersection(a.devices) for a in inventory.allocations)


def to_check(entry: QuarantinedNode, directory: FleetIndex) -> tuple[str, ...]:
    """Devices that a check uses: all that are free, as a platform cannot choose among them; none stands for all."""
    inventory = directory.inventories.get(entry.node)
    if not entry.devices or inventory is None:
        return ()
    held = {row for allocation in inventory.allocations for row in allocation.devices}
    free = {d.id for i, d in enumerate(inventory.devices) if i not in held}
    return () if len(free) == len(inventory.devices) else tuple(sorted(free | entry.devices.keys()))


def gpus_moved(entry: QuarantinedNode, directory: FleetIndex) -> int:
    """GPUs of all replicas that leave or restart when the node is drained, with those of their whole gangs."""
    inventory = directory.inventories.get(entry.node)
    if inventory is None:
        return 0
    rows = {i for i, d in enumerate(inventory.devices) if not entry.devices or d.id in entry.devices}
    found: set[tuple[str, int]] = set()
    for held in inventory.allocations:
        if rows.intersection(held.devices):
            spec = directory.spec(held.workload)
            gang = spec is not None and spec.is_gang
            parts = directory.replicas(held.workload) if gang else directory.parts(held.workload, held.replica)
            found.update((part.node, row) for part in parts for row in part.devices)
    return len(found)
