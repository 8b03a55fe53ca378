"""The status of a policy, with conditions for ``kubectl get``."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from flyball_actuators.controller.policies import Policy, Verdict
from flyball_actuators.platforms.kubernetes.kinds import Object


def status_after(policy: Policy, verdict: Verdict, unpublished: Mapping[str, tuple[str, str]], now_ns: int) -> Object:
    """The status that a policy should have.

    ``unpublished`` maps each workload that is not published as desired to reason and message. A condition keeps its
    transition time while its status stays the same.
    """
    late = {name: unpublished[name] for name in verdict.workloads if name in unpublished}
    if not verdict.accepted:
        published = ("False", "NotAccepted", "nothing of it is published")
    elif late:
        reason = next(iter(late.values()))[0]
        published = ("False", reason, "; ".join(f"{name}: {message}" for name, (_, message) in late.items()))
    else:
        published = ("True", "Published", "it is on flyball.workloads.v1")
    shown: dict[str, Object] = {one["type"]: one for one in policy.status.get("conditions") or ()}
    accepted = (str(verdict.accepted), verdict.reason, verdict.message)
    return {
        "observedGeneration": policy.generation,
        "workloads": list(verdict.workloads),
        "conditions": [
            _condition(kind, condition, shown.get(kind, {}), policy.generation, now_ns)
            for kind, condition in (("Accepted", accepted), ("Published", published))
        ],
    }


def _condition(
    kind: str, condition: tuple[str, str, str], before: Object, generation: int, now_ns: int
) -> dict[str, Any]:
    status, reason, message = condition
    now = f"{datetime.fromtimestamp(now_ns // 1_000_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return {
        "type": kind,
        "status": status,
        "observedGeneration": generation,
        "lastTransitionTime": before["lastTransitionTime"] if before.get("status") == status else now,
        "reason": reason,
        "message": message[:1024],
    }
