"""How many replicas autoscalers are to run: what decisions said last, and otherwise what there is."""

import time
from threading import Lock
from typing import NamedTuple

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.kubernetes.targets import Target, Targets


class Desired(NamedTuple):
    """What a decision asks of a target, and until when, in wall-clock ns since the Unix epoch, it may take."""

    decision: str
    replicas: int
    until_ns: int


class DesiredReplicas:
    """What an autoscaler is told of a target that it asks for; several threads may use it.

    A decision's word stands until its operation has ended. Without one, the answer is the number of replicas that the
    object has: the autoscaler then leaves it alone, also after a restart.
    """

    def __init__(self, targets: Targets, namespaces: tuple[str, ...]) -> None:
        self._targets, self._namespaces = targets, frozenset(namespaces)
        self._lock = Lock()
        self._desired: dict[Target, Desired] = {}
        self._last_query_ns: dict[Target, int] = {}

    def set(self, target: Target, desired: Desired) -> Desired:
        """Take a word, unless a later one stands; the one that stands now."""
        with self._lock:
            current = self._desired.get(target)
            if current is None or current.until_ns < desired.until_ns:
                current = self._desired[target] = desired
            return current

    def clear(self, target: Target, decision: str) -> None:
        """End the word of a decision."""
        with self._lock:
            current = self._desired.get(target)
            if current is not None and current.decision == decision:
                del self._desired[target]

    def last_query_ns(self, target: Target) -> int | None:
        """When an autoscaler last asked for a target, in ns since the Unix epoch; ``None``: never since the start."""
        with self._lock:
            return self._last_query_ns.get(target)

    def replicas_for(self, target: Target) -> int | Rejected:
        """Replicas that an autoscaler is told, or why there is no answer.

        Raises :class:`PlatformError` when the API server does not tell what there is.
        """
        if target.namespace not in self._namespaces:
            return Rejected(
                "unknown_target", f"namespace {target.namespace} is not in actuator.platforms[].namespaces; add it"
            )
        with self._lock:
            self._last_query_ns[target] = time.time_ns()
            desired = self._desired.get(target)
        if desired is not None:
            return desired.replicas
        obj = self._targets.read(target)
        return obj if isinstance(obj, Rejected) else target.controller.status(obj).replicas
