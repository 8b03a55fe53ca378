"""URLs of the views; names from records may contain any character."""

from urllib.parse import quote


def decision_link(decision: str) -> str:
    """View of a decision."""
    return f"/decisions/{quote(decision, safe='')}"


def gpu_link(device: str) -> str:
    """View of a GPU or MIG instance."""
    return f"/gpus/{quote(device, safe='')}"


def node_link(node: str) -> str:
    """View of a node."""
    return f"/nodes/{quote(node, safe='')}"


def workload_link(workload: str) -> str:
    """View of a workload, or of the node that a decision calls ``node:NAME``."""
    if workload.startswith("node:"):
        return node_link(workload.removeprefix("node:"))
    return f"/workloads/{quote(workload, safe='')}"


def incident_link(incident: str) -> str:
    """View of an incident."""
    return f"/incidents/{quote(incident, safe='')}"


def report_link(report: str) -> str:
    """View of one detector's report about one subject."""
    return f"/reports/{quote(report, safe='')}"
