"""Autoscalers of one Kubernetes cluster as a platform; see :class:`AutoscalerPlatform`."""

import time
from contextlib import ExitStack

import msgspec

from flyball_actuators.platforms.autoscaler.desired import Desired, DesiredReplicas
from flyball_actuators.platforms.autoscaler.horizontal import METRIC, Autoscaler, autoscaler_of
from flyball_actuators.platforms.autoscaler.keda import keda_serving
from flyball_actuators.platforms.autoscaler.metrics_api import metrics_serving
from flyball_actuators.platforms.base import (
    Capabilities,
    Failed,
    Handle,
    Progress,
    Rejected,
    Running,
    Superseded,
)
from flyball_actuators.platforms.calls import check_stop, stopped
from flyball_actuators.platforms.kubernetes.api import Api
from flyball_actuators.platforms.kubernetes.kinds import SCALED, ReplicaStatus
from flyball_actuators.platforms.kubernetes.operation import Operation, decode, operation_of
from flyball_actuators.platforms.kubernetes.replicas.count import poll_count
from flyball_actuators.platforms.kubernetes.replicas.undo import START_S
from flyball_actuators.platforms.kubernetes.targets import Target, Targets, unless_forbidden, version_of
from flyball_contracts.config import PlatformConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import AnyDecision, SetsReplicas, SubjectState

GIVE_UP_NS = 900 * 1_000_000_000
"""Time that an autoscaler may take to apply a number; its own stabilization window is five minutes."""
_SILENT_NS = 120 * 1_000_000_000


class AutoscalerPlatform:
    """Gives autoscalers of some namespaces the desired number of replicas, and observes their effect.

    HorizontalPodAutoscalers read external metric ``flyball_wanted_replicas`` through the cluster's metrics API; KEDA
    queries an external scaler. Flyball only reads the cluster and needs no right to write. Objects are found as driver
    ``kubernetes`` finds them. Raises :class:`ConfigError` for what cannot be served.
    """

    name = "autoscaler"
    capabilities = Capabilities(kinds=frozenset({"Scale", "Preempt"}), tracks=True)

    def __init__(self, entry: PlatformConfig, where: str = "platform") -> None:
        if not entry.namespaces:
            raise ConfigError(f"{where}.namespaces: none is named; list those whose autoscalers Flyball serves")
        if not (entry.scaler.metrics or entry.scaler.keda):
            raise ConfigError(
                f"{where}.scaler: nothing is served; set metrics: HOST:PORT for HorizontalPodAutoscalers, or "
                "keda: HOST:PORT for KEDA"
            )
        self._api = Api(entry.kubeconfig, entry.timeout_s, where)
        self._targets = Targets(self._api, entry.namespaces, SCALED)
        self._wanted = DesiredReplicas(self._targets, entry.namespaces)
        with ExitStack() as stack:
            if entry.scaler.metrics:
                self.metrics = stack.enter_context(metrics_serving(self._wanted, self._api, entry.scaler, where))
            if entry.scaler.keda:
                self.keda = stack.enter_context(keda_serving(self._wanted, entry.scaler, where))
            self._serving = stack.pop_all()

    def close(self) -> None:
        """Stop serving; autoscalers then keep the current replicas."""
        self._serving.close()

    def observe(self, decision: AnyDecision) -> SubjectState | Rejected:
        """Replicas of the object."""
        found = self._targets.find(decision.workload)
        if isinstance(found, Rejected):
            return found
        target, obj = found
        shown = target.controller.status(obj)
        return SubjectState(replicas=shown.replicas, ready=shown.ready, version=version_of(obj))

    def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
        """Set the desired number, if an autoscaler of the object queries Flyball and can apply it."""
        found = self._targets.find(decision.workload)
        if isinstance(found, Rejected):
            return found
        target, obj = found
        if not isinstance(decision, SetsReplicas):
            return Rejected("unsupported", f"an autoscaler cannot move a replica of {target}; use driver kubernetes")
        if version_of(obj) != observed.version:
            return Rejected("conflict", f"{target} was changed since it was observed; decide again on what it is now")
        if decision.besides:
            cannot = f"an autoscaler cannot give {target} {decision.besides[0]}"
            return Rejected("unsupported", f"{cannot}; decide on replicas alone")
        scaler = autoscaler_of(self._api, target)
        if isinstance(scaler, Rejected):
            return scaler
        shown, wanted = target.controller.status(obj), decision.replicas
        why = scaler.out_of_range(wanted) or scaler.within_tolerance(shown.replicas, wanted)
        if why:
            return Rejected("unsupported", why)
        until_ns = time.time_ns() + GIVE_UP_NS
        frees = wanted < shown.replicas
        operation = operation_of("count", decision, target, obj, replicas=wanted, frees=frees, until_ns=until_ns)
        be = "would be" if dry_run else "is"
        if not dry_run:
            check_stop()
            self._wanted.set(target, Desired(decision.id, wanted, until_ns))
        return Handle(
            operation="" if dry_run else operation.encode(),
            expected=decision.expected_state(SubjectState()),
            answer=f"{scaler} {be} told {wanted} replicas for {target}, which has {shown.replicas}",
        )

    def poll(self, handle: Handle) -> Progress:
        """Whether the autoscaler has applied the number and the replicas are ready.

        Sets the number again after a restart.
        """
        operation, now_ns = decode(handle.operation), time.time_ns()
        progress = self._progress(operation, now_ns)
        if not isinstance(progress, Running):
            self._wanted.clear(operation.target, operation.decision)
        return progress

    def find(self, decision: AnyDecision, observed: SubjectState | None) -> Handle | None:
        """The operation of a decision whose number the object has; otherwise ``None``.

        Desired numbers are in memory only. If a restart lost one, setting it again changes nothing else.
        """
        found = self._targets.find(decision.workload)
        if isinstance(found, Rejected) or not isinstance(decision, SetsReplicas):
            return None
        target, obj = found
        if target.controller.status(obj).replicas != decision.replicas:
            return None
        until_ns = time.time_ns() + GIVE_UP_NS
        frees = decision.replicas < decision.replicas_before
        operation = operation_of(
            "count", decision, target, obj, replicas=decision.replicas, frees=frees, until_ns=until_ns
        )
        return Handle(
            operation=operation.encode(),
            expected=decision.expected_state(SubjectState()),
            answer=f"{target} has {decision.replicas} replicas",
        )

    def _progress(self, operation: Operation, now_ns: int) -> Progress:
        target = operation.target
        obj = unless_forbidden(self._targets.read(target))
        if isinstance(obj, Rejected) or obj["metadata"]["uid"] != operation.uid:
            return Failed(f"{target} was deleted")
        shown = target.controller.status(obj)
        if shown.replicas == operation.replicas:
            ready_ns = operation.until_ns + round(START_S * 1e9)  # until then the replicas that it has added may start
            return poll_count(self._api, msgspec.structs.replace(operation, until_ns=ready_ns), now_ns)
        desired = Desired(operation.decision, operation.replicas, operation.until_ns)
        if stopped():  # without a number of ours, the autoscaler gets the current one
            self._wanted.clear(target, operation.decision)
        check_stop()
        current = self._wanted.set(target, desired)
        state = SubjectState(replicas=shown.replicas, ready=shown.ready)
        if current.decision != operation.decision:
            return Superseded(f"{target} is to have {current.replicas} replicas, by decision {current.decision}", state)
        scaler = autoscaler_of(self._api, target)
        if isinstance(scaler, Rejected):
            return Failed(scaler.detail, state)
        why = self._reason_for_delay(target, scaler, shown, operation, now_ns)
        if now_ns >= operation.until_ns:
            return Failed(f"{target} still has {shown.replicas} replicas of {operation.replicas}: {why}", state)
        return Running(f"{target} has {shown.replicas} replicas of {operation.replicas}: {why}")

    def _reason_for_delay(
        self, target: Target, scaler: Autoscaler, shown: ReplicaStatus, operation: Operation, now_ns: int
    ) -> str:
        """Why the autoscaler has not applied the number yet."""
        queried_ns = self._wanted.last_query_ns(target)
        if queried_ns is None or now_ns - queried_ns > _SILENT_NS:
            since = "since the start" if queried_ns is None else f"for {(now_ns - queried_ns) / 1e9:.0f} s"
            trouble = scaler.trouble or f"is external metric {METRIC} served to this cluster?"
            return f"{scaler} has not queried Flyball {since}; {trouble}"
        return (
            scaler.out_of_range(operation.replicas)
            or scaler.within_tolerance(shown.replicas, operation.replicas)
            or scaler.trouble
            or scaler.limited
            or f"{scaler} knows it, and waits for its stabilization window or the limits of its behavior"
        )
