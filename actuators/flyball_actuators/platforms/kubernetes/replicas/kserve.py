"""Replicas of KServe's InferenceServices: their bounds are written, and KServe's autoscaler keeps to them.

An InferenceService in deployment mode Standard (formerly RawDeployment) is served by a Deployment of its own, which a
HorizontalPodAutoscaler or KEDA keeps between ``minReplicas`` and ``maxReplicas``; if both are equal, the number is
fixed. In mode Knative the pods belong to Knative's revisions, and ``maxReplicas: 0`` means no limit.
"""

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.kubernetes.kinds import BEHIND, NO_AUTOSCALER, Object, autoscaler_of
from flyball_actuators.platforms.kubernetes.targets import Target

_EXTERNAL = "external"


def unbounded(target: Target, obj: Object, wanted: int) -> Rejected | None:
    """Rejection for an InferenceService whose bounds would not give it the number of replicas."""
    if BEHIND not in obj:
        return Rejected(
            "unsupported",
            f"{target} has no Deployment of its own to serve it; set its annotation serving.kserve.io/deploymentMode: "
            "Standard, and leave the workload out of actuator.allow where Knative is to scale it",
        )
    if autoscaler_of(obj) == _EXTERNAL:
        return Rejected(
            "conflict",
            f"an autoscaler that KServe does not know scales {target}, and its bounds change nothing; set its "
            f"annotation serving.kserve.io/autoscalerClass: {NO_AUTOSCALER}, and delete that autoscaler",
        )
    if not wanted and autoscaler_of(obj) != NO_AUTOSCALER:
        return Rejected(
            "unsupported",
            f"the autoscaler of {target} keeps one replica at least; set its annotation "
            f"serving.kserve.io/autoscalerClass: {NO_AUTOSCALER}",
        )
    return None
