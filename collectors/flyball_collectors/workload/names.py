"""Who may bear the name of a workload: the unit that has it by default, pods of its namespace, or who a rule names."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from flyball_collectors.attribution.naming import Pod, PodNames, matches, name_of
from flyball_collectors.attribution.owner import Owner
from flyball_collectors.attribution.processes import ProcessOwners
from flyball_collectors.attribution.users import JobUsers
from flyball_collectors.host.cgroup_v1 import hierarchy_of
from flyball_collectors.parameters import AttributionParameters
from flyball_collectors.workload.discovery.base import DiscoveredReplica
from flyball_contracts.config.attribution import AttributionConfig, NamingRule
from flyball_contracts.config.constants import with_constants

_KNOWN = "listen on unix:///PATH, where the sender is known while it runs"
_TERMS = {"kubernetes": "pod", "slurm": "job"}


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
    """The names that are bound on a node.

    A name that ``rules`` give belongs to the units that one of these rules matches. Any other name with a ``/`` belongs
    to the pods of the namespace before it, or to the unit that has it by default, such as ``slurm/7``. A name without
    ``/`` belongs to the pods of its ``homes``, which are namespaces by name; one that has none is free.
    """

    homes: Mapping[str, tuple[str, ...]] = {}

    def __init__(self, node: str, rules: Sequence[NamingRule]) -> None:
        self._node = node
        self._rules = rules

    def problem(self, workload: str, claimant: Claimant | None) -> str:
        """Why a unit must not report for a workload, ``None`` being an unknown one; empty if it may."""
        rules = [rule for rule in self._rules if rule.workload == workload]
        own = None if claimant is None else name_of(claimant.owner, self._node, claimant.pod, (), claimant.user)
        if rules:
            known = {} if claimant is None or own is None else {"runtime": claimant.owner.runtime, **own.labels}
            may = any(matches(rule, known) for rule in rules)
            whose = "the units that agent.attribution.rules give this name"
        else:
            home, slash, _ = workload.partition("/")
            homes = (home,) if slash else self.homes.get(workload, ())
            in_home = claimant is not None and claimant.pod is not None and claimant.pod.namespace in homes
            may = not homes or in_home or (own is not None and own.workload == workload)
            other = ", or to the unit that has this name by default" if slash else ", as the controller says"
            whose = f"pods of namespace {' or '.join(map(repr, homes))}{other}"
        if may:
            return ""
        remedy = "choose another name" if claimant is not None else f"choose another, or {_KNOWN}"
        return f"workload {workload!r} belongs to {whose}; {remedy}"


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

        ``ended`` are processes that have ended by the time of the call; a process that has their number now is another.
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
