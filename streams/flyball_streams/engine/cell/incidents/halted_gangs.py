"""Proposals to move ranks of a gang that stands still off the node that keeps it waiting.

A hang names no rank, as all ranks wait. A node that is silent or has network errors is by itself no reason to move
work. Both together are a reason: two observations of different origin, in one incident of that node.
"""

from collections.abc import Iterable, Iterator

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Evidence, Proposal, Symptom, Tick
from flyball_streams.engine.cell.incidents.node_evidence import NOT_THE_NODE
from flyball_streams.engine.cell.incidents.open_incident import OpenIncident
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
