"""The state machine of unhealthy nodes: suspect, watched, cordoned, drained, checked, back.

One sign alone has no consequence. A critical fault, or two signs of different origin with one of them critical, cordons
a node, and so does a decision to move work off it; never more than a share of the cell at once. A cordoned node comes
back by evidence alone: it passes a check; an operator or a job readmits it; an operator uncordons it on the platform
after Flyball has cordoned it; or other GPUs are at the addresses of the faulty ones. Absence, silence and the inventory
of another publisher are no evidence: the condition stays.
"""

from collections.abc import Container, Iterable, Iterator, Set

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Check, Inventory, Migrate, NodeCondition, Outcome, Readmission
from flyball_contracts.records.incidents import Condition
from flyball_contracts.records.subjects import node_of
from flyball_streams.engine.cell.incidents.nodes.checks import NodeCheck
from flyball_streams.engine.cell.incidents.nodes.faulty_devices import (
    address_of,
    are_present,
    are_replaced,
    gpus_moved,
    has_replicas,
    to_check,
)
from flyball_streams.engine.cell.incidents.nodes.node_evidence import NodeEvidence, by_node, cited_by, independent
from flyball_streams.engine.cell.incidents.open_incident import OpenIncident
from flyball_streams.engine.fleet_index import FleetIndex

PERSISTS_S = 60.0
"""A sign that is still seen after this time is not noise."""
LEAST_NODES, LEAST_SHARE = 2, 1 / 3
"""In a small cell, too, up to ``LEAST_NODES`` nodes may be out, if they are no more than ``LEAST_SHARE`` of it; one
node always may be."""
REBOOTS_S = 3_600.0
"""A node without an inventory counts among those that are out for this long: it may be back any moment."""
GONE_S = 30 * 86_400.0
"""After this time without an inventory, a node of the same name counts as another."""
REPEAT_S = 86_400.0
"""The condition of a node that is not back is published again after this time, so that who looks back a few days sees
it."""
MOST_CITED = 1024
MAX_CLEARED = 4096
UNTIL = "nothing is placed on it until there is evidence that it is well"
OUT: frozenset[Condition] = frozenset({"cordoned", "drained", "checked"})
TRANSITIONS: dict[Condition, frozenset[Condition]] = {
    "suspect": frozenset({"watched", "cordoned", "back"}),
    "watched": frozenset({"cordoned", "back"}),
    "cordoned": frozenset({"watched", "drained", "checked"}),
    "drained": frozenset({"cordoned", "checked"}),
    "checked": frozenset({"back", "cordoned"}),
    "back": frozenset(),
}
"""Conditions that may follow each condition."""


class QuarantinedNode(msgspec.Struct):
    """One node that is suspect, watched or out.

    ``devices`` maps the faulty devices to their PCI addresses (empty if unknown); an empty map stands for the whole
    node. ``cited`` are the records of its faults so far, which are cleared when evidence brings it back. ``closed``
    means that Flyball's cordon was seen on the platform since its last fault. ``faulty_ns`` is the time of the newest
    fault or sign that counts: only a later readmission or check ends it. ``known`` are the records of all its faults
    and signs, and ``news_ns`` is the time of the newest. ``held`` is the reason why it is not cordoned though it should
    be. ``gone_ns`` is when its inventory was removed, 0 while there is one; ``counts`` is whether it counts towards the
    share of the cell that may be out. ``move`` is the decision that cordoned it by moving work off it. ``published_ns``
    is when its condition was last published.
    """

    node: str
    condition: Condition
    since_ns: int
    reason: str
    devices: dict[str, str] = {}
    incidents: dict[str, None] = {}
    cited: dict[str, None] = {}
    held: str = ""
    evidence: str = ""
    checked_by: str = ""
    closed: bool = False
    faulty_ns: int = 0
    known: dict[str, None] = {}
    news_ns: int = 0
    gone_ns: int = 0
    counts: bool = True
    move: str = ""
    check: NodeCheck = msgspec.field(default_factory=NodeCheck)
    revision: int = 0
    dirty: bool = True
    published_ns: int = 0

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
        directory: FleetIndex, share: float, checked: Set[str],
    ) -> None:  # fmt: skip
        """Update all nodes from the open incidents, readmissions and inventories of a tick.

        At most ``share`` of the cell's nodes may be out, with the nodes that are ``checked`` for a gang.
        """
        self._drop_released()
        found = by_node(incidents, self.nodes)
        capacity = most_out(share, len(directory.nodes(cell)) if found else 0)
        out = len(self.out() | checked)
        for node in sorted(self.nodes.keys() | found.keys()):
            was_out = self.counts(node) or node in checked
            self._update_node(node, found.get(node, []), now_ns, (out, capacity), readmitted.get(node), directory)
            out += (self.counts(node) or node in checked) - was_out

    def counts(self, node: str) -> bool:
        """Whether a node counts among those that are out."""
        entry = self.nodes.get(node)
        return entry is not None and entry.condition in OUT and entry.counts

    def out(self) -> set[str]:
        """Nodes that are out."""
        return {node for node in self.nodes if self.counts(node)}

    def hold(self, decision: Migrate, incidents: list[str], directory: FleetIndex) -> None:
        """Cordon a node because a decision moves work off one of its devices."""
        node, device, now_ns = decision.from_node, decision.from_device, decision.time_ns
        fresh, inventory = node not in self.nodes, directory.inventories.get(node)
        entry = self.nodes.setdefault(node, QuarantinedNode(node, "suspect", now_ns, "work leaves it"))
        if inventory is None or entry.condition in ("checked", "back"):
            return
        known = len(entry.devices), len(entry.incidents)
        if fresh or entry.devices:  # else the whole node is faulty
            entry.devices.setdefault(device, address_of(device, inventory))
        entry.incidents.update(dict.fromkeys(incidents))
        entry.held, entry.faulty_ns = "", max(entry.faulty_ns, now_ns)
        entry.dirty |= known != (len(entry.devices), len(entry.incidents))
        if entry.condition in OUT:
            return
        entry.move = decision.id
        entry.transition("cordoned", now_ns, f"work leaves its device {device}; {UNTIL}")

    def fail(
        self, node: str, devices: dict[str, str], incident: str, check: NodeCheck, reason: str, now_ns: int,
        directory: FleetIndex,
    ) -> None:  # fmt: skip
        """Cordon a node that has not passed a check of these devices, with their addresses; it is checked again."""
        fresh, inventory = node not in self.nodes, directory.inventories.get(node)
        entry = self.nodes.setdefault(node, QuarantinedNode(node, "suspect", now_ns, reason))
        if fresh or entry.devices:  # else the whole node is faulty
            entry.devices.update(devices)
        entry.incidents[incident], entry.faulty_ns, entry.dirty = None, max(entry.faulty_ns, now_ns), True
        if entry.condition not in ("suspect", "watched", "checked"):
            return
        entry.held, entry.evidence, entry.checked_by, entry.check = "", "", "", check
        entry.transition("cordoned", now_ns, f"{reason}; {UNTIL}")
        if inventory is not None and not has_replicas(entry.devices, inventory):
            entry.transition("drained", now_ns, f"{reason}; it is empty, and waits for evidence that it is well")

    def take_back(self, outcome: Outcome) -> None:
        """Open a node that only a move has cordoned, if the move was not carried out and no fault was seen.

        If it is unknown whether the move was carried out, the platform may still have the node cordoned, and only a
        check opens it.
        """
        if outcome.unknown:
            return
        for entry in self.nodes.values():
            if entry.move == outcome.decision and entry.condition == "cordoned" and not entry.cited:
                entry.move = ""
                entry.transition("watched", outcome.time_ns, f"the move of work off it was {outcome.status}")

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
            inventory = directory.inventories.get(node)
            if entry.condition != "drained" or node in skip or inventory is None:
                continue
            if not are_present(entry.devices, inventory):
                continue  # no check could test them
            if entry.check.is_due(now_ns, max(entry.since_ns, entry.faulty_ns, entry.news_ns) + after_ns):
                devices, incidents = to_check(entry.devices, inventory), tuple(entry.incidents)
                yield entry.check.start(cell, node, devices, incidents, now_ns, lives_ns)

    def checked(self, now_ns: int) -> set[str]:
        """Incidents of nodes whose check is under way: they stay open until it ends."""
        return {i for entry in self.nodes.values() if entry.check.is_under_way(now_ns) for i in entry.incidents}

    def records(self, cell: str, now_ns: int, directory: FleetIndex) -> Iterator[NodeCondition]:
        """Conditions that changed or are due again; nodes that are back are removed."""
        for node, entry in sorted(self.nodes.items()):
            if entry.dirty or now_ns - entry.published_ns >= REPEAT_S * NS_PER_S:
                entry.dirty, entry.revision, entry.published_ns = False, entry.revision + 1, now_ns
                yield NodeCondition(
                    node=node, cell=cell, time_ns=now_ns, revision=entry.revision, condition=entry.condition,
                    since_ns=entry.since_ns, reason=entry.reason, devices=tuple(sorted(entry.devices)[:16]),
                    incidents=tuple(entry.incidents)[:16], gpus_moved=gpus_moved(node, entry.devices, directory),
                    held=entry.held, evidence=entry.evidence, checked_by=entry.checked_by,
                )  # fmt: skip
        self._drop_released()

    def devices(self, directory: FleetIndex) -> Iterator[str]:
        """Devices on which nothing may be placed."""
        for entry in self.nodes.values():
            if entry.condition in OUT:
                yield from self.closed(entry, directory.inventories.get(entry.node))

    @staticmethod
    def closed(entry: QuarantinedNode, inventory: Inventory | None) -> Iterator[str]:
        """Devices of a node that take no work: its faulty ones; all if none is named, or the inventory lacks one."""
        yield from entry.devices
        if inventory is not None and not (entry.devices and are_present(entry.devices, inventory)):
            yield from (d.id for d in inventory.devices)

    def _drop_released(self) -> None:
        self.nodes = {node: entry for node, entry in self.nodes.items() if entry.condition != "back"}

    def _update_node(
        self,
        node: str,
        found: list[NodeEvidence],
        now_ns: int,
        room: tuple[int, int],
        readmission: Readmission | None,
        directory: FleetIndex,
    ) -> None:
        entry = self.nodes.get(node)
        if entry is None:
            entry = self.nodes[node] = QuarantinedNode(node, "suspect", now_ns, found[0].signs[0].detector)
        inventory = directory.inventories.get(node)
        self._add_evidence(entry, found, inventory)
        if inventory is None:
            self._wait(entry, now_ns)
            return
        if entry.gone_ns:
            entry.gone_ns, entry.counts, entry.reason, entry.dirty = 0, True, "it is there again", True
        if entry.condition in ("suspect", "watched"):
            self._decide(entry, found, now_ns, room)
            return
        evidence, by = self._evidence_of(entry, inventory, now_ns, readmission)
        entry.closed |= inventory.cordon == "flyball"
        if entry.condition == "checked":
            self._release(entry, now_ns, entry.evidence)
        elif evidence:
            entry.evidence, entry.checked_by = evidence, by
            entry.transition("checked", now_ns, f"{by}: {evidence}")
        else:
            held = has_replicas(entry.devices, inventory)
            if entry.condition == "cordoned" and not held:
                entry.transition("drained", now_ns, "no replica is left on it; it waits for evidence that it is well")
            elif entry.condition == "drained" and held:
                entry.transition("cordoned", now_ns, "work was placed on it all the same")

    @staticmethod
    def _evidence_of(
        entry: QuarantinedNode, inventory: Inventory, now_ns: int, readmission: Readmission | None
    ) -> tuple[str, str]:
        """Evidence that a node is well, and its source; empty if there is none."""
        if readmission is not None and readmission.time_ns >= entry.faulty_ns:
            return readmission.evidence, readmission.by
        if entry.check.passed and entry.check.decided_ns > entry.faulty_ns:
            return entry.check.passed, f"check {entry.check.decision}"
        if entry.closed and inventory.cordon == "lifted" and not entry.check.is_under_way(now_ns):
            return "an operator has uncordoned it on the platform", "the platform"
        if are_replaced(entry.devices, inventory):
            return "other GPUs are at the addresses of its faulty ones", "the inventory"
        return "", ""

    def _wait(self, entry: QuarantinedNode, now_ns: int) -> None:
        """Keep a cordoned or drained node that is gone, up to ``GONE_S``, as it may come back; release any other."""
        if entry.condition in ("suspect", "watched", "checked"):
            self._release(entry, now_ns, "the node is gone")
        elif not entry.gone_ns:
            entry.gone_ns, entry.dirty = now_ns, True
            entry.reason = "its inventory is gone; it stays out if it comes back, until there is evidence"
        elif entry.counts:
            entry.counts = now_ns - entry.gone_ns < REBOOTS_S * NS_PER_S
        elif now_ns - entry.gone_ns > GONE_S * NS_PER_S:
            entry.evidence, entry.checked_by = "there has been no such node for 30 days", "the inventory"
            entry.transition("checked", now_ns, entry.evidence)
            entry.cited = {}
            self._release(entry, now_ns, entry.evidence)

    def _decide(self, entry: QuarantinedNode, found: list[NodeEvidence], now_ns: int, room: tuple[int, int]) -> None:
        active = [one for one in found if not one.silenced]
        if not active:
            if not found:
                self._release(entry, now_ns, "nothing more was seen")
            return  # a silence is no evidence that the node is well
        fault = next((one for one in active if one.is_fault), None)
        signs = [s for one in active for s in one.signs]
        detectors = sorted({s.detector for s in signs})
        agree = independent(signs) >= 2
        if fault is not None or (agree and any(one.critical for one in active)):
            why = fault.signs[0].detector if fault is not None else " and ".join(detectors)
            out, capacity = room
            if out < capacity:
                entry.held = ""
                entry.faulty_ns = max(entry.faulty_ns, *(s.time_ns for s in signs))
                entry.transition("cordoned", now_ns, f"{why}; {UNTIL}")
            elif not entry.held:
                entry.held = f"{out} nodes of the cell are cordoned already, and no more may be; a person decides"
                entry.dirty = True
        elif entry.held:
            entry.held, entry.dirty = "", True
        persists = any(one.seen_ns - one.onset_ns >= PERSISTS_S * NS_PER_S for one in active)
        if entry.condition == "suspect" and (persists or agree or entry.held):
            entry.transition("watched", now_ns, " and ".join(detectors) or "it lasts")

    def _add_evidence(self, entry: QuarantinedNode, found: list[NodeEvidence], inventory: Inventory | None) -> None:
        """Add faulty devices and the records of faults; a new record invalidates older evidence of health."""
        whole = any(one.whole for one in found)
        for one in found:
            if one.incident not in entry.incidents:
                entry.incidents[one.incident], entry.dirty = None, True
            for device in () if whole else one.devices:
                if device not in entry.devices:
                    entry.devices[device], entry.dirty = address_of(device, inventory), True
            for symptom in one.signs:
                cited = cited_by(symptom)
                if not all(map(entry.known.__contains__, cited)):
                    entry.known.update((name, None) for name in cited if len(entry.known) < MOST_CITED)
                    entry.news_ns = max(entry.news_ns, symptom.time_ns)
                if symptom.strength == "fault" and not all(map(entry.cited.__contains__, cited)):
                    entry.cited.update((name, None) for name in cited if len(entry.cited) < MOST_CITED)
                    entry.faulty_ns, entry.closed = max(entry.faulty_ns, symptom.time_ns), False
        if whole and entry.devices:
            entry.devices, entry.dirty = {}, True

    def _release(self, entry: QuarantinedNode, now_ns: int, reason: str) -> None:
        """Bring a node back; only one that was checked is cleared of its faults."""
        if entry.condition == "checked":
            self.cleared.update(dict.fromkeys(entry.cited, now_ns))
            while len(self.cleared) > MAX_CLEARED:
                del self.cleared[next(iter(self.cleared))]
        entry.transition("back", now_ns, reason)


def most_out(share: float, nodes: int) -> int:
    """Most nodes of a cell that may be out at once."""
    return max(1, min(LEAST_NODES, int(LEAST_SHARE * nodes)), int(share * nodes))
