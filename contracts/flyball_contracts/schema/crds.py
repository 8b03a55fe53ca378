"""The custom resources: ``WorkloadPolicy`` and ``CarbonPolicy`` from the workload document, and ``WorkloadNames``."""

from typing import Any

from flyball_contracts.declared.document import WorkloadDocument
from flyball_contracts.declared.fields import CARBON_FIELDS, POLICY_FIELDS, camel
from flyball_contracts.declared.names import GROUP, NAMES, NAMES_KIND, VERSION
from flyball_contracts.schema.json_schema import components

TARGET_KINDS = (
    "Deployment", "StatefulSet", "LeaderWorkerSet", "Job", "JobSet", "TrainJob", "VolcanoJob", "InferenceService",
)  # fmt: skip
Schema = dict[str, Any]
_DROPPED = ("default", "title", "format", "additionalProperties", "required")
_REF = "#/{name}"
_TARGET: Schema = {
    "type": "object",
    "description": "An object in the namespace of the policy.",
    "required": ["kind", "name"],
    "properties": {
        "kind": {"type": "string", "enum": list(TARGET_KINDS)},
        "name": {"type": "string", "minLength": 1, "maxLength": 253},
    },
}
_SELECTOR: Schema = {
    "type": "object",
    "description": "Labels that the objects have, all of them.",
    "required": ["matchLabels"],
    "properties": {"matchLabels": {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}}},
}
_CONDITION: Schema = {
    "type": "object",
    "required": ["type", "status", "reason", "message", "lastTransitionTime"],
    "properties": {
        "type": {"type": "string", "maxLength": 316},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
        "message": {"type": "string", "maxLength": 32768},
    },
}
_RULES = (
    ("minReplicas", "maxReplicas", "self.minReplicas <= self.maxReplicas", "minReplicas is more than maxReplicas"),
    ("gangSize", "maxReplicas", "self.gangSize <= self.maxReplicas || self.gangSize == 1", "the gang could never run"),
)


def crds() -> list[Schema]:
    """All definitions, in the format of Kubernetes."""
    fields = _fields()
    workload: Schema = {
        "type": "object",
        "description": "What the workload that an object runs promises and allows; fields are those of "
        "`flyball workloads apply`. What is left out is what annotations say, else the default.",
        "required": ["targetRef"],
        "properties": {"targetRef": _TARGET, **{camel(name): fields[name] for name in POLICY_FIELDS}},
        "x-kubernetes-validations": [
            {"rule": f"!has(self.{one}) || !has(self.{other}) || {rule}", "message": message}
            for one, other, rule, message in _RULES
        ],
    }
    carbon: Schema = {
        "type": "object",
        "description": "How far the work of some objects may be shifted to cleaner and cheaper hours. A WorkloadPolicy "
        "goes before it, field by field. `deadline` is a moment, or a duration from the object's creation.",
        "properties": {
            "selector": _SELECTOR,
            "targetRefs": {"type": "array", "minItems": 1, "maxItems": 256, "items": _TARGET},
            **{camel(name): fields[name] for name in CARBON_FIELDS},
        },
        "x-kubernetes-validations": [
            {"rule": "has(self.selector) != has(self.targetRefs)", "message": "give either selector or targetRefs"}
        ],
    }
    return [
        _policy(
            "WorkloadPolicy",
            "wlp",
            workload,
            {
                "Target": ".spec.targetRef.name",
                "Workload": ".status.workloads[0]",
                "Min": ".spec.minReplicas",
                "Max": ".spec.maxReplicas",
                "Priority": ".spec.priority",
            },
        ),
        _policy(
            "CarbonPolicy",
            "cbp",
            carbon,
            {"Workloads": ".status.workloads", "Interruptible": ".spec.interruptible", "Deadline": ".spec.deadline"},
        ),
        _names(),
    ]


def _names() -> Schema:
    """Definition of the names of a cluster; each writer owns the items that it adds."""
    spaces = {"type": "array", "maxItems": 64, "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
    complete = {
        "type": "boolean",
        "description": "A controller reads the whole cluster, and gives each further name to the pods that bear it "
        "first. Otherwise agents count names that are not here only where a rule of theirs gives them.",
    }
    spec = {
        "type": "object",
        "description": "The namespaces whose pods may bear the name of a workload. The controller writes it, from the "
        "objects that declare a workload by annotation; agents keep to it.",
        "properties": {"names": {"type": "object", "additionalProperties": spaces}, "complete": complete},
    }
    schema = {
        "type": "object",
        "properties": {"spec": spec},
        "x-kubernetes-validations": [
            {"rule": f"self.metadata.name == '{NAMES}'", "message": f"there is one, whose name is {NAMES}"}
        ],
    }
    return _definition(NAMES_KIND, NAMES_KIND.lower(), (), schema, scope="Cluster")


def _policy(kind: str, short: str, spec: Schema, columns: dict[str, str]) -> Schema:
    shown: list[Schema] = [{"name": name, "type": _column(path), "jsonPath": path} for name, path in columns.items()]
    for condition in ("Accepted", "Published"):
        path = f'.status.conditions[?(@.type=="{condition}")].status'
        shown.append({"name": condition, "type": "string", "jsonPath": path})
    path = '.status.conditions[?(@.status=="False")].message'
    shown.append({"name": "Message", "type": "string", "jsonPath": path, "priority": 1})
    shown.append({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
    status: Schema = {
        "type": "object",
        "properties": {
            "observedGeneration": {"type": "integer", "format": "int64"},
            "workloads": {"type": "array", "items": {"type": "string"}},
            "conditions": {
                "type": "array",
                "items": _CONDITION,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        },
    }
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": spec, "status": status}}
    more: Schema = {"subresources": {"status": {}}, "additionalPrinterColumns": shown}
    return _definition(kind, kind.lower().removesuffix("y") + "ies", (short,), schema, scope="Namespaced", **more)


def _definition(kind: str, plural: str, short: tuple[str, ...], schema: Schema, *, scope: str, **more: Any) -> Schema:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                **({"shortNames": [*short]} if short else {}),
                "categories": ["flyball"],
            },
            "versions": [
                {"name": VERSION, "served": True, "storage": True, **more, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }


def _column(path: str) -> str:
    kinds = {"minReplicas": "integer", "maxReplicas": "integer", "priority": "integer", "interruptible": "boolean"}
    return kinds.get(path.rpartition(".")[2], "string")


def _fields() -> dict[str, Schema]:
    """Schema of each field of the document, structural: no references, no null, no default."""
    _, parts = components([WorkloadDocument], _REF)
    return {name: _structural(schema, parts) for name, schema in parts["WorkloadDocument"]["properties"].items()}


def _structural(schema: Schema, parts: dict[str, Schema]) -> Schema:
    if "anyOf" in schema:  # a type or null; the field is left out for null
        (schema,) = [option for option in schema["anyOf"] if option.get("type") != "null"]
    if "$ref" in schema:
        schema = parts[schema["$ref"].removeprefix("#/")]
    made = {key: value for key, value in schema.items() if key not in _DROPPED}
    for bound in ("Minimum", "Maximum"):  # OpenAPI 3.0 has a flag where JSON Schema has a number
        if (limit := made.pop(f"exclusive{bound}", None)) is not None:
            made |= {bound.lower(): limit, f"exclusive{bound}": True}
    if "enum" in made:
        made["type"] = "string"
    if "items" in made:
        made["items"] = _structural(made["items"], parts)
        made["maxItems"] = 64
    if "properties" in made:
        made["properties"] = {camel(name): _structural(part, parts) for name, part in made["properties"].items()}
        if "required" in schema:
            made["required"] = [camel(name) for name in schema["required"]]
    return made
