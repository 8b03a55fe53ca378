"""The name of an operation: all that another process needs to go on with it."""

from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode

import msgspec

from flyball_actuators.platforms.base import PlatformError
from flyball_actuators.platforms.kubernetes.kinds import Object
from flyball_actuators.platforms.kubernetes.targets import Target
from flyball_contracts.records import AnyDecision

Verb = Literal["count", "migrate", "resize", "check"]
MANAGER = "flyball-"
OVERWRITTEN = "overwritten"
"""In place of an operation where it cannot be told whether there is one."""


class Operation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was submitted for one decision.

    ``count``: ``replicas`` are asked for; where it ``frees``, those that go must be gone. Where there are ``pods``,
    they are made ready to go first, by ``until_ns``, and the number is written while the object has ``version``.
    ``migrate``: ``pod`` is to leave ``node``, by ``until_ns``, and all ``pods`` with it.
    ``begun_ns`` is when the pods were first told, and ``checkpoint`` whether they are asked for one. ``pods`` are names
    and uids, ``NAME/UID``, with blanks between.
    ``resize``: each of its ``pods`` is to ask for ``cpu`` cores and ``memory_bytes``, 0: as it is; without ``batch``,
    as older versions say it, each pod there is.
    ``check``: Job ``name`` checks ``node``, and ``pods`` are the ids of the GPUs that it must have had.
    """

    verb: Verb
    decision: str
    kind: str
    namespace: str
    name: str
    uid: str
    replicas: int = -1
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
        """The controller that it is about."""
        return Target(self.kind, self.namespace, self.name)

    @property
    def going(self) -> tuple[tuple[str, str], ...]:
        """Name and uid of each of its pods."""
        parts = self.pods.split() or ([f"{self.pod}/{self.pod_uid}"] if self.pod_uid else [])  # of an older version
        return tuple((name, uid) for name, _, uid in (part.partition("/") for part in parts))

    def encode(self) -> str:
        """As text, for an outcome."""
        return urlencode(msgspec.to_builtins(self))


def operation_of(verb: Verb, decision: AnyDecision, target: Target, obj: Object, **more: Any) -> Operation:
    """The operation of a decision about a controller as it was read."""
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
    """Pods as an operation names them."""
    return " ".join(f"{pod['metadata']['name']}/{pod['metadata']['uid']}" for pod in pods)


def decode(text: str) -> Operation:
    """The operation of an outcome; :class:`PlatformError` for another platform's."""
    try:
        return msgspec.convert(dict(parse_qsl(text, keep_blank_values=True)), Operation, strict=False)
    except msgspec.ValidationError as error:
        raise PlatformError(f"operation {text!r} is none of platform kubernetes: {error}") from error


def manager(decision: str) -> str:
    """Who a change says that it was made by: one name for each decision, so that it can be found again."""
    return f"{MANAGER}{decision}"[:128]
