"""Kueue's Workload object of a job."""

from typing import NamedTuple

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.kubernetes.api import Api, refused
from flyball_actuators.platforms.kubernetes.kinds import Object, status_of
from flyball_actuators.platforms.kubernetes.replicas.write import QUEUE
from flyball_actuators.platforms.kubernetes.targets import Target

GROUP = "kueue.x-k8s.io/v1beta2"
PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
_JOB_UID = "kueue.x-k8s.io/job-uid"


class Check(NamedTuple):
    """State of one admission check of a Workload; ``at`` is its index in the list."""

    at: int
    state: str
    updates: list[Object]


class Entry(NamedTuple):
    """A Workload object as it was read."""

    obj: Object

    @property
    def name(self) -> str:
        """Name of the Workload object."""
        return str(self.obj["metadata"]["name"])

    @property
    def path(self) -> str:
        """API path of the Workload object."""
        return entries_path(self.obj["metadata"]["namespace"], self.name)

    @property
    def version(self) -> str:
        """Uid and generation of the Workload object."""
        return f"{self.obj['metadata']['uid']}/{self.obj['metadata'].get('generation', 0)}"

    @property
    def active(self) -> bool:
        """Whether it may be queued and run."""
        return bool(self.obj["spec"].get("active", True))

    @property
    def gang(self) -> int:
        """Number of pods, over all pod sets."""
        return sum(part.get("count", 1) for part in self.obj["spec"].get("podSets", ()))

    @property
    def assignments(self) -> list[Object]:
        """Quota assigned to each pod set; empty without quota."""
        admission: Object = status_of(self.obj).get("admission") or {}
        return list(admission.get("podSetAssignments") or ())

    @property
    def queue(self) -> str:
        """Cluster queue that assigned the quota, or the local queue it waits in."""
        admission: Object = status_of(self.obj).get("admission") or {}
        return str(admission.get("clusterQueue") or self.obj["spec"].get("queueName", ""))

    def is_true(self, condition: str) -> bool:
        """Whether a condition is true."""
        return self._condition(condition).get("status") == "True"

    def since(self, condition: str) -> str:
        """Last transition time of a condition, as the server wrote it."""
        return str(self._condition(condition).get("lastTransitionTime", ""))

    @property
    def has_checks(self) -> bool:
        """Whether Kueue has written the admission checks of the queue; it does so after the quota is reserved."""
        return bool(status_of(self.obj).get("admissionChecks"))

    def check(self, name: str) -> Check | None:
        """State of an admission check, ``None`` if the queue does not use it."""
        states: list[Object] = status_of(self.obj).get("admissionChecks") or []
        return next(
            (
                Check(i, str(one.get("state", "")), list(one.get("podSetUpdates") or ()))
                for i, one in enumerate(states)
                if one.get("name") == name
            ),
            None,
        )

    @property
    def waits_for(self) -> str:
        """Kueue's message on why it is not admitted."""
        for condition in ("QuotaReserved", "Evicted"):
            found = self._condition(condition)
            if found.get("status") == ("False" if condition == "QuotaReserved" else "True") and found.get("message"):
                return str(found["message"])
        return f"queue {self.queue} has not processed it yet"

    def _condition(self, name: str) -> Object:
        conditions: list[Object] = status_of(self.obj).get("conditions") or []
        nothing: Object = {}
        return next((one for one in conditions if one.get("type") == name), nothing)


def entries_path(namespace: str, name: str = "") -> str:
    """Path of a Workload, or of the list in a namespace."""
    base = f"/apis/{GROUP}/namespaces/{namespace}/workloads"
    return f"{base}/{name}" if name else base


def entry_of(api: Api, target: Target, obj: Object) -> Entry | Rejected:
    """Read the Workload of a job; ``Rejected`` if Kueue has created none."""
    labels: dict[str, str] = obj["metadata"].get("labels") or {}
    if QUEUE not in labels:
        return Rejected(
            "no_platform",
            f"{target} is in no queue of Kueue; label it {QUEUE}: NAME, or name its workload in `workloads` of an "
            "entry with driver kubernetes",
        )
    uid = obj["metadata"]["uid"]
    answer = api.listed(entries_path(target.namespace), (("labelSelector", f"{_JOB_UID}={uid}"),))
    if not answer.ok:
        return refused(answer, f"listing the Workloads of {target}")
    own = [one for one in answer.body if uid in {owner["uid"] for owner in one["metadata"].get("ownerReferences", ())}]
    if len(own) == 1:
        return Entry(own[0])
    return Rejected(
        "conflict",
        f"Kueue has {len(own)} Workloads for {target}; is Kueue running, with the integration for it, and is there a "
        f"LocalQueue {labels[QUEUE]}?",
    )
