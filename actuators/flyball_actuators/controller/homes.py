"""Assigns a namespace to each workload name that pods bear but no object declares."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from flyball_actuators.controller.pods import Pod
from flyball_contracts.declared.names import ANNOTATION
from flyball_contracts.records import WorkloadSpec


class Homes(NamedTuple):
    """The namespace that each name belongs to; ``strangers`` maps other namespaces' pods that bear one to an error."""

    homes: dict[str, str]
    strangers: dict[str, str]


def homes_of(
    declared: Mapping[str, str],
    pods: Iterable[Pod],
    before: Mapping[str, Collection[str]],
    published: Mapping[str, WorkloadSpec],
) -> Homes:
    """The ``declared`` namespaces of names, and those of names that only pods bear.

    If pods of several namespaces bear such a name, it belongs to the namespace that is the tenant of its ``published``
    specification, else to one that had it ``before``, else to the namespace of the oldest pod. A name with a ``/``
    contains its namespace.
    """
    bearing: dict[str, dict[str, str]] = defaultdict(dict)
    for pod in pods:
        if pod.workload and "/" not in pod.workload:
            oldest = bearing[pod.workload]
            oldest[pod.namespace] = min(pod.created, oldest.get(pod.namespace, pod.created))
    homes, strangers = dict(declared), dict[str, str]()
    for name, oldest in sorted(bearing.items()):
        spec = published.get(name)
        tenant = spec.tenant if spec is not None and not spec.removed else ""
        had = before.get(name, ())
        home = homes.setdefault(name, min(oldest, key=lambda one: (one != tenant, one not in had, oldest[one], one)))
        for space in sorted(oldest.keys() - {home}):
            strangers[f"pods of namespace {space} that bear {name}"] = (
                f"workload {name} belongs to namespace {home}; choose another name in {ANNOTATION}"
            )
    return Homes(homes, strangers)
