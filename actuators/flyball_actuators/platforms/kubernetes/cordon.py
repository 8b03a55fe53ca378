"""Cordons nodes for decisions, and opens them again; a cordon that another client has set stays.

Annotations on the node name the decision, and what ends the cordon: the move that it is for, or a check of the node.
The API server's field management shows who has closed the node, whatever the annotations show.
"""

from typing import Literal

import msgspec

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.kubernetes.api import MERGE, Answer, Api, refused
from flyball_actuators.platforms.kubernetes.kinds import Object, annotation_of
from flyball_actuators.platforms.kubernetes.operation import manager
from flyball_contracts.nodes.kubernetes import CORDONED, KubernetesNode

UNTIL = "flyball.dev/cordoned-until"
Until = Literal["moved", "checked"]
_TRIES = 8
Query = tuple[tuple[str, str], ...]


def cordon(api: Api, node: str, decision: str, query: Query, until: Until) -> Rejected | None:
    """Cordon a node for a decision; a node that another client has cordoned is left as it is.

    A node that is closed for a move gets the mark of a decision that keeps it closed until a check, so that the end of
    the move does not open the node.
    """
    path = f"/api/v1/nodes/{node}"
    for _ in range(_TRIES):
        answer = api.get(path)
        if not answer.ok:
            return refused(answer, f"reading node {node}")
        takes_over = until == "checked" and annotation_of(answer.body, UNTIL) == "moved"
        if answer.body["spec"].get("unschedulable") and not takes_over:
            return None
        metadata = {
            "annotations": {CORDONED: decision, UNTIL: until},
            "resourceVersion": answer.body["metadata"]["resourceVersion"],
        }
        done = api.call("PATCH", path, {"metadata": metadata, "spec": {"unschedulable": True}}, query, MERGE)
        if done.ok:
            return None
        if done.status != 409:
            return refused(done, f"cordoning node {node}")
    return Rejected(
        "conflict", f"node {node} changed {_TRIES} times while it was cordoned; decide again when it is calm"
    )


def uncordon(api: Api, node: Object, decision: str) -> Answer:
    """Take Flyball's mark off a node as it was read, and open it unless another client has closed it."""
    metadata = {
        "annotations": {CORDONED: None, UNTIL: None},
        "resourceVersion": node["metadata"]["resourceVersion"],
    }
    body: Object = {"metadata": metadata}
    if not closed_by_others(node):
        body["spec"] = {"unschedulable": None}
    path = f"/api/v1/nodes/{node['metadata']['name']}"
    return api.call("PATCH", path, body, (("fieldManager", manager(decision)),), MERGE)


def closed_by_others(node: Object) -> bool:
    """Whether a client that is not Flyball has closed a node, alone or as well."""
    return msgspec.convert(node, KubernetesNode).is_closed_by_others


def closed_by(node: Object) -> set[str]:
    """Field managers that have closed a node; empty if it is open, or if the API server does not report them."""
    return msgspec.convert(node, KubernetesNode).closed_by
