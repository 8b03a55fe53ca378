"""Which nodes are out, and how each gets there and back: suspect, watched, cordoned, drained, checked, back.

Nothing follows from one sign. A fault, or two detectors that agree and one of which shows it to be bad, cordons; never
more than a share of the cell at once. What is cordoned comes back by evidence alone: it passes a check; somebody, or a
job that checked it, readmits the node; the platform takes work on it again after it had closed it; or its sick GPUs
were replaced.
"""

from collections.abc import Container, Iterable, Iterator

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Check, NodeCondition, Outcome, Readmission, Symptom
from flyball_contracts.records.incidents import Condition
from flyball_contracts.records.nodes import node_of
from flyball_streams.engine.cell.incidents.case import Case
from flyball_streams.engine.cell.incidents.checks import NodeCheck
from flyball_streams.engine.known import Known

STAYS_S = 60.0
"""A sign that is seen again after so long is no noise."""
LEAST_NODES = 2
MOST_CITED = 1024
MOST_FORGIVEN = 4096
OUT: frozenset[Condition] = frozenset({"cordoned", "drained", "checked"})
NOT_THE_NODE = frozenset({"application", "reclaimed", "telemetry", "intervention"})
NEXT: dict[Condition, frozenset[Condition]] = {
    "suspect": frozenset({"watched", "cordoned", "back"}),
    "watched": frozenset({"cordoned", "back"}),
    "cordoned": frozenset({"drained", "checked"}),
    "drained": frozenset({"cordoned", "checked"}),
    "checked": frozenset({"back", "cordoned"}),
    "back": frozenset(),
}
"""Where a node may go from each condition."""


class Ward(msgspec.Struct):
    """One node that is not simply well.

    ``cited`` are the records of the faults so far: once readmitted they are forgiven. ``closed``: the platform has
    closed it since it was cordoned. ``faulty_ns`` is the time of the newest fault or sign that counts: only a later
    readmission or check ends it. ``known`` are the records of its faults and signs so far, and ``news_ns`` is the time
    of the newest.
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

    def go(self, condition: Condition, now_ns: int, reason: str) -> None:
        """Change the condition."""
        assert condition in NEXT[self.condition], f"{self.node}: {self.condition} -> {condition}"
        self.condition, self.since_ns, self.reason, self.dirty = condition, now_ns, reason, True


class Wards(msgspec.Struct):
    """Nodes of a cell that are watched or out, and faults that were forgiven, with when."""

    nodes: dict[str, Ward] = {}
    forgiven: dict[str, int] = {}

    def step(
        self, now_ns: int, cell: str, cases: Iterable[Case], readmitted: dict[str, Readmission], directory: Known,
        share: float,
    ) -> None:  # fmt: skip
        """Follow the incidents of a tick, and what people and the platform say of nodes."""
        self._forget()
        by_node: dict[str, list[Case]] = {}
        for case in cases:
            concerns = case.level in ("gpu", "link", "node") and case.cause not in NOT_THE_NODE
            if concerns and case.status == "open" and not case.silence:
                by_node.setdefault(case.node, []).append(case)
        room = max(LEAST_NODES, int(share * len(directory.nodes(cell))))
        for node in sorted(self.nodes.keys() | by_node.keys()):
            self._follow(node, by_node.get(node, []), now_ns, room, readmitted.get(node), directory)

    def heed(self, outcome: Outcome) -> None:
        """Take what became of a check."""
        ward = self.nodes.get(node_of(outcome.workload))
        said = "" if ward is None else ward.check.heed(outcome)
        if ward is not None and said and ward.condition in ("cordoned", "drained"):
            ward.reason, ward.dirty = f"{said}; it stays out until there is evidence that it is well", True

    def checks(
        self, cell: str, now_ns: int, after_ns: int, lives_ns: int, skip: Container[str], directory: Known
    ) -> Iterator[Check]:
        """Checks of the nodes that are empty and have been quiet for ``after_ns``, but those to ``skip``."""
        for node, ward in sorted(self.nodes.items()):
            if ward.condition != "drained" or node in skip:
                continue
            if ward.check.is_due(now_ns, max(ward.since_ns, ward.faulty_ns, ward.news_ns) + after_ns):
                devices, incidents = to_check(ward, directory), tuple(ward.incidents)
                yield ward.check.ask(cell, node, devices, incidents, now_ns, lives_ns)

    def checked(self, now_ns: int) -> set[str]:
        """Incidents of the nodes whose check is under way: they are told of its end."""
        return {i for ward in self.nodes.values() if ward.check.is_under_way(now_ns) for i in ward.incidents}

    def records(self, cell: str, now_ns: int, directory: Known) -> Iterator[NodeCondition]:
        """Conditions that changed; nodes that are back are let go of."""
        for node, ward in sorted(self.nodes.items()):
            if ward.dirty:
                ward.dirty, ward.revision = False, ward.revision + 1
                yield NodeCondition(
                    node=node, cell=cell, time_ns=now_ns, revision=ward.revision, condition=ward.condition,
                    since_ns=ward.since_ns, reason=ward.reason, devices=tuple(sorted(ward.devices)[:16]),
                    incidents=tuple(ward.incidents)[:16], gpus_moved=moved_with(ward, directory), held=ward.held,
                    evidence=ward.evidence, checked_by=ward.checked_by,
                )  # fmt: skip
        self._forget()

    def devices(self, directory: Known) -> Iterator[str]:
        """Devices on which nothing is placed."""
        for ward in self.nodes.values():
            if ward.condition in OUT:
                inventory = directory.inventories.get(ward.node)
                yield from ward.devices or [d.id for d in (inventory.devices if inventory is not None else ())]

    def _forget(self) -> None:
        self.nodes = {node: ward for node, ward in self.nodes.items() if ward.condition != "back"}

    def _follow(
        self, node: str, cases: list[Case], now_ns: int, room: int, told: Readmission | None, directory: Known
    ) -> None:
        ward = self.nodes.get(node)
        if ward is None:
            ward = self.nodes[node] = Ward(node, "suspect", now_ns, cases[0].lead.detector)
        self._note(ward, cases)
        inventory = directory.inventories.get(node)
        if inventory is None:
            self._release(ward, now_ns, "the node is gone")
            return
        if ward.condition in ("suspect", "watched"):
            self._judge(ward, cases, now_ns, room)
            return
        ids = {d.id for d in inventory.devices}
        open_ = inventory.schedulable and all(d.schedulable for d in inventory.devices if d.id in ward.devices)
        evidence, by = "", ""
        if told is not None and told.time_ns >= ward.faulty_ns:
            evidence, by = told.evidence, told.by
        elif ward.check.passed and ward.check.decided_ns > ward.faulty_ns:
            evidence, by = ward.check.passed, f"check {ward.check.decision}"
        elif ward.closed and open_ and not ward.check.is_under_way(now_ns):
            evidence, by = "the platform takes work on it again", "the platform"
        elif ward.devices and ids.isdisjoint(ward.devices):
            evidence, by = "its sick GPUs are not there any more", "the inventory"
        ward.closed |= not open_
        if ward.condition == "checked":
            self._release(ward, now_ns, ward.evidence)
        elif evidence:
            ward.evidence, ward.checked_by = evidence, by
            ward.go("checked", now_ns, f"{by}: {evidence}")
        else:
            held = is_held(ward, directory)
            if ward.condition == "cordoned" and not held:
                ward.go("drained", now_ns, "no replica is left on it; it waits for evidence that it is well")
            elif ward.condition == "drained" and held:
                ward.go("cordoned", now_ns, "work was placed on it all the same")

    def _judge(self, ward: Ward, cases: list[Case], now_ns: int, room: int) -> None:
        if not cases:
            self._release(ward, now_ns, "nothing more was seen")
            return
        fault = next((c for c in cases if c.lead.strength == "fault" and c.severity == "critical"), None)
        signs = {s.detector for c in cases for s in c.signs}
        agree = len(signs) >= 2 and any(c.severity == "critical" for c in cases)
        stays = any(c.seen_ns - c.onset_ns >= STAYS_S * NS_PER_S for c in cases)
        if fault is not None or agree:
            why = fault.lead.detector if fault is not None else " and ".join(sorted(signs))
            out = sum(other.condition in OUT for other in self.nodes.values())
            if out < room:
                ward.held = ""
                ward.faulty_ns = max(ward.faulty_ns, *(s.time_ns for c in cases for s in c.signs))
                ward.go("cordoned", now_ns, f"{why}; nothing is placed on it until there is evidence that it is well")
            elif not ward.held:
                ward.held = f"{out} nodes of the cell are out already, and no more may be; a person decides"
                ward.dirty = True
        elif ward.held:
            ward.held, ward.dirty = "", True
        if ward.condition == "suspect" and (stays or len(signs) >= 2 or ward.held):
            ward.go("watched", now_ns, " and ".join(sorted(signs)) or cases[0].lead.detector)

    def _note(self, ward: Ward, cases: list[Case]) -> None:
        """Take note of sick devices, and of the records of faults; one that was not known makes older evidence void."""
        whole = any(case.level == "node" for case in cases)
        for case in cases:
            if case.id not in ward.incidents:
                ward.incidents[case.id], ward.dirty = None, True
            devices = [case.device] if case.device else case.link.split("|") if case.link else []
            for device in () if whole else devices:
                if device not in ward.devices:
                    ward.devices[device], ward.dirty = None, True
            for symptom in case.signs:
                cited = cited_by(symptom)
                if any(name not in ward.known for name in cited):
                    ward.known.update((name, None) for name in cited if len(ward.known) < MOST_CITED)
                    ward.news_ns = max(ward.news_ns, symptom.time_ns)
                new = [name for name in cited if name not in ward.cited]
                if symptom.strength == "fault" and new:
                    ward.cited.update((name, None) for name in new if len(ward.cited) < MOST_CITED)
                    ward.faulty_ns = max(ward.faulty_ns, symptom.time_ns)
        if whole and ward.devices:
            ward.devices, ward.dirty = {}, True

    def _release(self, ward: Ward, now_ns: int, reason: str) -> None:
        if ward.condition not in ("suspect", "watched", "checked"):
            ward.evidence, ward.checked_by = reason, "the inventory"
            ward.go("checked", now_ns, reason)
        ward.go("back", now_ns, reason)
        self.forgiven.update(dict.fromkeys(ward.cited, now_ns))
        while len(self.forgiven) > MOST_FORGIVEN:
            del self.forgiven[next(iter(self.forgiven))]


def cited_by(symptom: Symptom) -> list[str]:
    """Records that a symptom rests on: events where it names some, or else itself."""
    return [e.record for e in symptom.evidence if e.record] or [symptom.record]


def is_held(ward: Ward, directory: Known) -> bool:
    """Whether a replica is on what is sick of a node."""
    inventory = directory.inventories.get(ward.node)
    if inventory is None:
        return False
    rows = {i for i, d in enumerate(inventory.devices) if not ward.devices or d.id in ward.devices}
    return any(rows.intersection(a.devices) for a in inventory.allocations)


def to_check(ward: Ward, directory: Known) -> tuple[str, ...]:
    """The devices that a check takes: all that nobody holds, as a platform cannot choose; none stands for all."""
    inventory = directory.inventories.get(ward.node)
    if not ward.devices or inventory is None:
        return ()
    held = {row for allocation in inventory.allocations for row in allocation.devices}
    free = {d.id for i, d in enumerate(inventory.devices) if i not in held}
    return () if len(free) == len(inventory.devices) else tuple(sorted(free | ward.devices.keys()))


def moved_with(ward: Ward, directory: Known) -> int:
    """GPUs of all that leaves or restarts when the node is left: of replicas on it, and of their whole gangs."""
    inventory = directory.inventories.get(ward.node)
    if inventory is None:
        return 0
    rows = {i for i, d in enumerate(inventory.devices) if not ward.devices or d.id in ward.devices}
    found: set[tuple[str, int]] = set()
    for held in inventory.allocations:
        if rows.intersection(held.devices):
            spec = directory.spec(held.workload)
            gang = spec is not None and (spec.kind == "training" or spec.gang_size > 1)
            parts = directory.replicas(held.workload) if gang else directory.parts(held.workload, held.replica)
            found.update((part.node, row) for part in parts for row in part.devices)
    return len(found)
