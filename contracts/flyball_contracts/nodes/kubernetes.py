"""A node as its Kubernetes API server shows it: whether GPU pods may start there, and who has cordoned it.

The agent of a node and the controller of a cluster read it alike.
"""

from typing import Any

import msgspec

from flyball_contracts.records.inventory import CordonState

GPU = "nvidia.com/gpu"
"""Resource of a whole GPU, and key of the taint that keeps other pods off GPU nodes."""
MANAGER = "flyball-"
"""Beginning of the names of Flyball's field managers."""
CORDONED = "flyball.dev/cordoned-for"
"""Annotation that names the decision for which Flyball has cordoned a node. Other clients leave it."""
_LEAVING = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/",
    "aws-node-termination-handler/",
    "cloud.google.com/impending-node-termination",
)


class Taint(msgspec.Struct, frozen=True):
    """A taint; the effects ``NoSchedule`` and ``NoExecute`` keep away pods that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""

    @property
    def keeps_off(self) -> bool:
        """Whether pods that do not tolerate it do not start; GPU pods tolerate the taint of GPU nodes."""
        return self.effect in ("NoSchedule", "NoExecute") and self.key != GPU

    @property
    def is_leaving(self) -> bool:
        """Whether the beginning of its key means that the node is not ready, shuts down or is taken away.

        Other taints reserve a node for pods that tolerate them.
        """
        return self.key.startswith(_LEAVING)


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _Fields(msgspec.Struct, frozen=True):
    spec: dict[str, Any] = msgspec.field(name="f:spec", default_factory=dict[str, Any])


class _Managed(msgspec.Struct, frozen=True):
    manager: str = ""
    subresource: str = ""
    fieldsV1: _Fields | None = None


class _Metadata(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None
    managedFields: tuple[_Managed, ...] | None = None


class _Spec(msgspec.Struct, frozen=True):
    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] | None = None


class KubernetesNode(msgspec.Struct, frozen=True):
    """The used fields of a node; decode them from JSON, or convert them from an object."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def closed_by(self) -> set[str]:
        """Field managers that have closed the node; empty if it is open, or if the API server does not name them."""
        return {
            entry.manager
            for entry in self.metadata.managedFields or ()
            if entry.subresource != "status" and entry.fieldsV1 is not None and "f:unschedulable" in entry.fieldsV1.spec
        }

    @property
    def is_closed_by_others(self) -> bool:
        """Whether a client that is not Flyball has closed the node, alone or as well."""
        return any(not name.startswith(MANAGER) for name in self.closed_by)

    @property
    def cordon(self) -> CordonState:
        """Who has cordoned the node.

        Flyball removes its annotation when it uncordons. Other clients leave the annotation, and may close the node
        again; field management shows that.
        """
        ours = (self.metadata.annotations or {}).get(CORDONED, "")
        if self.spec.unschedulable:
            return "flyball" if ours and not self.is_closed_by_others else "other"
        return "lifted" if ours else ""

    @property
    def takes_pods(self) -> bool:
        """Whether the scheduler starts GPU pods there: it is ready, not cordoned and not about to leave.

        Taints in ``reserved`` do not count here.
        """
        ready = all(c.status == "True" for c in self.status.conditions or () if c.type == "Ready")
        leaving = any(taint.keeps_off and taint.is_leaving for taint in self.spec.taints or ())
        return not self.spec.unschedulable and ready and not leaving

    @property
    def reserved(self) -> tuple[Taint, ...]:
        """Taints that reserve the node for pods that tolerate them."""
        return tuple(taint for taint in self.spec.taints or () if taint.keeps_off and not taint.is_leaving)
