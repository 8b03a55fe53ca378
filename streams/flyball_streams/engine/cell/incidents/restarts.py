"""Restarts of workloads that hang, and checks of their nodes if a restart did not help.

Which node a gang waits for cannot be seen while all ranks wait. A hang that is back within an hour of a restart may
have its cause on a node. So the nodes of the gang are checked while it is stopped for the second time, until one fails,
and it starts without that one. It is not restarted a third time until an hour after the last start.
"""

from collections.abc import Container, Iterator
from typing import NamedTuple

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Check, Inventory, Outcome, Preempt, Scale
from flyball_contracts.records.subjects import node_of
from flyball_streams.engine.cell.incidents.interventions import VOID
from flyball_streams.engine.cell.incidents.nodes.checks import NodeCheck
from flyball_streams.engine.cell.incidents.nodes.faulty_devices import address_of, are_present, rows_of, to_check
from flyball_streams.engine.fleet_index import FleetIndex

REST_S = 3600.0
"""After this time without a hang a restart has helped."""
MOST_RESTARTS = 2
CHECKED_S = 900.0
"""A stopped workload waits this long for the checks of its nodes, then starts on the others."""
SEEN_S = 120.0
"""The inventory of a node that still lists replicas so long after they have stopped is not its present one."""
MOST_BEGUN, BEGUN_WITHIN_S = 30, 600.0
"""Half of the decisions that the actuator allows in a cell by default, so that others are not refused."""
KEPT_S = 3600.0
"""The actuator may accept a check late: it is not forgotten for so long."""
OF_ONE_NODE = frozenset({"conflict", "expired", "limit", "platform", "protected", "rate", "stale", "unknown_target"})
"""Refusals after which another node may be checked; any other ends the search, and so do three in a row."""
MOST_REFUSED = 3
WHY = "a gang hung on it again after a restart; it takes work again if it passes"


class Restart(msgspec.Struct):
    """Restarts of one workload, ``count`` so far, the last at ``started_ns``.

    ``stop`` is the decision of ``stop_ns`` to stop it, to start it again; it is empty once it was started. Since
    ``stopped_ns`` it is known to have stopped (0: it is not). ``nodes`` are those still to check until it starts, with
    the devices of its ranks and their PCI addresses; ``refused`` is how many checks in a row were. ``incident`` is the
    one of its hang.
    """

    count: int = 0
    started_ns: int = 0
    stop: str = ""
    stop_ns: int = 0
    stopped_ns: int = 0
    nodes: dict[str, dict[str, str]] = {}
    refused: int = 0
    incident: str = ""


class GangCheck(msgspec.Struct):
    """The check of a node on which a ``workload`` hung, of these ``devices``; ``begun`` as soon as it is accepted."""

    workload: str
    devices: dict[str, str]
    incident: str
    check: NodeCheck
    begun: bool = False


class Failure(NamedTuple):
    """A check that a node has not passed."""

    node: str
    gang: GangCheck
    message: str


class Restarts(msgspec.Struct):
    """Restarts by workload, the checks that may still end, by node, and when the last ones began, ns."""

    known: dict[str, Restart] = {}
    checks: dict[str, GangCheck] = {}
    began: list[int] = []

    def forget(self, now_ns: int, directory: FleetIndex) -> None:
        """Drop restarts of more than an hour ago, and those from before a clock was set back."""

        def counts(name: str, it: Restart) -> bool:
            age_ns = now_ns - max(it.started_ns, it.stop_ns)
            stands = bool(it.stop and it.stopped_ns) and directory.spec(name) is not None
            return age_ns >= 0 and (stands or age_ns < REST_S * NS_PER_S)

        self.known = {name: it for name, it in self.known.items() if counts(name, it)}

    def count(self, workload: str) -> int:
        """How often a workload was restarted, each time within an hour of the last."""
        known = self.known.get(workload)
        return 0 if known is None else known.count

    def stop(self, decision: Preempt, incident: str, directory: FleetIndex) -> None:
        """Note that a workload is stopped to be started again."""
        it = self.known.setdefault(decision.workload, Restart())
        it.stop, it.stop_ns, it.stopped_ns, it.incident = decision.id, decision.time_ns, 0, incident
        it.nodes, it.refused = {}, 0
        for rank in directory.replicas(decision.workload) if it.count else ():
            inventory = directory.inventories[rank.node]
            for row in rank.devices:
                device = inventory.devices[row].id
                it.nodes.setdefault(rank.node, {})[device] = address_of(device, inventory)

    def start(self, decision: Scale) -> None:
        """Note that a workload is started, which ends its restart if it was stopped for one."""
        it = self.known.get(decision.workload)
        if it is not None and it.stop and not decision.replicas_before:
            it.stop, it.nodes, it.count, it.started_ns = "", {}, it.count + 1, decision.time_ns

    def receive(self, outcome: Outcome) -> Failure | None:
        """Apply an outcome; return the check that a node has not passed."""
        if outcome.code == "duplicate":
            return None
        it = self.known.get(outcome.workload)
        if it is not None and it.stop == outcome.decision:
            if outcome.status == "done":
                it.stopped_ns = outcome.time_ns
            elif outcome.status in VOID:
                it.nodes = {}
                it.stop = it.stop if outcome.unknown else ""
        node = node_of(outcome.workload)
        gang = self.checks.get(node)
        if gang is None or gang.check.decision != outcome.decision:
            return None
        message = gang.check.receive(outcome)
        if not outcome.final:
            gang.begun = True
            if gang.workload in self.known:
                self.known[gang.workload].refused = 0
            return None
        del self.checks[node]
        if outcome.status == "failed":
            return self._failed(node, gang, message)
        if outcome.status in ("refused", "planned"):
            self._refused(gang.workload, outcome)
        return None

    def due(
        self, cell: str, now_ns: int, lives_ns: int, most: int, skip: Container[str], directory: FleetIndex
    ) -> Iterator[Check]:
        """Checks of nodes that stopped workloads have left, as long as no more than ``most`` are under way.

        Nodes in ``skip``, nodes that are gone and nodes on which other work runs by now are not checked, and none is if
        there can be no check.
        """
        self.began = [at for at in self.began if 0 <= now_ns - at < BEGUN_WITHIN_S * NS_PER_S]
        under_way = self.under_way(now_ns)
        for name, it in sorted(self.known.items()):
            if it.nodes and not it.stopped_ns and not directory.held(name).replicas:
                it.stopped_ns = now_ns
            if not it.stopped_ns or now_ns - it.stop_ns >= CHECKED_S * NS_PER_S:
                continue
            if most <= 0 or directory.spec(name) is None:
                it.nodes = {}
            listed_ns = it.stopped_ns + round(SEEN_S * NS_PER_S)
            for node, devices in sorted(it.nodes.items()):
                inventory = directory.inventories.get(node)
                if inventory is None or node in skip or not are_present(devices, inventory):
                    del it.nodes[node]
                    continue
                holders = _holders(devices, inventory)
                if holders - {name} or (holders and now_ns >= listed_ns):
                    del it.nodes[node]
                elif node in self.checks:
                    if node not in under_way:  # its outcome may still come
                        del it.nodes[node]
                elif not holders and len(under_way) < most and len(self.began) < MOST_BEGUN:
                    del it.nodes[node]
                    self.began.append(now_ns)
                    under_way.add(node)
                    gang = self.checks[node] = GangCheck(name, devices, it.incident, NodeCheck())
                    used = to_check(devices, inventory)
                    yield gang.check.start(cell, node, used, (it.incident,), now_ns, lives_ns, WHY)

    def lapsed(self, now_ns: int) -> list[Failure]:
        """Remove old checks without a result; return those that had begun, as their nodes may be closed."""
        lost = [
            (node, gang)
            for node, gang in self.checks.items()
            if not gang.check.is_under_way(now_ns)
            and (gang.begun or not 0 <= now_ns - gang.check.decided_ns < KEPT_S * NS_PER_S)
        ]
        for node, _ in lost:
            del self.checks[node]
        return [self._failed(node, gang, "a check of it has no result") for node, gang in lost if gang.begun]

    def under_way(self, now_ns: int) -> set[str]:
        """Nodes whose check is under way: the platform closes them meanwhile."""
        return {node for node, gang in self.checks.items() if gang.check.is_under_way(now_ns)}

    def holds(self, workload: str, now_ns: int) -> bool:
        """Whether a stopped workload waits for checks of its nodes."""
        it = self.known.get(workload)
        if it is None or not it.stop or now_ns - it.stop_ns >= CHECKED_S * NS_PER_S:
            return False
        return bool(it.nodes) or any(self.checks[node].workload == workload for node in self.under_way(now_ns))

    def to_check(self) -> set[str]:
        """Nodes of stopped workloads that are still to check."""
        return {node for it in self.known.values() for node in it.nodes}

    def incidents(self, now_ns: int) -> set[str]:
        """Incidents of workloads that are stopped for a restart or wait for a check: they stay open until that ends."""
        stopped = {it.incident for it in self.known.values() if it.stop and it.stopped_ns}
        return stopped | {self.checks[node].incident for node in self.under_way(now_ns)}

    def end(self, workload: str) -> None:
        """Check no further node of a workload."""
        if workload in self.known:
            self.known[workload].nodes = {}

    def _failed(self, node: str, gang: GangCheck, message: str) -> Failure:
        """A check that has failed: a node for which the gang may have waited is found."""
        self.end(gang.workload)
        return Failure(node, gang, message)

    def _refused(self, workload: str, outcome: Outcome) -> None:
        """End the search if no node can be checked; a platform that refuses some in a row refuses all."""
        it = self.known.get(workload)
        if it is not None:
            it.refused += 1
            if outcome.code not in OF_ONE_NODE or it.refused >= MOST_REFUSED:
                self.end(workload)


def _holders(devices: dict[str, str], inventory: Inventory) -> set[str]:
    """Workloads whose replicas are on these devices."""
    rows = rows_of(devices, inventory)
    return {a.workload for a in inventory.allocations if rows.intersection(a.devices)}
