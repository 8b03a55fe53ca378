"""The guard's input, its memory and its verdicts."""

from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, Self

import msgspec

from flyball_actuators.parameters import ActuatorParameters
from flyball_contracts.config import GuardPolicy, PoolConfig
from flyball_contracts.records import (
    AnyDecision,
    Approval,
    Migrate,
    Preempt,
    Scale,
    Stop,
    SubjectState,
    WorkloadSpec,
)
from flyball_contracts.records.commands.outcomes import RefusalCode, Urgency

VerdictStatus = Literal["accepted", "refused", "superseded"]


class NodeInfo(NamedTuple):
    """What the guard needs to know of a node."""

    cell: str
    schedulable: bool


Placed = Mapping[str, Mapping[str, Mapping[str, str]]]


class World(NamedTuple):
    """What is true outside at the moment of the decision.

    ``placed[cell][workload]`` are the nodes of its replicas, by replica, as the inventories show them. ``stop`` is why
    the kill switch's file is there, or empty, and ``stops`` are those that people ordered through the topic.
    ``power_w[cell][workload]`` is the largest power limit known of a GPU on the nodes where a workload runs, in W.
    ``gpus[node]`` are the GPUs of a node that are not divided by MIG, each with the workloads of the replicas on it.
    """

    workloads: Mapping[str, WorkloadSpec]
    nodes: Mapping[str, NodeInfo]
    placed: Placed
    stop: str
    power_w: Mapping[str, Mapping[str, float]] = {}
    stops: Collection[Stop] = ()
    approvals: Collection[Approval] = ()
    gpus: Mapping[str, tuple[tuple[str, ...], ...]] = {}

    def stopped(self, cell: str) -> str:
        """Why nothing may be done in a cell, or empty."""
        if self.stop:
            return self.stop
        stop = next((stop for stop in self.stops if fnmatchcase(cell, stop.cell)), None)
        if stop is None:
            return ""
        why = f": {stop.reason}" if stop.reason else ""
        return f"{stop.by} stopped cells {stop.cell!r}{why}; to go on: flyball resume --cell {stop.cell!r}"

    def tenant(self, workload: str) -> str:
        """Whose a workload is, empty where nobody has declared it."""
        spec = self.workloads.get(workload)
        return "" if spec is None else spec.tenant

    def running(self, cell: str, workload: str) -> int:
        """Replicas of one workload, 0 where the inventories name none."""
        return len(self.placed.get(cell, {}).get(workload, {}))

    def owner(self, cell: str, workload: str, replica: str) -> str:
        """Another workload that the inventories show a replica to belong to, or empty."""
        shown = self.placed.get(cell, {})
        if replica in shown.get(workload, {}):
            return ""
        return next((name for name, replicas in shown.items() if replica in replicas), "")


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that was let through: what the limits count.

    ``subject`` is what a later decision would supersede (see :func:`subject_of`), ``decided_ns`` the decision's
    own time, ``at_ns`` the guard's, and ``taken`` the replicas that it takes away. Each ``urgency`` has limits of its
    own (see :func:`urgency_of`), and so have dry runs. ``type`` is that of the decision, and ``usd_per_hour`` what it
    expected to add to the cost; lines of older versions have neither, nor the ``workload``.
    """

    cell: str
    target: str
    subject: str
    decided_ns: int
    at_ns: int
    taken: int
    decision: str = ""
    urgency: Urgency = "normal"
    dry_run: bool = False
    workload: str = ""
    type: str = ""
    usd_per_hour: float = 0.0


class GuardState(NamedTuple):
    """All that the guard remembers: recent grants of each cell, and each subject's newest decision time."""

    grants: Mapping[str, tuple[Grant, ...]] = {}
    newest: Mapping[str, int] = {}

    @classmethod
    def restored(cls, grants: Iterable[Grant], *, dry_run: bool = False) -> Self:
        """State that counts the grants of an earlier run, so that a restart resets no limit.

        Those of dry runs count for dry runs only, and the others for live runs.
        """
        cells: dict[str, tuple[Grant, ...]] = {}
        newest: dict[str, int] = {}
        for grant in sorted((g for g in grants if g.dry_run == dry_run), key=lambda g: g.at_ns):
            cells[grant.cell] = (*cells.get(grant.cell, ()), grant)
            newest[grant.subject] = max(newest.get(grant.subject, 0), grant.decided_ns)
        return cls(cells, newest)

    def without(self, decision: AnyDecision) -> Self:
        """State in which a decision was never let through: it came to nothing."""
        granted = self.grants.get(decision.cell, ())
        left = tuple(g for g in granted if g.decision != decision.id)
        if len(left) == len(granted):
            return self
        return self._replace(grants={**self.grants, decision.cell: left})

    def plus(self, cell: str, others: Collection[Grant]) -> Self:
        """State that also counts what others did to a cell."""
        if not others:
            return self
        counted = sorted((*self.grants.get(cell, ()), *others), key=lambda grant: grant.at_ns)
        return self._replace(grants={**self.grants, cell: tuple(counted)})

    def less(self, cell: str, others: Collection[Grant]) -> Self:
        """State that counts only our own again."""
        if not others:
            return self
        theirs = {grant.decision for grant in others}
        kept = tuple(grant for grant in self.grants.get(cell, ()) if grant.decision not in theirs)
        return self._replace(grants={**self.grants, cell: kept})

    def clock(self, cell: str, now_ns: int) -> int:
        """The limits' time of a cell: ``now_ns``, but never before its latest grant."""
        granted = self.grants.get(cell, ())
        return max(now_ns, granted[-1].at_ns) if granted else now_ns


class Verdict(NamedTuple):
    """The guard's answer; ``detail`` is a sentence with the limit, its value and the remedy.

    ``policy`` names the policy whose rule it is, and is empty for the limits that hold for all decisions; ``check`` is
    the check that objected.
    """

    status: VerdictStatus
    code: RefusalCode
    detail: str
    policy: str = ""
    check: str = ""


class Context(NamedTuple):
    """One decision with everything that a check may look at; the decision's cell has its limits' time.

    ``observed`` is what the platform shows of its subject, ``None`` before it was asked. ``assumed`` are the replicas
    from which decisions started that this one overtook before the platform was told of them. ``policies`` are those
    that match the decision, and ``pool`` is the one that it is about, ``None`` where it is about a workload.
    """

    config: ActuatorParameters
    state: GuardState
    decision: AnyDecision
    now_ns: int
    world: World
    observed: SubjectState | None = None
    assumed: tuple[int, ...] = ()
    policies: tuple[GuardPolicy, ...] = ()
    pool: PoolConfig | None = None


Check = Callable[[Context], Verdict | None]


def refuse(code: RefusalCode, detail: str, policy: str = "") -> Verdict:
    """A refusal."""
    return Verdict("refused", code, detail, policy)


def subject_of(decision: AnyDecision) -> str:
    """What a newer decision replaces: the number of a target's replicas, what they ask for, or the place of one."""
    if isinstance(decision, Migrate):
        return f"{decision.target}#{decision.replica}"
    vertical = isinstance(decision, Scale) and decision.resources is not None
    return f"{decision.target}#" if vertical else decision.target


def urgency_of(decision: AnyDecision) -> Urgency:
    """Whose limits a decision uses up; a ``deferral`` must leave room for those who wait."""
    if isinstance(decision, Migrate) and decision.from_device:
        return "rescue"
    if isinstance(decision, Preempt) and decision.until_ns is not None and not decision.beneficiary:
        return "deferral"
    return "normal"


def added_usd_per_hour(context: Context) -> float:
    """What a decision adds to the cost, 0 where it saves or does not say.

    Of a pool it is what its machines cost, whatever the decision expects, from the least that there may be of them now.
    """
    decision, pool = context.decision, context.pool
    expected = max(0.0, decision.expected.cost_usd_per_hour or 0.0)
    if pool is None or not isinstance(decision, Scale):
        return expected
    shown = None if context.observed is None else context.observed.replicas
    before = decision.replicas_before if shown is None else shown
    return max(expected, (decision.replicas - before) * pool.price_usd_per_hour)
