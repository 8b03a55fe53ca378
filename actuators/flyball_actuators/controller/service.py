"""The controller service: watches the cluster, publishes differences, and writes the status of policies."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Event
from typing import NamedTuple

import msgspec

from flyball_actuators.controller.cluster import Cluster
from flyball_actuators.controller.conditions import status_after
from flyball_actuators.controller.homes import homes_of
from flyball_actuators.controller.machines import inventories_of
from flyball_actuators.controller.names import NamesWriter
from flyball_actuators.controller.pods import WorkloadNames
from flyball_actuators.controller.policies import Plan, Policy, plan
from flyball_actuators.controller.topics import CONTROLLERS, Topics
from flyball_actuators.parameters import ControllerParameters
from flyball_actuators.platforms.base import PlatformError
from flyball_actuators.platforms.kubernetes.api import APPLY, Api
from flyball_contracts.config import Config
from flyball_contracts.config.constants import with_constants
from flyball_contracts.declared.names import GROUP, VERSION
from flyball_contracts.records import Inventory, WorkloadSpec
from flyball_contracts.topics import WORKLOADS

_LOG = logging.getLogger(__name__)
_ALWAYS_S = 30.0
_LONGEST_MANAGER = 128  # characters that Kubernetes allows
MANAGER = "flyball-controller"
"""Field manager that owns the status of policies."""


class ControllerReport(NamedTuple):
    """Records that a run published, statuses that it wrote, and statuses that others kept it from writing."""

    inventories: int = 0
    gone: int = 0
    workloads: int = 0
    statuses: int = 0
    conflicts: int = 0


def run_controller(
    config: Config,
    *,
    stop: Event,
    beat: Callable[[], object] = lambda: None,
    clock: Callable[[], int] = time.time_ns,
) -> ControllerReport:
    """Publish inventories and workloads of a cluster until ``stop`` is set; ``beat`` is called in each turn.

    Changes are collected for ``period_s``. Raises :class:`ConfigError` without credentials for the API server,
    :class:`TransportError` if the broker cannot be reached at the start; later, both may fail and recover.
    """
    settings = with_constants(ControllerParameters, config.controller)
    api = Api(settings.kubeconfig, settings.timeout_s, "controller")
    topics = Topics(config.kafka, stop)
    changed = Event()
    cluster = Cluster(api, settings, changed)
    controller = _Controller(api, cluster, topics, settings.cell, clock)
    reconciled_s = -_ALWAYS_S
    try:
        while not stop.is_set():
            beat()
            changed_any = topics.drain()
            if (
                changed.is_set()
                or changed_any
                or controller.needs_retry
                or time.monotonic() - reconciled_s >= _ALWAYS_S
            ):
                changed.clear()
                reconciled_s = time.monotonic()
                controller.reconcile()
            stop.wait(settings.period_s)
    finally:
        cluster.close()
        topics.close()
    return controller.report


class _Controller:
    """Reconciles cluster and topics; ``needs_retry``: something could not be written and is retried next time."""

    def __init__(self, api: Api, cluster: Cluster, topics: Topics, cell: str, clock: Callable[[], int]) -> None:
        self.report = ControllerReport()
        self.needs_retry = False
        self._api, self._cluster, self._topics, self._cell, self._clock = api, cluster, topics, cell, clock
        self._source = f"{CONTROLLERS}{cell}"
        self._names = NamesWriter(api, f"{MANAGER}/{cell}"[:_LONGEST_MANAGER], complete=cluster.is_whole)
        self._known_homes: Mapping[str, Collection[str]] | None = None
        self._problems: dict[str, str] = {}
        self._refused: dict[str, str] = {}

    def reconcile(self) -> None:
        """Compare the cluster with the topics and publish the differences."""
        self.needs_retry = False
        now_ns = self._clock()
        objects = self._cluster.objects()
        policies = self._cluster.policies()
        planned = plan(objects, policies, self._cell, self._topics.tables.workloads)
        homes = self._homes(planned)
        if homes is not None and self._cluster.machines_known and self._cluster.workloads_known:
            declared = [one for one in objects if planned.homes.get(one.workload) == one.namespace]
            names = WorkloadNames({one.object: one.workload for one in declared}, homes)
            tolerations = sorted({one.tolerations for one in declared}, key=sorted)
            changes = inventories_of(
                self._cluster.nodes(), tolerations, self._cluster.pods(), names, self._topics, self._source, now_ns
            )
            self._publish_machines(changes.changed, changes.gone)
        if self._cluster.workloads_known:  # otherwise an object that is not listed yet might look deleted
            self.needs_retry |= homes is None or not self._names.write(homes)
            unpublished = self._publish_workloads(planned, now_ns)
            self._write_statuses(policies, planned, unpublished, now_ns)
        self._log_rejected(planned)

    def _homes(self, planned: Plan) -> Mapping[str, str] | None:
        """The namespaces of names; ``None`` while those of names that only pods bear are unknown.

        Only a controller that reads all objects knows which names no object declares.
        """
        if not self._cluster.is_whole:
            return planned.homes
        if self._known_homes is None:
            self._known_homes = self._names.read()
        if self._known_homes is None or not (self._cluster.machines_known and self._cluster.workloads_known):
            return None
        found = homes_of(planned.homes, self._cluster.pods(), self._known_homes, self._topics.tables.workloads)
        self._known_homes = {name: (home,) for name, home in found.homes.items()}
        planned.strangers.update(found.strangers)
        return found.homes

    def _publish_machines(self, changed: Sequence[Inventory], gone: Sequence[str]) -> None:
        if changed or gone:
            self.needs_retry |= not self._topics.publish(changed, gone, self._source)
            self.report = self.report._replace(
                inventories=self.report.inventories + len(changed), gone=self.report.gone + len(gone)
            )

    def _publish_workloads(self, planned: Plan, now_ns: int) -> dict[str, tuple[str, str]]:
        """Publish changed workloads; return those that are not published as desired, with reason and message."""
        known, unpublished = self._topics.tables.workloads, dict[str, tuple[str, str]]()
        send: list[WorkloadSpec] = []
        for name, spec in planned.specs.items():
            last = known.get(name)
            if last is not None and not last.removed and (other := self._other_publisher(name)):
                unpublished[name] = (
                    "DeclaredElsewhere",
                    f"it is declared by {other}; `flyball workloads remove {name}` leaves it to the cluster",
                )
            elif last is None or msgspec.structs.replace(last, time_ns=0) != spec:
                send.append(msgspec.structs.replace(spec, time_ns=_after(last, now_ns)))
        for name, last in known.items():
            mine = not last.removed and last.cell == self._cell and not self._other_publisher(name)
            if mine and name not in planned.specs and name not in planned.rejected:
                send.append(msgspec.structs.replace(last, removed=True, time_ns=_after(last, now_ns)))
        if send:
            self.needs_retry |= not self._topics.publish(send, (), self._source)
            self.report = self.report._replace(workloads=self.report.workloads + len(send))
        for spec in send:
            if known.get(spec.workload) != spec:
                unpublished[spec.workload] = ("NotAcknowledged", "the broker has not acknowledged it; it is sent again")
        return unpublished

    def _other_publisher(self, workload: str) -> str:
        return self._topics.other_publisher((WORKLOADS.name, workload), self._source)

    def _write_statuses(
        self, policies: Sequence[Policy], planned: Plan, unpublished: dict[str, tuple[str, str]], now_ns: int
    ) -> None:
        """Apply each policy status that has changed; fields that another manager has set are kept and reported."""
        for policy in policies:
            status = status_after(policy, planned.verdicts[policy.path], unpublished, now_ns)
            if status == policy.status:
                continue
            metadata = {"name": policy.name, "namespace": policy.namespace}
            body = {
                "apiVersion": f"{GROUP}/{VERSION}", "kind": policy.kind, "metadata": metadata, "status": status
            }  # fmt: skip
            query = (("fieldManager", MANAGER),)
            try:
                answer = self._api.call("PATCH", f"{policy.path}/status", body, query, APPLY)
            except PlatformError as error:
                _LOG.warning("the status of %s: %s; it is written again", policy.path, error)
                self.needs_retry = True
                continue
            problem = "" if answer.ok or answer.status == 404 else answer.message
            if answer.ok:
                self.report = self.report._replace(statuses=self.report.statuses + 1)
            elif problem and self._refused.get(policy.path) != problem:
                remedy = "let that field manager give them up" if answer.status == 409 else "correct what it names"
                _LOG.warning("the status of %s stays as it is: %s; %s", policy.path, problem, remedy)
                self.report = self.report._replace(conflicts=self.report.conflicts + (answer.status == 409))
            self._refused[policy.path] = problem

    def _log_rejected(self, planned: Plan) -> None:
        problems = {f"workload {name} stays as it is": problem for name, problem in planned.rejected.items()}
        problems |= planned.strangers
        for what, problem in problems.items():
            if self._problems.get(what) != problem:
                _LOG.warning("%s: %s", what, problem)
        self._problems = problems


def _after(last: WorkloadSpec | None, now_ns: int) -> int:
    """Timestamp that is newer than the last record, which may come from a clock that is ahead."""
    return now_ns if last is None else max(now_ns, last.time_ns + 1)
