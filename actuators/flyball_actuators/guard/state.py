"""What the guard is told, what it remembers, and what it answers."""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Literal, NamedTuple, Self

import msgspec

from flyball_contracts.config import ActuatorConfig
from flyball_contracts.records import AnyDecision, Migrate, Scale, WorkloadSpec
from flyball_contracts.records.outcomes import RefusalCode

VerdictStatus = Literal["accepted", "refused", "superseded"]


class NodeInfo(NamedTuple):
    """What the guard needs to know of a node."""

    cell: str
    schedulable: bool


class World(NamedTuple):
    """What is true outside at the moment of the decision.

    ``replicas[cell][workload]`` are counted from the inventories. ``handled`` holds the ids that must not be
    carried out again. ``stop`` is why the kill switch is on, or empty.
    """

    workloads: Mapping[str, WorkloadSpec]
    nodes: Mapping[str, NodeInfo]
    replicas: Mapping[str, Mapping[str, int]]
    handled: Container[str]
    stop: str

    def running(self, cell: str, workload: str) -> int:
        """Replicas of one workload, 0 where the inventories name none."""
        return self.replicas.get(cell, {}).get(workload, 0)


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that was let through: what the limits count.

    ``subject`` is what a later decision would supersede (see :func:`subject_of`), ``decided_ns`` the decision's
    own time, ``at_ns`` the guard's, and ``taken`` the replicas that it takes away.
    """

    cell: str
    target: str
    subject: str
    decided_ns: int
    at_ns: int
    taken: int


class GuardState(NamedTuple):
    """All that the guard remembers: recent grants of each cell, and each subject's newest decision time."""

    grants: Mapping[str, tuple[Grant, ...]] = {}
    newest: Mapping[str, int] = {}

    @classmethod
    def restored(cls, grants: Iterable[Grant]) -> Self:
        """State that counts the grants of an earlier run, so that a restart resets no limit."""
        cells: dict[str, tuple[Grant, ...]] = {}
        newest: dict[str, int] = {}
        for grant in sorted(grants, key=lambda g: g.at_ns):
            cells[grant.cell] = (*cells.get(grant.cell, ()), grant)
            newest[grant.subject] = max(newest.get(grant.subject, 0), grant.decided_ns)
        return cls(cells, newest)

    def clock(self, cell: str, now_ns: int) -> int:
        """The limits' time of a cell: ``now_ns``, but never before its latest grant."""
        granted = self.grants.get(cell, ())
        return max(now_ns, granted[-1].at_ns) if granted else now_ns


class Verdict(NamedTuple):
    """The guard's answer; ``detail`` is a sentence with the limit, its value and the remedy."""

    status: VerdictStatus
    code: RefusalCode
    detail: str


class Case(NamedTuple):
    """One decision with everything that a check may look at; the decision's cell has its limits' time."""

    config: ActuatorConfig
    state: GuardState
    decision: AnyDecision
    now_ns: int
    world: World


Check = Callable[[Case], Verdict | None]


def refuse(code: RefusalCode, detail: str) -> Verdict:
    """A refusal."""
    return Verdict("refused", code, detail)


def subject_of(decision: AnyDecision) -> str:
    """What a newer decision replaces: the number of a target's replicas, what they ask for, or the place of one."""
    if isinstance(decision, Migrate):
        return f"{decision.target}#{decision.replica}"
    vertical = isinstance(decision, Scale) and decision.resources is not None
    return f"{decision.target}#" if vertical else decision.target
