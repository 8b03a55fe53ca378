"""Sets Karpenter's do-not-disrupt annotation on pods for as long as they must not be moved."""

import logging
import time
from collections.abc import Callable
from threading import Event, Thread

from flyball_actuators.platforms.base import PlatformError
from flyball_actuators.platforms.karpenter.stay import reason_to_stay
from flyball_actuators.platforms.kubernetes.api import MERGE, Api, refused
from flyball_actuators.platforms.kubernetes.kinds import Object, annotation_of
from flyball_actuators.platforms.kubernetes.pods import pod_path
from flyball_actuators.platforms.kubernetes.targets import named
from flyball_contracts.records import WorkloadSpec

SpecLookup = Callable[[str], WorkloadSpec | None]
"""Returns the specification of a workload; ``None`` if it is unknown or must not be acted on."""
KEPT, DO_NOT_DISRUPT = "flyball.dev/kept", "karpenter.sh/do-not-disrupt"
MANAGER = "flyball-keeper"
_LOG = logging.getLogger(__name__)
_EVERY_S = 10.0
_RUNNING = (("fieldSelector", "status.phase=Running"),)


class DisruptionBlocker:
    """Reconciles the annotations of pods in some namespaces, in a thread of its own.

    It removes only annotations that Flyball has set; other clients' annotations stay.
    """

    def __init__(self, api: Api, namespaces: tuple[str, ...], spec_for: SpecLookup, poll_s: float) -> None:
        self._api, self._namespaces, self._spec_for = api, namespaces, spec_for
        self._every_s = min(_EVERY_S, 20.0 * poll_s)
        self._last_problem = ""
        self._stop = Event()
        self._thread = Thread(target=self._run, name="keeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                problem = self._reconcile(time.time_ns())
            except PlatformError as error:
                problem = str(error)
            except Exception as error:  # a bug must not leave pods silently unprotected
                _LOG.exception("keeping pods from Karpenter")
                problem = f"{type(error).__name__}: {error}"
            if problem and problem != self._last_problem:
                _LOG.warning("keeping pods from Karpenter: %s; trying again", problem)
            self._last_problem = problem
            self._stop.wait(self._every_s)

    def _reconcile(self, now_ns: int) -> str:
        problem = ""
        for namespace in self._namespaces:
            pods = self._api.listed(f"/api/v1/namespaces/{namespace}/pods", _RUNNING)
            if not pods.ok:
                return refused(pods, f"listing the pods of namespace {namespace}").detail
            for pod in pods.body:
                problem = self._reconcile_pod(pod, now_ns) or problem
        return problem

    def _reconcile_pod(self, pod: Object, now_ns: int) -> str:
        workload, before = named(pod), annotation_of(pod, KEPT)
        spec = self._spec_for(workload) if workload else None
        if spec is None or (annotation_of(pod, DO_NOT_DISRUPT) and not before):
            return ""
        why = reason_to_stay(pod, spec, now_ns)
        if why == before:
            return ""
        annotations = {KEPT: why or None, DO_NOT_DISRUPT: "true" if why else None}
        metadata = pod["metadata"]
        body = {"metadata": {"annotations": annotations, "uid": metadata["uid"]}}
        path = pod_path(metadata["namespace"], metadata["name"])
        answer = self._api.call("PATCH", path, body, (("fieldManager", MANAGER),), MERGE)
        if answer.ok or answer.status in (404, 409):  # done, or the pod is gone
            return ""
        return refused(answer, f"keeping pod {metadata['namespace']}/{metadata['name']}").detail
