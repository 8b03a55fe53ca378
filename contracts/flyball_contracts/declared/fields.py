"""The fields of a workload document as Kubernetes writes them: in annotations and in custom resources."""

from collections.abc import Mapping
from typing import Any

import msgspec

from flyball_contracts.declared.document import ObjectiveSection, WorkloadDocument
from flyball_contracts.records import Architecture

PREFIX = "flyball.dev/"
FROM_CLUSTER = ("workload", "cell", "tenant")
"""Fields that the cluster determines: the object's name, and its namespace."""
POLICY_FIELDS = tuple(name for name in WorkloadDocument.__struct_fields__ if name not in FROM_CLUSTER)
CARBON_FIELDS = ("interruptible", "checkpoint_s", "deadline", "duration_s", "power_w_per_replica")
"""Fields for timing by carbon and price."""
_WORDS = {"s": "seconds", "w": "watts", "kv": "keyValue"}


def camel(field: str) -> str:
    """Name of a field in custom resources: ``cold_start_s`` is ``coldStartSeconds``."""
    first, *rest = (_WORDS.get(part, part) for part in field.split("_"))
    return first + "".join(part[0].upper() + part[1:] for part in rest)


def annotation(field: str) -> str:
    """Name of a field in annotations: ``max_replicas`` is ``flyball.dev/max-replicas``."""
    return PREFIX + field.replace("_", "-")


_INNER: dict[str, type[msgspec.Struct]] = {"objective": ObjectiveSection, "model": Architecture}
_FIELDS = {camel(name): name for name in POLICY_FIELDS}
_INNER_FIELDS = {field: {camel(name): name for name in kind.__struct_fields__} for field, kind in _INNER.items()}
BY_ANNOTATION = {annotation(name): name for name in POLICY_FIELDS}


def fields_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a document from the specification of a custom resource; other keys are left out."""
    found: dict[str, Any] = {}
    for key, value in spec.items():
        field = _FIELDS.get(key)
        if field is None:
            continue
        inner = _INNER_FIELDS.get(field)
        found[field] = value if inner is None else {inner.get(name, name): part for name, part in value.items()}
    return found
