"""The guard's input, state and verdicts."""

from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, Self

from flyball_actuators.guard.grants import Grant as Grant, GrantIndex
from flyball_actuators.guard.scope import Signature
from flyball_actuators.guard.sums import Declared, Gpu as Gpu, Sums, spots_of
from flyball_actuators.parameters import ActuatorParameters
from flyball_contracts.config import GuardPolicy, PoolConfig
from flyball_contracts.records import (
    AnyDecision,
    Approval,
    Evidence,
    SetsReplicas,
    Stop,
    SubjectState,
    WorkloadSpec,
)
from flyball_contracts.records.commands.kinds.base import Urgency
from flyball_contracts.records.commands.outcomes import RefusalCode
from flyball_contracts.records.events import EventKind

VerdictStatus = Literal["accepted", "refused", "superseded"]


LEAST_CONFIDENCE = 0.9
"""Least confidence of a rescue; to leave a device that is only slow, less is enough."""
FAULTS: frozenset[EventKind] = frozenset({
    "xid", "ecc", "row_remap", "device_lost", "device_stalled", "recovery_action", "nvlink_error", "pcie_error",
    "spot_notice", "rebalance_notice", "maintenance_notice",
})  # fmt: skip
"""Events for which a replica may leave its device at once; evidence of such an event cites its record."""
COUNTERS = frozenset({"hw.errors{type=uncorrected}", "nvidia.gpu.recovery_action"})
"""Metrics of a GPU that are 0 while it is well."""
CURVES = "carbon"
"""Prefix of the evidence that shows for which curve work was deferred."""


class NodeInfo(NamedTuple):
    """The properties of a node that the guard checks."""

    cell: str
    schedulable: bool


Placed = Mapping[str, Mapping[str, Mapping[str, str]]]


class World(NamedTuple):
    """The state of the world outside at the time of a check.

    ``placed[cell][workload]`` maps each replica to its node, as the inventories show them. ``stop`` is the reason in
    the kill switch's file, empty without the file; ``stops`` are the stops that people ordered through the topic.
    ``power_w[cell][workload]`` is the largest known power limit of a GPU on the workload's nodes, in W. ``gpus[node]``
    are the GPUs of a node that are not divided by MIG. ``held[cell, workload]`` is how many replicas a workload had
    shortly before inventories showed fewer. ``sums`` are the sums over the inventories; see :meth:`summed`.
    ``usd_per_gpu_hour[cell]`` is the lowest price of a GPU that its inventories show.
    """

    workloads: Mapping[str, WorkloadSpec]
    nodes: Mapping[str, NodeInfo]
    placed: Placed
    stop: str
    power_w: Mapping[str, Mapping[str, float]] = {}
    stops: Collection[Stop] = ()
    approvals: Collection[Approval] = ()
    gpus: Mapping[str, tuple[Gpu, ...]] = {}
    held: Mapping[tuple[str, str], int] = {}
    sums: Sums | None = None
    usd_per_gpu_hour: Mapping[str, float] = {}

    def summed(self) -> Sums:
        """Sums over all inventories; computed, unless the world was made with them."""
        if self.sums is not None:
            return self.sums
        sums = Sums(declared={name: declared_of(spec) for name, spec in self.workloads.items()})
        for cell, workloads in self.placed.items():
            for workload, replicas in workloads.items():
                sums = sums.holding(cell, sums.of(workload), len(replicas))
        for node, gpus in self.gpus.items():
            of = self.nodes.get(node)
            if of is not None and of.schedulable:
                sums = sums.offering(of.cell, node, (), spots_of(gpus, sums.declared))
        return sums

    def stopped(self, cell: str) -> str:
        """Why nothing may be done in a cell; empty if it may."""
        if self.stop:
            return self.stop
        stop = next((stop for stop in self.stops if fnmatchcase(cell, stop.cell)), None)
        if stop is None:
            return ""
        why = f": {stop.reason}" if stop.reason else ""
        return f"{stop.by} stopped cells {stop.cell!r}{why}; to go on: flyball resume --cell {stop.cell!r}"

    def tenant(self, workload: str) -> str:
        """Tenant of a workload, empty if it is not declared."""
        spec = self.workloads.get(workload)
        return "" if spec is None else spec.tenant

    def running(self, cell: str, workload: str) -> int:
        """Number of replicas of a workload, 0 if the inventories show none."""
        return len(self.placed.get(cell, {}).get(workload, {}))

    def owner(self, cell: str, workload: str, replica: str) -> str:
        """Another workload to which the inventories assign a replica; empty if none."""
        shown = self.placed.get(cell, {})
        if replica in shown.get(workload, {}):
            return ""
        return next((name for name, replicas in shown.items() if replica in replicas), "")


class GuardState(NamedTuple):
    """The guard's state: recent grants of each cell, and the time of the newest decision on each subject."""

    grants: Mapping[str, tuple[Grant, ...]] = {}
    newest: Mapping[str, int] = {}

    @classmethod
    def restored(cls, grants: Iterable[Grant], *, dry_run: bool = False) -> Self:
        """State with the grants of an earlier run, so that a restart resets no limit.

        Grants of dry runs count for dry runs only, the others for live runs only.
        """
        cells: dict[str, tuple[Grant, ...]] = {}
        newest: dict[str, int] = {}
        for grant in sorted((g for g in grants if g.dry_run == dry_run), key=lambda g: g.at_ns):
            cells[grant.cell] = (*cells.get(grant.cell, ()), grant)
            newest[grant.subject] = max(newest.get(grant.subject, 0), grant.decided_ns)
        return cls(cells, newest)

    def without(self, decision: AnyDecision) -> Self:
        """State without the grant of a decision that had no effect."""
        granted = self.grants.get(decision.cell, ())
        id_ = decision.id
        left = [g for g in granted if g.decision != id_]
        if len(left) == len(granted):
            return self
        return self._replace(grants={**self.grants, decision.cell: tuple(left)})

    def plus(self, cell: str, others: Collection[Grant]) -> Self:
        """State that also counts the grants of other actuators in a cell."""
        if not others:
            return self
        counted = sorted((*self.grants.get(cell, ()), *others), key=lambda grant: grant.at_ns)
        return self._replace(grants={**self.grants, cell: tuple(counted)})

    def less(self, cell: str, others: Collection[Grant]) -> Self:
        """State without the grants that :meth:`plus` added."""
        if not others:
            return self
        theirs = {grant.decision for grant in others}
        kept = tuple(grant for grant in self.grants.get(cell, ()) if grant.decision not in theirs)
        return self._replace(grants={**self.grants, cell: kept})

    def clock(self, cell: str, now_ns: int) -> int:
        """Time for the limits of a cell: ``now_ns``, but never before the latest grant."""
        granted = self.grants.get(cell, ())
        return max(now_ns, granted[-1].at_ns) if granted else now_ns


class Verdict(NamedTuple):
    """The guard's answer; ``detail`` states the limit, its value and the remedy.

    ``policy`` names the policy that refused, empty for general limits; ``check`` is the check that objected. Where a
    limit of replicas refused, ``allowed`` is how many may be taken away.
    """

    status: VerdictStatus
    code: RefusalCode
    detail: str
    policy: str = ""
    check: str = ""
    allowed: int | None = None


class Context(NamedTuple):
    """One decision with everything that a check may use.

    ``granted`` is what the guard keeps of the cell's grants; checks read it with ``index_of``, which brings it up to
    date with ``state``. ``observed`` is the platform's state of the subject, ``None`` before it was observed.
    ``assumed`` are the numbers of replicas that superseded, never submitted decisions on the same subject started from.
    ``policies`` are those that match the decision; ``pool`` is the pool that it is about, ``None`` for a workload.
    ``keeps_to_node``: a replica that the decision starts runs on the node that it names, or not at all. ``signature``
    is that of the decision, ``None`` where none is required.
    """

    config: ActuatorParameters
    state: GuardState
    decision: AnyDecision
    now_ns: int
    world: World
    granted: GrantIndex
    observed: SubjectState | None = None
    assumed: tuple[int, ...] = ()
    policies: tuple[GuardPolicy, ...] = ()
    pool: PoolConfig | None = None
    keeps_to_node: bool = False
    signature: Signature | None = None

    @property
    def takes(self) -> int:
        """Replicas that stop because of the decision, given what the inventories and the platform show."""
        return self.decision.stops(self.world.running(self.decision.cell, self.decision.workload), self.observed)

    @property
    def starts_on(self) -> str | None:
        """Node on which the decision starts a replica, empty if the platform may choose; ``None`` if it starts none."""
        return self.decision.starts_on(self.observed, keeps_to_node=self.keeps_to_node)


Check = Callable[[Context], Verdict | None]


def declared_of(spec: WorkloadSpec) -> Declared:
    """Tenant of a specification, and the GPUs that a replica requests."""
    return spec.tenant, float(spec.gpus_per_replica)


def refuse(code: RefusalCode, detail: str, policy: str = "", allowed: int | None = None) -> Verdict:
    """A refusal."""
    return Verdict("refused", code, detail, policy, allowed=allowed)


def urgency_of(decision: AnyDecision) -> Urgency:
    """Which limits a decision counts toward; a ``deferral`` must leave room for more urgent decisions.

    A decision counts toward separate limits only for a reason that it proves: a rescue cites the fault of its device or
    the notice of its node, a deferral the curve for which work waits. Every other decision is ``normal``, whatever it
    claims.
    """
    claimed = decision.claimed_urgency
    return claimed if _PROVEN[claimed](decision) else "normal"


def unproven(decision: AnyDecision) -> str:
    """Evidence that the claimed urgency requires and the decision lacks; empty if it claims none."""
    return "" if urgency_of(decision) == decision.claimed_urgency else _PROOF[decision.claimed_urgency]


def _is_fault(evidence: Evidence) -> bool:
    return (evidence.name in FAULTS and bool(evidence.record)) or (evidence.name in COUNTERS and evidence.value > 0)


_PROVEN: Mapping[Urgency, Callable[[AnyDecision], bool]] = {
    "rescue": lambda decision: decision.confidence >= LEAST_CONFIDENCE and any(map(_is_fault, decision.evidence)),
    "deferral": lambda decision: any(e.name.startswith(CURVES) for e in decision.evidence),
    "normal": lambda _: True,
}
_PROOF: Mapping[Urgency, str] = {
    "rescue": (
        f"; it counts as normal: a rescue has a confidence of {LEAST_CONFIDENCE:g} or more, and evidence of a "
        "fault of its device or a notice of its node"
    ),
    "deferral": "; it counts as normal: a deferral has evidence of the carbon for which work waits",
}


def added_usd_per_hour(context: Context) -> float:
    """Cost that a decision adds, in USD per hour; 0 if it saves.

    If fewer replicas run than the decision states, it starts more of them, and each counts with the expected cost per
    replica. The result is at least the cost of the started replicas on the cheapest GPUs of the cell, whatever the
    decision expects. For a pool it is at least the price of the machines added to those observed.
    """
    decision, pool = context.decision, context.pool
    expected = decision.expected.cost_usd_per_hour or 0.0
    if not isinstance(decision, SetsReplicas):
        return max(0.0, expected)
    stated = decision.replicas - decision.replicas_before
    starts = decision.replicas - decision.starts_from(context.observed)
    if pool is not None:
        return max(0.0, expected, starts * pool.price_usd_per_hour)
    of_all = abs(expected / stated) * starts if stated and starts > max(0, stated) else 0.0
    cheapest = context.world.usd_per_gpu_hour.get(decision.cell, 0.0)
    return max(0.0, expected, of_all, starts * context.world.summed().gpus(decision.workload) * cheapest)


def adds_unknown_cost(context: Context) -> bool:
    """Whether a decision starts replicas on GPUs whose price neither it nor an inventory of its cell states."""
    decision, world = context.decision, context.world
    return (
        context.pool is None
        and isinstance(decision, SetsReplicas)
        and decision.replicas > decision.starts_from(context.observed)
        and decision.expected.cost_usd_per_hour is None
        and decision.cell not in world.usd_per_gpu_hour
        and world.summed().gpus(decision.workload) > 0
    )
