"""Restarts of workloads that hang, and checks of their nodes if a restart did not help.

Which node a gang waits for cannot be seen while all ranks wait. A hang that is back within an hour of a restart may
have its cause on a node. So the nodes of the gang are checked while it is stopped for the second time, until one fails,
and it starts without that one. It is not restarted a third time within the hour.
"""

from collections.abc import Container, Iterator
from typing import NamedTuple

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Check, Inventory, Outcome, Preempt, Scale
from flyball_contracts.records.subjects import node_of
from flyball_streams.engine.cell.incidents.interventions import VOID
from flyball_streams.engine.cell.incidents.nodes.checks import NodeCheck
from flyball_streams.engine.cell.incidents.nodes.faulty_devices import are_present, rows_of, to_check
from flyball_streams.engine.fleet_index import FleetIndex

REST_S = 3600.0
"""After this time without a hang a restart has helped."""
MOST_RESTARTS = 2
CHECKED_S = 900.0
"""A stopped workload waits this long for the checks of its nodes, then starts on the others."""
SEEN_S = 120.0
"""The inventory of a node that still lists replicas so long after they have stopped is not its present one."""
MOST_A_MINUTE = 30
"""Half of what the actuator allows in a cell by default, so that other decisions are not refused."""
WHY = "a gang hung on it again after a restart; it takes work again if it passes"


class Restart(msgspec.Struct):
    """Restarts of one workload, ``count`` so far, the last at ``started_ns``.

    ``stop`` is the decision of ``stop_ns`` to stop it, to start it again; it is empty once it was started. Since
    ``stopped_ns`` it is known to have stopped (0: it is not). ``nodes`` are those still to check until it starts, with
    the devices of its ranks, and ``incident`` is the one of its hang.
    """

    count: int = 0
    started_ns: int = 0
    stop: str = ""
    stop_ns: int = 0
    stopped_ns: int = 0
    nodes: dict[str, list[str]] = {}
    incident: str = ""


class GangCheck(msgspec.Struct):
    """The check of a node on which a ``workload`` hung, of these ``devices``; ``begun`` as soon as it is accepted."""

    workload: str
    devices: list[str]
    incident: str
    check: NodeCheck
    begun: bool = False


class Failure(NamedTuple):
    """A check that a node has not passed."""

    node: str
    gang: GangCheck
    message: str


class Restarts(msgspec.Struct):
    """Restarts by workload, the checks that may still end, by node, and when those of the last minute began, ns."""

    known: dict[str, Restart] = {}
    checks: dict[str, GangCheck] = {}
    began: list[int] = []

    def forget(self, now_ns: int) -> None:
        """Drop restarts of more than an hour ago, and those from before a clock was set back."""
        rest_ns = round(REST_S * NS_PER_S)
        self.known = {
            name: it for name, it in self.known.items() if 0 <= now_ns - max(it.started_ns, it.stop_ns) < rest_ns
        }

    def count(self, workload: str) -> int:
        """How often a workload was restarted within the hour."""
        known = self.known.get(workload)
        return 0 if known is None else known.count

    def stop(self, decision: Preempt, incident: str, directory: FleetIndex) -> None:
        """Note that a workload is stopped to be started again."""
        it = self.known.setdefault(decision.workload, Restart())
        it.stop, it.stop_ns, it.stopped_ns, it.incident, it.nodes = decision.id, decision.time_ns, 0, incident, {}
        if not it.count:
            return
        for rank in directory.replicas(decision.workload):
            inventory = directory.inventories.get(rank.node)
            ids = [inventory.devices[row].id for row in rank.devices] if inventory is not None else []
            if ids:
                it.nodes.setdefault(rank.node, []).extend(ids)

    def start(self, decision: Scale) -> None:
        """Note that a workload is started, which ends its restart if it was stopped for one."""
        it = self.known.get(decision.workload)
        if it is not None and it.stop and not decision.replicas_before:
            it.stop, it.nodes, it.count, it.started_ns = "", {}, it.count + 1, decision.time_ns

    def receive(self, outcome: Outcome) -> Failure | None:
        """Apply an outcome; return the check that a node has not passed."""
        it = self.known.get(outcome.workload)
        if it is not None and it.stop == outcome.decision:
            if outcome.status == "done":
                it.stopped_ns = outcome.time_ns
            elif outcome.status in VOID:
                it.nodes = {}
        gang = self.checks.get(node_of(outcome.workload))
        if gang is None or gang.check.decision != outcome.decision:
            return None
        message = gang.check.receive(outcome)
        gang.begun |= not outcome.final
        if not outcome.final:
            return None
        node = node_of(outcome.workload)
        del self.checks[node]
        if outcome.code == "unsupported":  # nor would another check be
            self._end(gang.workload)
        return self._failed(node, gang, message) if outcome.status == "failed" else None

    def due(
        self, cell: str, now_ns: int, lives_ns: int, most: int, skip: Container[str], directory: FleetIndex
    ) -> Iterator[Check]:
        """Checks of nodes that stopped workloads have left, as long as no more than ``most`` are under way.

        Nodes in ``skip``, nodes that are gone and nodes on which other work runs by now are not checked, and none is if
        there can be no check.
        """
        self.began = [at for at in self.began if 0 <= now_ns - at < 60 * NS_PER_S]
        for name, it in sorted(self.known.items()):
            if it.nodes and not it.stopped_ns and not directory.held(name).replicas:
                it.stopped_ns = now_ns
            if not it.stopped_ns or now_ns - it.stop_ns >= CHECKED_S * NS_PER_S:
                continue
            if most <= 0:
                it.nodes = {}
            listed_ns = it.stopped_ns + round(SEEN_S * NS_PER_S)
            for node, devices in sorted(it.nodes.items()):
                inventory = directory.inventories.get(node)
                if inventory is None or node in skip or node in self.checks or not are_present(devices, inventory):
                    del it.nodes[node]
                    continue
                holders = _holders(devices, inventory)
                if holders - {name} or (holders and now_ns >= listed_ns):
                    del it.nodes[node]
                elif not holders and len(self.checks) < most and len(self.began) < MOST_A_MINUTE:
                    del it.nodes[node]
                    self.began.append(now_ns)
                    gang = self.checks[node] = GangCheck(name, devices, it.incident, NodeCheck())
                    used = to_check(devices, inventory)
                    yield gang.check.start(cell, node, used, (it.incident,), now_ns, lives_ns, WHY)

    def lapsed(self, now_ns: int) -> list[Failure]:
        """Remove the checks without a result; return those that had begun, as their nodes may be closed."""
        lost = [(node, gang) for node, gang in self.checks.items() if not gang.check.is_under_way(now_ns)]
        for node, _ in lost:
            del self.checks[node]
        return [self._failed(node, gang, "a check of it has no result") for node, gang in lost if gang.begun]

    def holds(self, workload: str, now_ns: int) -> bool:
        """Whether a stopped workload waits for checks of its nodes."""
        it = self.known.get(workload)
        if it is None or not it.stop or now_ns - it.stop_ns >= CHECKED_S * NS_PER_S:
            return False
        return bool(it.nodes) or any(gang.workload == workload for gang in self.checks.values())

    def _failed(self, node: str, gang: GangCheck, message: str) -> Failure:
        """A check that has failed: the node that the gang waited for is found, and no other is checked."""
        self._end(gang.workload)
        return Failure(node, gang, message)

    def _end(self, workload: str) -> None:
        if workload in self.known:
            self.known[workload].nodes = {}

    def incidents(self) -> set[str]:
        """Incidents of which a check is under way: they stay open until it ends."""
        return {gang.incident for gang in self.checks.values()}


def _holders(devices: list[str], inventory: Inventory) -> set[str]:
    """Workloads whose replicas are on these devices."""
    rows = rows_of(devices, inventory)
    return {a.workload for a in inventory.allocations if rows.intersection(a.devices)}
