"""What decisions hold on a cluster: nodes that are cordoned for the time of a move, and pods that get no traffic.

Each node or pod names its decision, so that any process can give it back once the decision has ended. Nodes that wait
for a check are not included: only a check or a person opens them.
"""

from collections.abc import Iterable, Iterator

from flyball_actuators.platforms.base import Held, PlatformError
from flyball_actuators.platforms.kubernetes.api import MERGE, Api, refused
from flyball_actuators.platforms.kubernetes.cordon import UNTIL, closed_by, closed_by_others, uncordon
from flyball_actuators.platforms.kubernetes.kinds import Object, annotation_of, field_managers_of, moment
from flyball_actuators.platforms.kubernetes.operation import manager
from flyball_actuators.platforms.kubernetes.pods import pod_path
from flyball_actuators.platforms.kubernetes.replicas.going import COST, FIRST_TO_GO
from flyball_actuators.platforms.kubernetes.saga import DRAINING, MARK, SERVING, unmark_pods
from flyball_contracts.nodes.kubernetes import CORDONED

_NODES = "/api/v1/nodes"


def held(api: Api, namespaces: Iterable[str]) -> Iterator[Held]:
    """Nodes and pods that decisions hold.

    If something could not be read, raises :class:`PlatformError` after everything that could be.
    """
    problem = ""
    nodes = api.listed(_NODES, (("fieldSelector", "spec.unschedulable=true"),))
    if not nodes.ok:
        problem = refused(nodes, "listing the cordoned nodes").detail
    for node in nodes.body if nodes.ok else ():
        decision = _cordoned_for(node)
        if decision:
            yield Held(decision, f"{_NODES}/{node['metadata']['name']}", _marked_ns(node, decision))
    for namespace in namespaces:
        pods = api.listed(f"/api/v1/namespaces/{namespace}/pods", (("labelSelector", f"{SERVING}={DRAINING}"),))
        if not pods.ok:
            problem = problem or refused(pods, f"listing the pods of namespace {namespace}").detail
        for pod in pods.body if pods.ok else ():
            decision = _drained_for(pod)
            if decision:
                yield Held(decision, pod_path(namespace, pod["metadata"]["name"]), _marked_ns(pod, decision))
    if problem:
        raise PlatformError(problem)


def give_back(api: Api, thing: Held) -> bool:
    """Open a node or let a pod serve again if the decision still holds it; return whether it did.

    Raises :class:`PlatformError` if it cannot be done now.
    """
    answer = api.get(thing.name)
    if answer.status == 404:
        return False
    if not answer.ok:
        raise PlatformError(refused(answer, f"reading {thing.name}").detail)
    obj: Object = answer.body
    if thing.name.startswith(f"{_NODES}/"):
        if _cordoned_for(obj) != thing.decision:
            return False
        done = uncordon(api, obj, thing.decision)
        if not done.ok:
            raise PlatformError(refused(done, f"uncordoning {thing.name}").detail)
        return True
    if _drained_for(obj) != thing.decision:
        return False
    unmark_pods(api, [obj], thing.decision)
    if annotation_of(obj, COST) == FIRST_TO_GO:
        body = {"metadata": {"annotations": {COST: None}, "uid": obj["metadata"]["uid"]}}
        api.call("PATCH", thing.name, body, (("fieldManager", manager(thing.decision)),), MERGE)
    return True


def _cordoned_for(node: Object) -> str:
    """The decision for whose move Flyball alone has closed a node; empty if there is none."""
    closed = bool(node["spec"].get("unschedulable")) and bool(closed_by(node)) and not closed_by_others(node)
    decision = annotation_of(node, CORDONED)
    return decision if closed and annotation_of(node, UNTIL) == "moved" and _marked_ns(node, decision) else ""


def _drained_for(pod: Object) -> str:
    """The decision for which a pod that stays gets no traffic; empty if there is none."""
    decision = annotation_of(pod, MARK)
    labels: dict[str, str] = pod["metadata"].get("labels") or {}
    drained = labels.get(SERVING) == DRAINING and "deletionTimestamp" not in pod["metadata"]
    return decision if drained and decision and _marked_ns(pod, decision) else ""


def _marked_ns(obj: Object, decision: str) -> int:
    """When a decision has last written to an object, in ns since the Unix epoch; 0 if it has not."""
    name = manager(decision)
    return max(
        (moment(entry.get("time")) for entry in field_managers_of(obj) if entry.get("manager") == name), default=0
    )
