"""HorizontalPodAutoscalers: which one scales an object, whether it queries Flyball, and what blocks it."""

from typing import NamedTuple

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.kubernetes.api import Api, refused
from flyball_actuators.platforms.kubernetes.kinds import Object, owner_of, status_of
from flyball_actuators.platforms.kubernetes.targets import Target

METRIC = "flyball_wanted_replicas"
EXAMPLES = "infra/examples/autoscaler.yaml"
TOLERANCE = 0.1
"""Kubernetes' default: an autoscaler does nothing if current and desired differ by less than this share."""
_TROUBLE = ("ScalingActive", "AbleToScale")


class Autoscaler(NamedTuple):
    """One HorizontalPodAutoscaler; ``keda``: it belongs to a ScaledObject of KEDA."""

    name: str
    least: int
    most: int
    keda: bool
    tolerance: tuple[float, float]
    trouble: str
    limited: str

    def __str__(self) -> str:
        return f"HorizontalPodAutoscaler {self.name}"

    def out_of_range(self, replicas: int) -> str:
        """Why the autoscaler cannot set this number of replicas; empty if it can."""
        if replicas > self.most:
            return f"{self} has maxReplicas {self.most}; raise it"
        if replicas < self.least:
            zero = "" if replicas else ", or scale by KEDA, which goes to zero"
            return f"{self} has minReplicas {self.least}; lower it{zero}"
        return ""

    def within_tolerance(self, now: int, wanted: int) -> str:
        """Why the autoscaler would ignore this change; empty if it would not."""
        tolerance = self.tolerance[0] if wanted > now else self.tolerance[1]
        if now == 0 or wanted == now or abs(wanted / now - 1.0) > tolerance:
            return ""
        way = "scaleUp" if wanted > now else "scaleDown"
        return (
            f"{self} takes {now} for near enough to {wanted}: its tolerance is {tolerance:.0%}; "
            f"set behavior.{way}.tolerance: 0, as {EXAMPLES} does"
        )


def autoscaler_of(api: Api, target: Target) -> Autoscaler | Rejected:
    """Return the autoscaler of an object, which must query Flyball."""
    answer = api.listed(f"/apis/autoscaling/v2/namespaces/{target.namespace}/horizontalpodautoscalers")
    if not answer.ok:
        return refused(answer, f"listing the HorizontalPodAutoscalers of namespace {target.namespace}")
    mine = [one for one in answer.body if _scales(one, target)]
    if not mine:
        return Rejected(
            "no_platform",
            f"nothing scales {target}; give it a HorizontalPodAutoscaler or ScaledObject as in {EXAMPLES}",
        )
    if len(mine) > 1:
        names = " and ".join(one["metadata"]["name"] for one in mine)
        return Rejected("conflict", f"HorizontalPodAutoscalers {names} both scale {target}; delete one")
    found, keda = mine[0], owner_of(mine[0]).get("kind") == "ScaledObject"
    metrics: list[Object] = found["spec"].get("metrics") or []
    if not keda and not any(_queries_flyball(one, target) for one in metrics):
        return Rejected(
            "no_platform",
            f"HorizontalPodAutoscaler {found['metadata']['name']} does not query external metric {METRIC} with "
            f"name: {target.name}; add it as in {EXAMPLES}",
        )
    return _read(found, keda)


def _scales(autoscaler: Object, target: Target) -> bool:
    reference = autoscaler["spec"]["scaleTargetRef"]
    return (reference["kind"], reference["name"]) == (target.kind, target.name)


def _queries_flyball(metric: Object, target: Target) -> bool:
    named = _part(_part(metric, "external"), "metric")
    labels = _part(_part(named, "selector"), "matchLabels")
    return (
        named.get("name") == METRIC
        and labels.get("name") == target.name
        and labels.get("kind", "Deployment") == target.kind
    )


def _read(found: Object, keda: bool) -> Autoscaler:
    spec: Object = found["spec"]
    behavior = _part(spec, "behavior")
    conditions: list[Object] = status_of(found).get("conditions") or []
    trouble = [_condition_text(one) for one in conditions if one["type"] in _TROUBLE and one["status"] == "False"]
    limited = [
        _condition_text(one) for one in conditions if one["type"] == "ScalingLimited" and one["status"] == "True"
    ]
    return Autoscaler(
        name=f"{found['metadata']['namespace']}/{found['metadata']['name']}",
        least=0 if keda else spec.get("minReplicas", 1),
        most=spec["maxReplicas"],
        keda=keda,
        tolerance=(_tolerance(_part(behavior, "scaleUp")), _tolerance(_part(behavior, "scaleDown"))),
        trouble="; ".join(trouble),
        limited="; ".join(limited),
    )


def _part(of: Object, name: str) -> Object:
    """A field that is an object; empty if absent."""
    found: Object | None = of.get(name)
    return found or {}


def _tolerance(rules: Object) -> float:
    text = str(rules.get("tolerance", TOLERANCE))
    return float(text.removesuffix("m")) / 1000.0 if text.endswith("m") else float(text)


def _condition_text(condition: Object) -> str:
    return f"{condition['type']} is {condition['status']}: {condition.get('message', '')}"
