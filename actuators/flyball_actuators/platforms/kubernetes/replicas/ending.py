"""Pods that a lower number of replicas removes but that still exist and hold their GPUs.

A pod on a machine that has died stays until its Node object is deleted, which may be never.
"""

from flyball_actuators.platforms.kubernetes.kinds import Object, moment
from flyball_actuators.platforms.kubernetes.pods import node_of_pod

SLACK_S = 60.0
"""A kubelet reports the end of a pod this long after its grace period, at most; the clocks may differ, too."""
_MOST_NAMED = 3
_NS = 1_000_000_000


def overdue(pods: list[Object], now_ns: int) -> list[Object]:
    """The ending pods whose grace period is over; a pod's deletion time is the end of its grace period."""
    latest_ns = now_ns - round(SLACK_S * _NS)
    return [pod for pod in pods if moment(pod["metadata"].get("deletionTimestamp")) <= latest_ns]


def stuck_text(pods: list[Object]) -> str:
    """Names pods that do not end, with their nodes, and the remedy."""
    named = [f"{pod['metadata']['name']} on {node_of_pod(pod) or 'no node'}" for pod in pods[:_MOST_NAMED]]
    more = f" and {len(pods) - _MOST_NAMED} more" if len(pods) > _MOST_NAMED else ""
    return (
        f"the grace period of {', '.join(named)}{more} is over; if the machine is gone, delete its Node object, "
        "otherwise see what holds the pod, or delete it with --force"
    )
