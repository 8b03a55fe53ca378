"""The controller of Flyball's AdmissionCheck, which holds a gang until its placement is decided."""

import logging
import time
from threading import Event, Lock, Thread

from flyball_actuators.platforms.base import PlatformError, Rejected
from flyball_actuators.platforms.kubernetes.api import MERGE, Api, refused
from flyball_actuators.platforms.kubernetes.kinds import Object, is_true, moment, owner_of, status_of
from flyball_actuators.platforms.kubernetes.targets import named
from flyball_actuators.platforms.kueue.check import admit
from flyball_actuators.platforms.kueue.entry import GROUP, Check, Entry, entries_path

CONTROLLER = "flyball.dev/admission"
CHECK = "flyball"
"""Name of Flyball's AdmissionCheck."""
HOLD_S = 300.0
"""Seconds that a gang with quota waits for a decision: several worker ticks and an actuator's restart."""
FOLLOWED_NS = 60 * 1_000_000_000
"""A running operation is polled at least every ten seconds; after this time without a poll its claim lapses."""
MANAGER = "flyball-admission"
_LOG = logging.getLogger(__name__)
_NS = 1_000_000_000


class AdmissionCheckController:
    """Answers an AdmissionCheck in a thread of its own.

    A job without Flyball's workload annotation is admitted at once. An annotated job is admitted once it has had quota
    for ``hold_s`` without a decision; Kueue then chooses the place. A job that a decision has claimed is left to that
    decision, until the claim lapses after ``FOLLOWED_NS``. The controller also answers while the kill switch is on,
    because the queue waits for its answer.
    """

    def __init__(self, api: Api, check: str, namespaces: tuple[str, ...], hold_s: float, period_s: float) -> None:
        self._api, self._check, self._namespaces = api, check, namespaces
        self._hold_ns, self._period_s = round(hold_s * _NS), period_s
        self._stop, self._lock = Event(), Lock()
        self._claims: dict[str, tuple[str, int]] = {}
        self._is_workload: dict[str, bool] = {}
        self._last_problem = ""
        self._thread = Thread(target=self._run, name=f"admission check {check}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering: jobs with quota wait until another controller answers."""
        self._stop.set()
        self._thread.join(5.0)

    def is_configured(self) -> bool:
        """Whether the cluster has the AdmissionCheck."""
        return self._api.get(f"/apis/{GROUP}/admissionchecks/{self._check}").ok

    def claim(self, uid: str, decision: str) -> None:
        """Leave the job with this ``uid`` to a decision."""
        with self._lock:
            self._claims[uid] = decision, time.monotonic_ns()

    def release(self, uid: str, decision: str) -> None:
        """End the claim of a decision."""
        with self._lock:
            if self._claims.get(uid, ("", 0))[0] == decision:
                del self._claims[uid]

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            try:
                problem = self._reconcile()
            except PlatformError as error:
                problem = str(error)
            except Exception as error:  # a bug must not leave a queue silently closed
                _LOG.exception("admission check %s", self._check)
                problem = f"{type(error).__name__}: {error}"
            if problem != self._last_problem and problem:
                _LOG.warning("admission check %s: %s; trying again", self._check, problem)
            self._last_problem = problem

    def _reconcile(self) -> str:
        problem = self._activate()
        waiting: set[str] = set()
        for namespace in self._namespaces:
            found = self._api.listed(entries_path(namespace))
            if not found.ok:
                return refused(found, f"listing the Workloads of namespace {namespace}").detail
            for obj in found.body:
                entry = Entry(obj)
                check = entry.check(self._check)
                if check is None or check.state != "Pending" or not entry.is_true("QuotaReserved"):
                    continue
                waiting.add(owner_of(obj).get("uid", ""))
                problem = self._admit(entry, check) or problem
        self._is_workload = {uid: is_workload for uid, is_workload in self._is_workload.items() if uid in waiting}
        return problem

    def _activate(self) -> str:
        """Set the check active; without that, cluster queues that use it admit nothing."""
        path = f"/apis/{GROUP}/admissionchecks/{self._check}"
        found = self._api.get(path)
        if found.status == 404:
            return ""  # no queue uses it
        if not found.ok:
            return refused(found, f"reading AdmissionCheck {self._check}").detail
        controller_name = found.body["spec"].get("controllerName")
        if controller_name != CONTROLLER:
            return f"AdmissionCheck {self._check} has controllerName {controller_name}; set it to {CONTROLLER}"
        if is_true(found.body, "Active"):
            return ""
        conditions: list[Object] = status_of(found.body).get("conditions") or []
        active = {
            "type": "Active",
            "status": "True",
            "reason": "Active",
            "message": "Flyball answers",
            "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        others = [one for one in conditions if one["type"] != "Active"]
        body = {
            "apiVersion": GROUP,
            "kind": "AdmissionCheck",
            "metadata": {"name": self._check, "resourceVersion": found.body["metadata"]["resourceVersion"]},
            "status": {"conditions": [*others, active]},
        }
        answer = self._api.call("PATCH", f"{path}/status", body, (("fieldManager", MANAGER),), MERGE)
        return "" if answer.ok else refused(answer, f"activating AdmissionCheck {self._check}").detail

    def _admit(self, entry: Entry, check: Check) -> str:
        job = owner_of(entry.obj)
        with self._lock:
            _, claimed_ns = self._claims.get(job.get("uid", ""), ("", 0))
        if claimed_ns and time.monotonic_ns() - claimed_ns < FOLLOWED_NS:
            return ""
        why = "no workload of Flyball's"
        if self._runs_workload(entry, job):
            if time.time_ns() < moment(entry.since("QuotaReserved")) + self._hold_ns:
                return ""
            why = f"no decision came within {self._hold_ns / _NS:g} s"
        done = admit(self._api, entry, self._check, check, f"{why}: Kueue chooses the place", {}, MANAGER)
        return done.detail if isinstance(done, Rejected) else ""

    def _runs_workload(self, entry: Entry, job: Object) -> bool:
        uid = job.get("uid", "")
        if uid not in self._is_workload:
            namespace = entry.obj["metadata"]["namespace"]
            path = f"/apis/{job.get('apiVersion', '')}/namespaces/{namespace}/{job.get('kind', '').lower()}s/"
            found = self._api.get(path + job.get("name", ""))
            self._is_workload[uid] = found.ok and bool(named(found.body))
        return self._is_workload[uid]
