"""Proposals for gangs that stand still: to move ranks off the node that keeps them waiting, or to restart the gang.

A hang names no rank, as all ranks wait. A node that is silent or has network errors is by itself no reason to move
work. Both together are a reason: two observations of different origin, in one incident of that node. A gang that stands
still while nothing else shows why is restarted if its owner allows it.
"""

from collections.abc import Iterable, Iterator

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Evidence, Proposal, Symptom, Tick
from flyball_streams.engine.cell.incidents.interventions import SETTLE_S
from flyball_streams.engine.cell.incidents.nodes.node_evidence import NOT_THE_NODE
from flyball_streams.engine.cell.incidents.open_incident import OpenIncident
from flyball_streams.engine.cell.incidents.restarts import MOST_RESTARTS, Restarts
from flyball_streams.engine.fleet_index import FleetIndex, Replica

HANG = "hang"
FRESH_NS = 180 * NS_PER_S
"""A hang or a sign that was reported longer ago may be over; one that lasts is reported again."""
CONFIDENCE = 0.95


def moves_off(cell: str, incidents: Iterable[OpenIncident], directory: FleetIndex, tick: Tick) -> Iterator[Proposal]:
    """Proposals of a tick, one for each rank on a node with such an incident."""
    for incident in incidents:
        if incident.status != "open" or incident.level != "node" or incident.cause in NOT_THE_NODE:
            continue
        inventory = directory.inventories.get(incident.node)
        fresh = [s for s in incident.symptoms.values() if tick.end_ns - s.time_ns <= FRESH_NS]
        signs = [s for s in fresh if s.strength != "effect" and s.node == incident.node]
        hangs = {s.workload: s for s in fresh if s.detector == HANG and s.gang}
        if inventory is None or not signs or not hangs:
            continue
        for workload, hang in hangs.items():
            spec = directory.spec(workload)
            for rank in directory.staying(workload, incident.node) if spec is not None and spec.is_gang else ():
                if rank.devices:
                    yield _proposal(cell, incident, rank, inventory.devices[rank.devices[0]].id, (hang, signs[0]), tick)


def restarts(
    cell: str, hangs: Iterable[tuple[Symptom, OpenIncident]], before: Restarts, directory: FleetIndex, tick: Tick
) -> Iterator[Proposal]:
    """Proposals to restart workloads of which a hang was reported in this tick, each with its incident.

    There is none while the incident is silenced, or has a cause: a program that has crashed starts by itself, work
    leaves what is faulty, and what follows from a decision of ours is over within minutes. Nor is there one if restarts
    and checks of the nodes have not helped ``before``.
    """
    for hang, incident in hangs:
        spec = directory.spec(hang.workload)
        after_s = spec.restart_hung_after_s if spec is not None else None
        lasts_s = (hang.time_ns - hang.since_ns) / NS_PER_S
        if after_s is None or lasts_s < after_s or incident.status != "open":
            continue
        unexplained = "unknown", "intervention" if lasts_s >= SETTLE_S else ""
        count = before.count(hang.workload)
        if incident.silence or incident.cause not in unexplained or count >= MOST_RESTARTS:
            continue
        again = "; it was restarted within the hour, so its nodes are checked before it starts" if count else ""
        yield Proposal(
            id=record_id("Proposal", "restart", cell, hang.workload, tick.index),
            action="restart",
            workload=hang.workload,
            reason=f"it has stood still for {lasts_s:.0f} s, and nothing shows where that comes from{again}",
            confidence=CONFIDENCE,
            evidence=(
                Evidence(name=HANG, value=lasts_s, unit="s", record=hang.record),
                Evidence(name="incident", value=1.0, record=incident.id),
            ),
        )


def _proposal(
    cell: str, incident: OpenIncident, rank: Replica, device: str, shown: tuple[Symptom, Symptom], tick: Tick
) -> Proposal:
    hang, sign = shown
    return Proposal(
        id=record_id("Proposal", "migrate", cell, device, tick.index),
        action="migrate",
        workload=rank.workload,
        reason=f"its gang stands still, and node {rank.node} has a sign of its own: {sign.detector}",
        replica=rank.name,
        node=rank.node,
        device=device,
        confidence=CONFIDENCE,
        evidence=(
            Evidence(name=HANG, value=1.0, record=hang.record),
            Evidence(name=sign.detector, value=1.0, record=sign.record),
            Evidence(name="incident", value=1.0, record=incident.id),
        ),
    )
