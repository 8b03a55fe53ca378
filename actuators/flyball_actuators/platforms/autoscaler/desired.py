"""Desired replicas per target: set by the latest decision; otherwise the current number."""

import time
from threading import Lock
from typing import NamedTuple

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.kubernetes.targets import Target, Targets

SLACK_NS = 60 * 1_000_000_000
"""A number outlives its decision by this long at most: its operation is polled every ten seconds, and then cleared."""


class Desired(NamedTuple):
    """The replicas that a decision requests for a target.

    The request is in force until ``until_ns``, on the wall clock in ns since the Unix epoch.
    """

    decision: str
    replicas: int
    until_ns: int


class DesiredReplicas:
    """The number of replicas that autoscalers get for each target; thread-safe.

    A decision's number stays in force until its operation has ended or, if that is no longer polled, its time is over.
    Without a decision, the number is the object's current ``replicas``, so that the autoscaler leaves it alone, also
    after a restart.
    """

    def __init__(self, targets: Targets, namespaces: tuple[str, ...]) -> None:
        self._targets, self._namespaces = targets, frozenset(namespaces)
        self._lock = Lock()
        self._desired: dict[Target, Desired] = {}
        self._last_query_ns: dict[Target, int] = {}

    def set(self, target: Target, desired: Desired) -> Desired:
        """Set the number of a decision unless a later one is in force; return the number in force."""
        with self._lock:
            current = self._desired.get(target)
            if current is None or current.until_ns < desired.until_ns:
                current = self._desired[target] = desired
            return current

    def clear(self, target: Target, decision: str) -> None:
        """Remove the number that a decision set."""
        with self._lock:
            current = self._desired.get(target)
            if current is not None and current.decision == decision:
                del self._desired[target]

    def last_query_ns(self, target: Target) -> int | None:
        """Time of the last query for a target, in ns since the Unix epoch.

        ``None`` if there was none since the start.
        """
        with self._lock:
            return self._last_query_ns.get(target)

    def replicas_for(self, target: Target) -> int | Rejected:
        """Replicas to report to the autoscaler, or why there is no answer.

        Raises :class:`PlatformError` if the current number cannot be read from the API server.
        """
        if target.namespace not in self._namespaces:
            return Rejected(
                "unknown_target", f"namespace {target.namespace} is not in actuator.platforms[].namespaces; add it"
            )
        with self._lock:
            now_ns = self._last_query_ns[target] = time.time_ns()
            desired = self._desired.get(target)
            if desired is not None and desired.until_ns + SLACK_NS <= now_ns:
                del self._desired[target]
                desired = None
        if desired is not None:
            return desired.replicas
        obj = self._targets.read(target)
        return obj if isinstance(obj, Rejected) else target.controller.status(obj).replicas
