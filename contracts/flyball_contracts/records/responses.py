"""Responses of operators to incidents: acknowledgements, silences, labels, and readmissions of nodes."""

from fnmatch import fnmatchcase
from typing import TypeAlias

from flyball_contracts.records.base import Record, TimeNs
from flyball_contracts.records.incidents import Cause


class Response(Record, frozen=True, kw_only=True):
    """Common fields. Each kind has the ``key`` of its message; a later response with the same key replaces it."""

    cell: str
    time_ns: TimeNs
    by: str
    reason: str = ""


class Acknowledgement(Response, frozen=True, kw_only=True):
    """An operator works on an incident; ``removed`` takes that back."""

    incident: str
    removed: bool = False

    @property
    def key(self) -> str:
        """One for each incident."""
        return f"acknowledgement/{self.cell}/{self.incident}"


class Silence(Response, frozen=True, kw_only=True):
    """Matching incidents are listed only: no notification and no decision follows.

    It holds from ``starts_ns`` until ``ends_ns``, so that a maintenance window can be announced. The other fields are
    glob patterns, all of which must match; an incident of several nodes or workloads matches if all of them do.
    """

    name: str
    starts_ns: TimeNs
    ends_ns: TimeNs
    incident: str = "*"
    cause: str = "*"
    node: str = "*"
    device: str = "*"
    workload: str = "*"
    removed: bool = False

    @property
    def key(self) -> str:
        """One for each name in a cell."""
        return f"silence/{self.cell}/{self.name}"

    def holds(self, now_ns: int) -> bool:
        """Whether it is in force."""
        return not self.removed and self.starts_ns <= now_ns < self.ends_ns

    def matches(
        self, incident: str, cause: str, devices: tuple[str, ...], nodes: tuple[str, ...], workloads: tuple[str, ...]
    ) -> bool:
        """Whether it matches an incident; only ``*`` matches an unknown value."""
        return (
            _all_match((incident,), self.incident)
            and _all_match((cause,), self.cause)
            and _all_match(devices, self.device)
            and _all_match(nodes, self.node)
            and _all_match(workloads, self.workload)
        )


class Label(Response, frozen=True, kw_only=True):
    """Whether an incident of a ``cause`` on a ``model`` of GPU was ``true``: it adjusts the limits of similar ones."""

    incident: str
    cause: Cause
    true: bool
    model: str = ""

    @property
    def key(self) -> str:
        """One for each incident."""
        return f"label/{self.cell}/{self.incident}"


class Readmission(Response, frozen=True, kw_only=True):
    """An operator, or a job that checked it, declares a node healthy by ``evidence``; earlier faults are cleared."""

    node: str
    evidence: str

    @property
    def key(self) -> str:
        """One for each node."""
        return f"readmission/{self.cell}/{self.node}"


AnyResponse: TypeAlias = Acknowledgement | Silence | Label | Readmission
"""One response; readers use this type, because the base class has no key."""


def _all_match(names: tuple[str, ...], pattern: str) -> bool:
    return pattern == "*" or (bool(names) and all(fnmatchcase(name, pattern) for name in names))
