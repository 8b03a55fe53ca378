"""Who may bear the name of a workload: the unit that has it by default, pods of its namespace, or units by a rule."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from flyball_collectors.attribution.naming import Pod, PodNames, matches, name_of
from flyball_collectors.attribution.owner import Owner
from flyball_collectors.attribution.processes import ProcessOwners
from flyball_collectors.attribution.users import JobUsers
from flyball_collectors.host.cgroup_v1 import hierarchy_of
from flyball_collectors.parameters import AttributionParameters
from flyball_collectors.workload.discovery.base import DiscoveredReplica
from flyball_contracts.config.attribution import AttributionConfig, NamingRule, is_pattern
from flyball_contracts.config.constants import with_constants
from flyball_contracts.declared.names import NamesSpec

_KNOWN = "listen on unix:///PATH, where the sender is known while it runs"
_TERMS = {"kubernetes": "pod", "slurm": "job"}
_UNKNOWN = {"runtime": ""}
_ANY = '"*"'
_LASTING = ("namespace", "user", "unit", "uid", "job", "container")


class Claimant(NamedTuple):
    """A unit that reports under a workload's name; ``pod`` is its pod, if it is one with a known name.

    ``user`` is the number of a job's user, empty if unknown.
    """

    owner: Owner
    pod: Pod | None
    user: str = ""

    def __str__(self) -> str:
        """The unit in the terms of its runtime."""
        if self.pod is not None:
            return f"pod {self.pod.namespace}/{self.pod.name}"
        return f"{_TERMS.get(self.owner.runtime, self.owner.runtime)} {self.owner.unit}"


def claimant_of(found: DiscoveredReplica) -> Claimant:
    """The pod or job that announced a replica."""
    labels = dict(found.labels)
    if found.runtime == "slurm":
        return Claimant(Owner("slurm", labels["job"]), None, labels.get("user", ""))
    return Claimant(Owner("kubernetes", labels["uid"]), Pod(labels["namespace"], labels["pod"]))


class WorkloadNames:
    """Who may bear which name on a node.

    A name that ``rules`` give belongs to the units that one of these rules matches. Any other name with a ``/`` belongs
    to the pods of the namespace before it, or to the unit that has it by default, such as ``slurm/7``. A name without
    ``/`` belongs to the pods of its namespaces in ``homes``. A name that ``homes`` lacks belongs to the units that a
    rule with a pattern lets choose it. If ``homes`` are complete, it also belongs to any pod, until the controller
    assigns it to namespaces.
    """

    homes = NamesSpec()

    def __init__(self, node: str, rules: Sequence[NamingRule]) -> None:
        self._node = node
        self._naming = [rule for rule in rules if not rule.is_pattern]
        self._patterns = [rule for rule in rules if rule.is_pattern]

    def problem(self, workload: str, claimant: Claimant | None) -> str:
        """Why a unit (``None``: an unknown one) must not report for a workload; empty if it may."""
        own, pod, known = "", None, _UNKNOWN
        if claimant is not None:
            named, pod = name_of(claimant.owner, self._node, claimant.pod, (), claimant.user), claimant.pod
            own, known = named.workload, {"runtime": claimant.owner.runtime, **named.labels}
        rules = [rule for rule in self._naming if rule.workload == workload]
        home, slash, _ = workload.partition("/")
        homes = (home,) if slash else self.homes.names.get(workload, ())
        if rules:
            may = any(matches(rule, known) for rule in rules)
            whose = "the units that agent.attribution.rules give this name"
        elif homes:
            may = (pod is not None and pod.namespace in homes) or own == workload
            other = ", or to the unit that has this name by default" if slash else ", as the controller says"
            whose = f"pods of namespace {' or '.join(map(repr, homes))}{other}"
        else:
            allowed = any(fnmatchcase(workload, rule.workload) and matches(rule, known) for rule in self._patterns)
            unlisted = pod is not None and self.homes.complete
            may = (allowed or unlisted) and not is_pattern(workload)
            return "" if may else _unruled(workload, known)
        if may:
            return ""
        remedy = "choose another name" if claimant is not None else f"choose another, or {_KNOWN}"
        return f"workload {workload!r} belongs to {whose}; {remedy}"


def _unruled(workload: str, known: Mapping[str, str]) -> str:
    """Why a unit with these labels must not bear a name that no rule lets it choose, with the rule that would."""
    if is_pattern(workload):
        return f"workload {workload!r} is no name; choose one without *, ? and ["
    rule = f"{{match: {{{_labels(known)}}}, workload: {json.dumps(workload)}}}"
    better = "" if known["runtime"] else f"; better, {_KNOWN}"
    return f"no rule lets it report for workload {workload!r}; add {rule} to agent.attribution.rules{better}"


def _labels(known: Mapping[str, str]) -> str:
    """Labels by which a rule would match a unit, as in YAML: its runtime and, if it has one, a label that lasts."""
    label = next((label for label in _LASTING if label in known), None)
    found = f"runtime: {known['runtime'] or _ANY}"
    return found if label is None else f'{found}, {label}: "{known[label]}"'


class Senders:
    """The units of processes that send lines, by their control groups under ``root``."""

    def __init__(self, root: Path, section: AttributionConfig) -> None:
        settings, found = with_constants(AttributionParameters, section), hierarchy_of(root)
        self._groups = found.groups if found is not None else None
        self._users = JobUsers(root)
        self._owners = ProcessOwners(root, legacy=found is not None and found.legacy)
        self._pods = PodNames(root / settings.pod_logs.lstrip("/"))

    def find(self, pids: Iterable[int], ended: Callable[[], Collection[int]] = frozenset[int]) -> dict[int, Claimant]:
        """The unit of each process that still runs.

        ``ended`` returns processes that have ended by the time of the call; a process with such a number is another
        one.
        """
        owners = self._owners.find(pid for pid in pids if pid)
        for pid in ended():
            if self._owners.runs(pid):
                owners.pop(pid, None)
        pods = self._pods.find(owner.unit for owner in owners.values() if owner.runtime == "kubernetes")
        jobs = {
            owner.unit: self._groups / owner.path.lstrip("/")
            for owner in owners.values()
            if owner.runtime == "slurm" and owner.path and self._groups is not None
        }
        users = self._users.find(jobs)
        return {
            pid: Claimant(owner, pods.get(owner.unit), users.get(owner.unit, "") if owner.runtime == "slurm" else "")
            for pid, owner in owners.items()
        }
