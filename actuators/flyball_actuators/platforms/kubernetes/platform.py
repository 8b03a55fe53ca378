"""One Kubernetes cluster as a platform; see :class:`KubernetesPlatform`."""

import time
from collections.abc import Iterator

import msgspec

from flyball_actuators.platforms.base import (
    Capabilities,
    Done,
    Failed,
    Handle,
    Held,
    Progress,
    Promises,
    Rejected,
    Running,
)
from flyball_actuators.platforms.kubernetes.api import Api
from flyball_actuators.platforms.kubernetes.check import Checks
from flyball_actuators.platforms.kubernetes.holding import give_back, held
from flyball_actuators.platforms.kubernetes.migrate import Migrations
from flyball_actuators.platforms.kubernetes.operation import OVERWRITTEN, decode
from flyball_actuators.platforms.kubernetes.pods import node_of_pod, nodes_of_pods, own_pod, pods_of
from flyball_actuators.platforms.kubernetes.replicas.count import count, find_count, poll_count, take_back_count
from flyball_actuators.platforms.kubernetes.resize import find_resize, poll_resize, resize, resources_of
from flyball_actuators.platforms.kubernetes.saga import gang_of
from flyball_actuators.platforms.kubernetes.targets import Target, Targets, unless_forbidden, version_of
from flyball_contracts.config import PlatformConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import AnyDecision, Check, Migrate, Scale, SubjectState


class KubernetesPlatform:
    """Carries out decisions on the controllers of some namespaces.

    A workload is the controller with annotation ``flyball.dev/workload: NAME`` or, without the annotation, the one
    called ``namespace/name``; a replica is a pod. Every write states the resource version it is based on, and uses a
    field manager of its own for each decision, by which it can be found.
    """

    name = "kubernetes"
    capabilities = Capabilities(
        kinds=frozenset({"Scale", "Migrate", "Preempt", "Check"}),
        tracks=True,
        about=frozenset({"workload", "node"}),
        promises=Promises(
            dry_run="platform", victims=True, checkpoint="confirmed", load="labelled", rollback=True, gang=True
        ),
    )

    def __init__(self, entry: PlatformConfig, where: str = "platform") -> None:
        if not entry.namespaces:
            raise ConfigError(f"{where}.namespaces: none is named; list those whose workloads Flyball may command")
        self._api, self._namespaces = Api(entry.kubeconfig, entry.timeout_s, where), entry.namespaces
        self._targets = Targets(self._api, entry.namespaces)
        self._migrations = Migrations(self._api)
        self._checks = Checks(self._api, entry.check, where)

    def observe(self, decision: AnyDecision) -> SubjectState | Rejected:
        """Replicas of the controller, and the nodes of the pods that the decision names, which it must own."""
        if isinstance(decision, Check):
            return self._checks.observe(decision)
        found = self._targets.find(decision.workload)
        if isinstance(found, Rejected):
            return found
        target, obj = found
        nodes: dict[str, str] = {}
        for replica in decision.named_replicas:
            pod = own_pod(self._api, target, obj["metadata"]["uid"], replica)
            if isinstance(pod, Rejected):
                return pod
            if pod is None:
                continue
            nodes[replica] = node_of_pod(pod)
            if isinstance(decision, Migrate):  # its gang goes with it, and counts
                gang = gang_of(self._api, target, obj, pod)
                if isinstance(gang, Rejected):
                    return gang
                nodes |= {one["metadata"]["name"]: node_of_pod(one) for one in gang}
        resources = None
        if isinstance(decision, Scale) and decision.resources is not None:
            pods = pods_of(self._api, target, obj)
            if isinstance(pods, Rejected):
                return pods
            sizes = [resources_of(pod) for pod in pods]
            resources = sizes[0] if sizes and all(size == sizes[0] for size in sizes) else None
        shown = target.controller.status(obj)
        return SubjectState(
            replicas=shown.replicas,
            ready=shown.ready,
            nodes=nodes,
            resources=resources,
            suspended=shown.suspended,
            version=version_of(obj),
        )

    def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
        """Apply the decision if the controller's specification is unchanged since it was observed."""
        if isinstance(decision, Check):
            return self._checks.submit(decision, observed, dry_run=dry_run)
        found = self._targets.find(decision.workload)
        if isinstance(found, Rejected):
            return found
        target, obj = found
        if version_of(obj) != observed.version:
            return Rejected("conflict", f"{target} was changed since it was observed; decide again on what it is now")
        if isinstance(decision, Migrate):
            return self._migrations.submit(target, obj, decision, time.time_ns(), dry_run=dry_run)
        if isinstance(decision, Scale):
            problem = _unsupported(target, decision)
            if problem is not None:
                return problem
            if decision.resources is not None:
                return resize(self._api, target, obj, decision, decision.resources, dry_run=dry_run)
        return count(self._api, target, obj, decision, time.time_ns(), dry_run=dry_run)

    def poll(self, handle: Handle) -> Progress:
        """Progress as the cluster shows it; repeats an eviction that a disruption budget blocked."""
        if handle.operation == OVERWRITTEN:
            return Failed(f"unknown outcome: {handle.answer}")
        operation = decode(handle.operation)
        if operation.verb == "migrate":
            return self._migrations.poll(operation, time.time_ns())
        if operation.verb == "check":
            return self._checks.poll(operation, time.time_ns())
        if operation.verb == "resize":
            return poll_resize(self._api, operation, time.time_ns())
        progress = poll_count(self._api, operation, time.time_ns(), rollback=True)
        if not isinstance(progress, Done):
            return progress
        nodes = nodes_of_pods(self._api, operation.namespace, handle.expected.nodes)
        return progress._replace(observed=msgspec.structs.replace(progress.observed, nodes=nodes))

    def take_back(self, handle: Handle) -> Progress | None:
        """Let pods serve on, and open their node, if all of them are still there."""
        if handle.operation == OVERWRITTEN:
            return None
        operation = decode(handle.operation)
        if operation.verb == "migrate":
            return self._migrations.take_back(operation)
        return take_back_count(self._api, operation) if operation.verb == "count" else None

    def abandon(self, handle: Handle) -> Progress:
        """Progress, as :meth:`poll` reports it; a move that is not over gives its node back."""
        progress = self.poll(handle)
        if not isinstance(progress, Running):
            return progress
        operation = decode(handle.operation)
        return self._migrations.abandon(operation, progress) if operation.verb == "migrate" else progress

    def held(self) -> Iterator[Held]:
        """Nodes that are cordoned for the time of a move, and pods that get no traffic."""
        return held(self._api, self._namespaces)

    def give_back(self, thing: Held) -> bool:
        """Open a node, or let a pod serve again."""
        return give_back(self._api, thing)

    def find(self, decision: AnyDecision, observed: SubjectState | None) -> Handle | None:
        """Find the operation by the decision's marks on the objects.

        If there is none, but the specification differs from the observed one, another writer may have overwritten the
        mark: the outcome is unknown.
        """
        if isinstance(decision, Check):
            return self._checks.find(decision)
        found = unless_forbidden(self._targets.find(decision.workload))
        if isinstance(found, Rejected):
            return Handle(operation=OVERWRITTEN, expected=SubjectState(), answer=found.detail)
        target, obj = found
        if isinstance(decision, Migrate):
            return self._migrations.find(target, obj, decision, time.time_ns())
        if isinstance(decision, Scale) and decision.resources is not None:
            return find_resize(self._api, target, obj, decision, decision.resources)
        expected = decision.expected_state(SubjectState())
        version = version_of(obj) if observed is None else observed.version
        operation = find_count(self._api, target, obj, decision, version)
        if operation is not None:
            where = "pods" if operation.pods else "object"
            return Handle(operation=operation.encode(), expected=expected, answer=f"found on the {where}")
        if observed is None or version_of(obj) != observed.version:
            answer = f"{target} was changed by another client since the decision was claimed; look at it"
            return Handle(operation=OVERWRITTEN, expected=expected, answer=answer)
        return None


def _unsupported(target: Target, decision: Scale) -> Rejected | None:
    """Rejection if a Scale requests something that this platform cannot do."""
    for what, requested in (
        ("a power limit", decision.power_limit_w),
        ("a choice of machines", decision.mix),
    ):
        if requested:
            return Rejected("unsupported", f"platform kubernetes cannot give {target} {what}; decide on replicas alone")
    return None
