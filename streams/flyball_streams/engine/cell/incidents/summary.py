"""The published record of an incident, with its summary."""

from flyball_contracts.records import Incident
from flyball_streams.engine.cell.incidents.open_incident import RANK, SEVERITY, WIDTH, OpenIncident
from flyball_streams.engine.fleet_index import FleetIndex

MOST_SHOWN = 16
_CAUSES = {
    "gpu": "GPU fault", "gpu_memory": "GPU memory pressure", "thermal": "overheating", "power": "power problem",
    "pcie": "PCIe fault", "nvlink": "NVLink fault", "network": "network problem", "storage": "storage problem",
    "host": "host problem", "neighbour": "contention by a neighbour", "driver": "driver problem",
    "application": "error of the application", "reclaimed": "the cloud takes it back",
    "telemetry": "telemetry problem", "intervention": "effect of our own decision", "unknown": "unknown cause",
}  # fmt: skip


def incident_record(incident: OpenIncident, cell: str, directory: FleetIndex, now_ns: int) -> Incident:
    """The record of an incident as it stands; this counts as a publication."""
    incident.revision += 1
    incident.published_ns, incident.dirty = now_ns, False
    order = sorted(
        incident.symptoms.values(), key=lambda s: (-RANK[s.strength], s.since_ns, s.node, s.device, s.detector)
    )
    shown = [incident.lead, *(s for s in order if s != incident.lead)][:MOST_SHOWN]
    gpus, peers = _affected(incident, directory)
    actions = sorted(incident.actions.values(), key=lambda a: (a.time_ns, a.decision))
    return Incident(
        id=incident.id, cell=cell, revision=incident.revision, status=incident.status, severity=incident.severity,
        cause=incident.cause, strength=incident.lead.strength, level=incident.level, onset_ns=incident.onset_ns,
        seen_ns=incident.seen_ns, time_ns=now_ns, summary=_summary(incident, cell, gpus, directory),
        node=incident.node, device=incident.device, link=incident.link, workload=incident.workload,
        model=incident.model, score=incident.lead.score, symptom_count=incident.count, symptoms=tuple(shown),
        gpus_affected=gpus, devices=tuple(sorted(incident.devices)[:MOST_SHOWN]),
        nodes=tuple(sorted(incident.nodes)[:MOST_SHOWN]), workloads=tuple(sorted(incident.workloads)[:MOST_SHOWN]),
        peers=tuple(peers[:MOST_SHOWN]), actions=tuple(actions[-MOST_SHOWN:]),
        ended_ns=None if incident.status == "open" else incident.seen_ns, merged_into=incident.merged_into,
        acknowledged_by=incident.acknowledged_by, silence=incident.silence, label=incident.label,
        domain=incident.domain,
    )  # fmt: skip


def severity_order(incident: OpenIncident) -> tuple[int, int, int, int, str]:
    """Sort key for publication: by severity, strength of evidence, width of the place, and age."""
    return (
        -SEVERITY[incident.severity],
        -RANK[incident.lead.strength],
        -WIDTH[incident.level],
        incident.onset_ns,
        incident.id,
    )


def _summary(incident: OpenIncident, cell: str, gpus: int, directory: FleetIndex) -> str:
    where = {
        "gpu": f"GPU {_row(incident.device, incident.node, directory)} of {incident.node}",
        "link": f"NVLink of GPUs {' and '.join(_row(d, incident.node, directory) for d in incident.link.split('|'))} "
        f"of {incident.node}",
        "node": f"node {incident.node}", "workload": f"workload {incident.workload}", "rack": f"rack {incident.domain}",
        "leaf": f"leaf switch {incident.domain}", "cell": f"cell {cell}",
    }[incident.level]  # fmt: skip
    symptom = incident.lead.detector + (f" ({incident.lead.text})" if incident.lead.text else "")
    if incident.intervention:
        action = incident.actions[incident.intervention]
        return f"{where}: {symptom} after our own {action.type}, decision {action.decision}"
    affected = f"; {gpus} GPUs are affected" if gpus > 1 else ""
    others = f", on {len(incident.nodes)} nodes" if incident.level in ("rack", "leaf", "cell") else ""
    if incident.is_effect and len(incident.workloads) > 1:
        others = f", at once in {len(incident.workloads)} workloads"
    return f"{where}: {_CAUSES[incident.cause]}, by {symptom}{others}{affected}"


def _row(device: str, node: str, directory: FleetIndex) -> str:
    """Row of a device on its node, or its id if the row is unknown."""
    inventory = directory.inventories.get(node)
    rows = (i for i, d in enumerate(inventory.devices if inventory else ()) if d.id == device)
    return str(next(rows, device))


def _affected(incident: OpenIncident, directory: FleetIndex) -> tuple[int, list[str]]:
    """Number of affected GPUs, with those of whole gangs, and the other nodes of these gangs."""
    rows: set[tuple[str, int]] = set()
    for name in {**incident.workloads, **incident.gangs}:
        spec = directory.spec(name)
        if spec is not None and spec.is_gang:
            rows.update((r.node, row) for r in directory.replicas(name) for row in r.devices)
    peers = sorted({node for node, _ in rows} - incident.nodes.keys())
    for device, node in incident.devices.items():
        inventory = directory.inventories.get(node)
        rows.update((node, i) for i, d in enumerate(inventory.devices if inventory else ()) if d.id == device)
    for node in {"node": [incident.node], "rack": incident.nodes, "leaf": incident.nodes}.get(incident.level, ()):
        inventory = directory.inventories.get(node)
        rows.update((node, i) for i in range(len(inventory.devices) if inventory else 0))
    return len(rows), peers
