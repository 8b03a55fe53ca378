"""Decides whether a pod must stay on its machine."""

from flyball_actuators.platforms.kubernetes.kinds import Object, annotation_of, moment, status_of
from flyball_actuators.platforms.kubernetes.saga import CHECKPOINT, CONFIRMED, ON_REQUEST, REQUESTED
from flyball_contracts.records import WorkloadSpec

_NS = 1_000_000_000


def reason_to_stay(pod: Object, spec: WorkloadSpec, now_ns: int) -> str:
    """Why a pod of a workload must not be moved now; empty if it may be moved."""
    if spec.removed:
        return ""
    if spec.kind != "inference" and not spec.interruptible:
        return "it cannot be interrupted"
    if annotation_of(pod, CHECKPOINT) == ON_REQUEST and not _confirmed(pod):
        return "its checkpoint is not confirmed"
    if spec.deadline_ns is not None and spec.duration_s is not None:
        started_ns = moment(status_of(pod).get("startTime")) or now_ns
        whole_ns = round((spec.duration_s + spec.cold_start_s) * _NS)
        if started_ns + whole_ns <= spec.deadline_ns < now_ns + whole_ns:
            return "restarted, it would miss its deadline"
    return ""


def _confirmed(pod: Object) -> bool:
    requested = annotation_of(pod, REQUESTED)
    return bool(requested) and annotation_of(pod, CONFIRMED) == requested
