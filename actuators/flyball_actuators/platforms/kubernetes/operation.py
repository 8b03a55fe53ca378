"""The name of an operation: everything that another process needs to continue it."""

from typing import Any, Literal

from flyball_actuators.platforms import operations
from flyball_actuators.platforms.kubernetes.kinds import Object
from flyball_actuators.platforms.kubernetes.targets import Target
from flyball_contracts.nodes.kubernetes import MANAGER
from flyball_contracts.records import AnyDecision

Verb = Literal["count", "migrate", "resize", "check"]
OVERWRITTEN = "overwritten"
"""Stands for an operation if it is unknown whether there is one."""


class Operation(operations.NamedOperation, frozen=True, kw_only=True, omit_defaults=True):
    """The submission of one decision.

    ``count``: set ``replicas`` instead of ``before`` (-1: unknown); with ``frees``, wait until removed pods are gone.
    With ``pods``, these are prepared first, until ``until_ns``, and the number is written if the object still has
    ``version``; the pods in ``pod`` get the lowest deletion cost. ``migrate``: ``pod`` leaves ``node`` by ``until_ns``,
    together with all ``pods``. ``begun_ns`` is when preparation began; ``checkpoint``: pods are asked for a checkpoint.
    ``pods`` are ``NAME/UID``, separated by blanks. ``resize``: each of ``pods`` gets requests of ``cpu`` cores and
    ``memory_bytes`` (0: unchanged); operations of older versions have no ``batch`` and mean all pods. ``check``: Job
    ``name`` checks ``node``, and ``pods`` are the ids of the GPUs to check.
    """

    verb: Verb
    decision: str
    kind: str
    namespace: str
    name: str
    uid: str
    replicas: int = -1
    before: int = -1
    frees: bool = False
    pod: str = ""
    pod_uid: str = ""
    node: str = ""
    keep_cordon: bool = False
    until_ns: int = 0
    cpu: float = 0.0
    memory_bytes: int = 0
    pods: str = ""
    checkpoint: bool = True
    begun_ns: int = 0
    version: str = ""
    batch: bool = False

    @property
    def target(self) -> Target:
        """The controller that it changes."""
        return Target(self.kind, self.namespace, self.name)

    @property
    def going(self) -> tuple[tuple[str, str], ...]:
        """Name and uid of each of its pods."""
        parts = self.pods.split() or ([f"{self.pod}/{self.pod_uid}"] if self.pod_uid else [])  # of an older version
        return tuple((name, uid) for name, _, uid in (part.partition("/") for part in parts))


def operation_of(verb: Verb, decision: AnyDecision, target: Target, obj: Object, **more: Any) -> Operation:
    """The operation of a decision on a controller as it was read."""
    return Operation(
        verb=verb,
        decision=decision.id,
        kind=target.kind,
        namespace=target.namespace,
        name=target.name,
        uid=obj["metadata"]["uid"],
        **more,
    )


def names_of(pods: list[Object]) -> str:
    """Pods in the format of :attr:`Operation.pods`."""
    return " ".join(f"{pod['metadata']['name']}/{pod['metadata']['uid']}" for pod in pods)


def decode(text: str) -> Operation:
    """Parse the operation of an outcome; :class:`PlatformError` for another platform's."""
    return operations.decode(Operation, text, "platform kubernetes")


def manager(decision: str) -> str:
    """Field manager of a decision's changes: unique per decision, so that its changes can be found."""
    return f"{MANAGER}{decision}"[:128]
