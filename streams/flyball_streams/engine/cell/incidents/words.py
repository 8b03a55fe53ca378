"""An incident as people read it."""

from flyball_contracts.records import Incident
from flyball_streams.engine.cell.incidents.case import RANK, SEVERITY, WIDTH, Case
from flyball_streams.engine.known import Known

MOST_SHOWN = 16
_CAUSES = {
    "gpu": "GPU fault", "gpu_memory": "GPU memory pressure", "thermal": "overheating", "power": "power problem",
    "pcie": "PCIe fault", "nvlink": "NVLink fault", "network": "network problem", "storage": "storage problem",
    "host": "host problem", "neighbour": "contention by a neighbour", "driver": "driver problem",
    "application": "error of the application", "reclaimed": "the cloud takes it back",
    "telemetry": "telemetry problem", "intervention": "effect of our own decision", "unknown": "unknown cause",
}  # fmt: skip


def incident_of(case: Case, cell: str, directory: Known, now_ns: int) -> Incident:
    """The record of an incident as it stands; it counts as said."""
    case.published += 1
    case.said_ns, case.dirty = now_ns, False
    order = sorted(case.symptoms.values(), key=lambda s: (-RANK[s.strength], s.since_ns, s.node, s.device, s.detector))
    shown = [case.lead, *(s for s in order if s != case.lead)][:MOST_SHOWN]
    gpus, peers = _reach(case, directory)
    actions = sorted(case.actions.values(), key=lambda a: (a.time_ns, a.decision))
    return Incident(
        id=case.id, cell=cell, revision=case.published, status=case.status, severity=case.severity, cause=case.cause,
        strength=case.lead.strength, level=case.level, onset_ns=case.onset_ns, seen_ns=case.seen_ns, time_ns=now_ns,
        summary=_summary(case, cell, gpus, directory), node=case.node, device=case.device, link=case.link,
        workload=case.workload, model=case.model, score=case.lead.score, symptom_count=case.count,
        symptoms=tuple(shown), gpus_affected=gpus, devices=tuple(sorted(case.devices)[:MOST_SHOWN]),
        nodes=tuple(sorted(case.nodes)[:MOST_SHOWN]), workloads=tuple(sorted(case.workloads)[:MOST_SHOWN]),
        peers=tuple(peers[:MOST_SHOWN]), actions=tuple(actions[-MOST_SHOWN:]),
        ended_ns=None if case.status == "open" else case.seen_ns, merged_into=case.merged_into,
        acknowledged_by=case.acknowledged_by, silence=case.silence, label=case.label, domain=case.domain,
    )  # fmt: skip


def worst_first(case: Case) -> tuple[int, int, int, int, str]:
    """Order in which incidents are told: by severity, by how much is known, by the width of the place, by age."""
    return -SEVERITY[case.severity], -RANK[case.lead.strength], -WIDTH[case.level], case.onset_ns, case.id


def _summary(case: Case, cell: str, gpus: int, directory: Known) -> str:
    where = {
        "gpu": f"GPU {_row(case.device, case.node, directory)} of {case.node}",
        "link": f"NVLink of GPUs {' and '.join(_row(d, case.node, directory) for d in case.link.split('|'))} "
        f"of {case.node}",
        "node": f"node {case.node}", "workload": f"workload {case.workload}", "rack": f"rack {case.domain}",
        "leaf": f"leaf switch {case.domain}", "cell": f"cell {cell}",
    }[case.level]  # fmt: skip
    said = case.lead.detector + (f" ({case.lead.text})" if case.lead.text else "")
    if case.intervention:
        action = case.actions[case.intervention]
        return f"{where}: {said} after our own {action.type}, decision {action.decision}"
    reach = f"; {gpus} GPUs are affected" if gpus > 1 else ""
    others = f", on {len(case.nodes)} nodes" if case.level in ("rack", "leaf", "cell") else ""
    return f"{where}: {_CAUSES[case.cause]}, by {said}{others}{reach}"


def _row(device: str, node: str, directory: Known) -> str:
    """How people call a device: by its row on its node, where that is known."""
    inventory = directory.inventories.get(node)
    rows = (i for i, d in enumerate(inventory.devices if inventory else ()) if d.id == device)
    return str(next(rows, device))


def _reach(case: Case, directory: Known) -> tuple[int, list[str]]:
    """GPUs that are affected, with those of whole gangs, and the other nodes on which these are."""
    rows: set[tuple[str, int]] = set()
    for name in {**case.workloads, **case.gangs}:
        spec = directory.spec(name)
        if spec is not None and (spec.kind == "training" or spec.gang_size > 1):
            rows.update((r.node, row) for r in directory.replicas(name) for row in r.devices)
    peers = sorted({node for node, _ in rows} - case.nodes.keys())
    for device, node in case.devices.items():
        inventory = directory.inventories.get(node)
        rows.update((node, i) for i, d in enumerate(inventory.devices if inventory else ()) if d.id == device)
    for node in {"node": [case.node], "rack": case.nodes, "leaf": case.nodes}.get(case.level, ()):
        inventory = directory.inventories.get(node)
        rows.update((node, i) for i in range(len(inventory.devices) if inventory else 0))
    return len(rows), peers
