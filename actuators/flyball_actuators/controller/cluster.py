"""All lists of a cluster that the controller watches."""

from collections.abc import Sequence
from functools import partial
from threading import Event

from flyball_actuators.controller.nodes import Node, node_of
from flyball_actuators.controller.pods import Pod, pod_of
from flyball_actuators.controller.policies import POLICIES, Policy, policy_of
from flyball_actuators.controller.watch import Watch
from flyball_actuators.controller.workloads import KINDS, Declared, declared_by
from flyball_actuators.platforms.kubernetes.api import Api
from flyball_contracts.config import ControllerConfig
from flyball_contracts.declared.names import GROUP, VERSION

_WITH_NODE = (("fieldSelector", "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"),)


class Cluster:
    """Nodes and pods of the whole cluster; objects and policies of the given namespaces, or of all if none is given."""

    def __init__(self, api: Api, config: ControllerConfig, changed: Event) -> None:
        spaces: Sequence[str] = config.namespaces or ("",)
        self.is_whole = not config.namespaces
        """Whether the objects of all namespaces are read."""
        self._nodes: Watch[Node] = Watch(api, "/api/v1/nodes", partial(node_of, cell=config.cell), changed)
        self._pods: Watch[Pod] = Watch(api, "/api/v1/pods", pod_of, changed, _WITH_NODE)
        self._objects: list[Watch[Declared]] = [
            Watch(api, kind.path(space), declared_by(kind.name), changed) for space in spaces for kind in KINDS
        ]
        self._policies: list[Watch[Policy]] = [
            Watch(api, _policies_of(resource, space), policy_of, changed)
            for space in spaces
            for resource in POLICIES.values()
        ]
        self._closings = [self._nodes.close, self._pods.close]
        self._closings += [watch.close for watch in self._objects]
        self._closings += [watch.close for watch in self._policies]

    @property
    def machines_known(self) -> bool:
        """Whether nodes and pods have been listed."""
        return self._nodes.synced and self._pods.synced

    @property
    def workloads_known(self) -> bool:
        """Whether all objects and policies have been listed."""
        return all(w.synced for w in self._objects) and all(w.synced for w in self._policies)

    def nodes(self) -> list[Node]:
        """All nodes."""
        return self._nodes.all()

    def pods(self) -> list[Pod]:
        """Pods that are assigned to a node."""
        return self._pods.all()

    def objects(self) -> list[Declared]:
        """Objects that may run workloads."""
        return [one for watch in self._objects for one in watch.all()]

    def policies(self) -> list[Policy]:
        """Policies of both kinds."""
        return [one for watch in self._policies for one in watch.all()]

    def close(self) -> None:
        """Stop all watches."""
        for close in self._closings:
            close()


def _policies_of(resource: str, namespace: str) -> str:
    return f"/apis/{GROUP}/{VERSION}/{f'namespaces/{namespace}/' * bool(namespace)}{resource}"
