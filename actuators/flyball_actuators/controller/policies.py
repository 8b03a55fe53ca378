"""Combines objects, annotations and policies into workload specifications, with a verdict on each policy."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from flyball_actuators.controller.pods import OBJECT
from flyball_actuators.controller.workloads import Declared, moment_of, spec_of
from flyball_actuators.platforms.kubernetes.kinds import Object, status_of
from flyball_contracts.declared.fields import fields_of
from flyball_contracts.declared.names import ANNOTATION, GROUP, VERSION
from flyball_contracts.records import WorkloadSpec

POLICIES = {"WorkloadPolicy": "workloadpolicies", "CarbonPolicy": "carbonpolicies"}


class Policy(NamedTuple):
    """A policy of either kind; ``selector`` is empty if it names its targets. ``status`` is its present status."""

    kind: str
    namespace: str
    name: str
    created_ns: int
    generation: int
    targets: tuple[OBJECT, ...]
    selector: Mapping[str, str]
    fields: Mapping[str, Any]
    status: Object

    @property
    def path(self) -> str:
        """Path in the API."""
        return f"/apis/{GROUP}/{VERSION}/namespaces/{self.namespace}/{POLICIES[self.kind]}/{self.name}"

    def governs(self, declared: Declared) -> bool:
        """Whether an object is one of the policy's targets."""
        if self.selector:
            return declared.namespace == self.namespace and self.selector.items() <= declared.labels.items()
        return declared.object in self.targets


class Verdict(NamedTuple):
    """Result for a policy: whether it is accepted, why, and its workloads."""

    accepted: bool
    reason: str
    message: str
    workloads: tuple[str, ...] = ()


class Plan(NamedTuple):
    """Specifications by workload, ``rejected`` workloads with the reason, and verdicts by policy path.

    A rejected workload keeps what was published before. ``homes`` are the namespaces that declared names belong to, and
    ``strangers`` the objects of other namespaces that claim one, each with the reason why it does not count.
    """

    specs: dict[str, WorkloadSpec]
    rejected: dict[str, str]
    verdicts: dict[str, Verdict]
    homes: dict[str, str]
    strangers: dict[str, str]


def policy_of(obj: Object) -> Policy:
    """Convert a policy object of the API server."""
    metadata, spec = obj["metadata"], obj["spec"]
    references = spec.get("targetRefs") or ([spec["targetRef"]] if "targetRef" in spec else [])
    selector: Object = spec.get("selector") or {}
    space = metadata["namespace"]
    kind = obj.get("kind") or ("WorkloadPolicy" if "targetRef" in spec else "CarbonPolicy")
    fields = fields_of(spec)
    if kind == "CarbonPolicy":
        fields = {"interruptible": True, **fields}
    return Policy(
        kind=kind,
        namespace=space,
        name=metadata["name"],
        created_ns=moment_of(metadata),
        generation=metadata.get("generation", 0),
        targets=tuple((one["kind"], space, one["name"]) for one in references),
        selector=selector.get("matchLabels") or {},
        fields=fields,
        status=status_of(obj),
    )


def plan(
    objects: Sequence[Declared], policies: Sequence[Policy], cell: str, published: Mapping[str, WorkloadSpec]
) -> Plan:
    """Specifications that are declared in a cell.

    An object counts if it is annotated or governed by a policy. Field by field, a WorkloadPolicy takes precedence over
    a CarbonPolicy, and a CarbonPolicy over annotations. A policy has no effect if an older one of its kind governs one
    of its objects. A name stays with the namespace that is the tenant of its ``published`` specification; a new name
    belongs to the namespace of the oldest object that bears it. Objects of other namespaces do not count.
    """
    ordered = sorted(policies, key=lambda one: (one.created_ns, one.namespace, one.name))
    governing: dict[OBJECT, dict[str, Policy]] = defaultdict(dict)
    rivals: dict[str, list[str]] = defaultdict(list)
    matched: dict[str, list[Declared]] = {}
    for policy in ordered:
        matched[policy.path] = [one for one in objects if policy.governs(one)]
        for one in matched[policy.path]:
            if (first := governing[one.object].get(policy.kind)) is not None:
                rivals[policy.path].append(f"{one} is governed by {first.kind} {first.name}, which is older")
        if policy.path not in rivals:
            for one in matched[policy.path]:
                governing[one.object][policy.kind] = policy
    counted = [one for one in objects if one.annotated or governing.get(one.object)]
    homes: dict[str, str] = {}
    for one in sorted(counted, key=lambda one: (not _is_published(one, published), one.created_ns, one.object)):
        homes.setdefault(one.workload, one.namespace)
    claims: dict[str, list[Declared]] = defaultdict(list)
    specs: dict[str, WorkloadSpec] = {}
    rejected: dict[str, str] = {}
    strangers: dict[str, str] = {}
    wrong: dict[OBJECT, str] = {}
    for one in counted:
        if one.namespace == homes[one.workload]:
            claims[one.workload].append(one)
        else:
            problem = (
                f"workload {one.workload} belongs to namespace {homes[one.workload]}, which declared it first; "
                f"choose another name in {ANNOTATION}"
            )
            strangers[str(one)] = wrong[one.object] = problem
    for name, claimants in claims.items():
        try:
            if len(claimants) > 1:
                raise ValueError(f"{', '.join(map(str, claimants))} all claim workload {name}; let one of them run it")
            (one,) = claimants
            governed = governing.get(one.object, {})
            layers = [governed[kind].fields for kind in ("CarbonPolicy", "WorkloadPolicy") if kind in governed]
            specs[name] = spec_of(one, layers, cell)
        except ValueError as error:
            rejected[name] = str(error)
            wrong |= {one.object: str(error) for one in claimants}
    verdicts = {path: _verdict(found, rivals.get(path, ()), wrong) for path, found in matched.items()}
    return Plan(specs, rejected, verdicts, homes, strangers)


def _is_published(one: Declared, published: Mapping[str, WorkloadSpec]) -> bool:
    """Whether the object's workload is published with the object's namespace as its tenant."""
    spec = published.get(one.workload)
    return spec is not None and not spec.removed and spec.tenant == one.namespace


def _verdict(targets: Sequence[Declared], rivals: Sequence[str], wrong: Mapping[OBJECT, str]) -> Verdict:
    names = tuple(sorted({one.workload for one in targets}))
    if not targets:
        return Verdict(False, "TargetNotFound", "no object of this namespace fits; correct the target or make it")
    if rivals:
        return Verdict(False, "Conflicted", f"{'; '.join(rivals)}; remove one of the two", names)
    problems = [f"{one}: {wrong[one.object]}" for one in targets if one.object in wrong]
    if problems:
        return Verdict(False, "Invalid", f"{'; '.join(problems)}; what was published before stays", names)
    return Verdict(True, "Accepted", "it is understood", names)
