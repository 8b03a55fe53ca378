"""The checks in their fixed order, and the state that the guard keeps."""

from collections import defaultdict
from collections.abc import Callable
from itertools import takewhile

from flyball_actuators.guard.conflict import conflict
from flyball_actuators.guard.freshness import expired, not_yet_valid, superseded
from flyball_actuators.guard.grants import GrantIndex
from flyball_actuators.guard.limits import blast_radius, index_of, pruned, rate
from flyball_actuators.guard.money import over_budget, pool_in
from flyball_actuators.guard.part import granted_by, room
from flyball_actuators.guard.policies import matching, out_of_hours, over_limit, over_quota, protected, unapproved
from flyball_actuators.guard.scope import Signature
from flyball_actuators.guard.state import (
    Check,
    Context,
    Grant,
    GuardState,
    Verdict,
    World,
    added_usd_per_hour,
    urgency_of,
)
from flyball_actuators.guard.sums import Sums
from flyball_actuators.guard.switches import kill_switch, mode_off
from flyball_actuators.guard.target import not_allowed, out_of_tenant, unknown_target
from flyball_actuators.guard.tenants import tenant_mixed
from flyball_actuators.guard.validity import invalid
from flyball_actuators.parameters import ActuatorParameters
from flyball_contracts.config import ActuatorConfig
from flyball_contracts.config.constants import with_constants
from flyball_contracts.records import AnyDecision, SetsReplicas, SubjectState

# Switches first: nothing else matters while they are on. Then checks without side effects. Limits last, so that
# a decision refused for another reason never counts toward them.
CHECKS: tuple[Check, ...] = (
    mode_off,
    kill_switch,
    expired,
    not_yet_valid,
    unknown_target,
    out_of_tenant,
    not_allowed,
    protected,
    out_of_hours,
    invalid,
    superseded,
    conflict,
    tenant_mixed,
    rate,
    blast_radius,
    over_budget,
    over_limit,
    over_quota,
    unapproved,
)
_ACCEPTED = Verdict("accepted", "", "")
# From here on a decision is valid, so it supersedes older ones on its subject even if a limit refuses it.
_SOUND = CHECKS[CHECKS.index(superseded) + 1 :]
# Checks that end a decision that still waits. Limits are left out: they may have room again by the time that it is
# authorised.
_STILL = (mode_off, kill_switch, expired, protected, out_of_hours, superseded)
# Checks that take back an operation that has begun. It may end after its decision has expired, and a stop only
# delays it.
_UNDER_WAY = (protected, out_of_hours)


def passed(verdict: Verdict, stage: str) -> tuple[str, ...]:
    """Names of the checks that passed, up to the one that objected; ``stage`` is as in the audit trail."""
    checks = _STILL if stage == "claimed" else CHECKS
    return tuple(takewhile(lambda name: name != verdict.check, (check.__name__ for check in checks)))


class Guard:
    """Authorises decisions one at a time; all state is passed in and returned, and the guard itself keeps only caches.

    ``keeps_to_node`` returns whether the platform for a decision starts a replica only on the node that the decision
    names; otherwise the replica may come to any node of the cell.
    """

    def __init__(self, config: ActuatorConfig, keeps_to_node: Callable[[AnyDecision], bool] = lambda _: False) -> None:
        self._keeps_to_node = keeps_to_node
        self._indexes: defaultdict[str, GrantIndex] = defaultdict(GrantIndex)
        self._made: tuple[tuple[object, ...], Sums] = ((), Sums())
        self._config = with_constants(ActuatorParameters, config)

    def check(
        self,
        state: GuardState,
        decision: AnyDecision,
        now_ns: int,
        world: World,
        *,
        signature: Signature | None = None,
    ) -> tuple[GuardState, Verdict]:
        """Check ``decision`` on arrival, before the platform is observed; grants nothing."""
        return self._judge(self._context(state, decision, now_ns, world)._replace(signature=signature))

    def authorise(
        self,
        state: GuardState,
        decision: AnyDecision,
        now_ns: int,
        world: World,
        observed: SubjectState | None = None,
        assumed: tuple[int, ...] = (),
        *,
        signature: Signature | None = None,
    ) -> tuple[GuardState, Verdict]:
        """Check ``decision`` at ``now_ns`` against the observed state of its subject.

        The first check that objects gives the verdict. Only an accepted decision counts toward the limits. A valid
        decision that a limit refuses still makes older ones stale; ``Judge.go_on`` undoes that for an older one that
        waits. A decision that was authorised before is judged as if it were new: its earlier grant does not count, and
        if it is accepted it counts from ``now_ns``.
        """
        context = self._context(state, decision, now_ns, world, observed, assumed)._replace(signature=signature)
        if index_of(context).has(decision.id):
            context = context._replace(state=state.without(decision))
        after, verdict = self._judge(context)
        return (self._granted(context._replace(state=after)) if verdict.status == "accepted" else after), verdict

    def still(self, state: GuardState, decision: AnyDecision, now_ns: int, world: World) -> Verdict | None:
        """Why a decision that waits may no longer be carried out; ``None`` if it may."""
        return _first(_STILL, self._context(state, decision, now_ns, world))

    def under_way(self, state: GuardState, decision: AnyDecision, now_ns: int, world: World) -> Verdict | None:
        """Why a decision that is being carried out should be taken back if nothing has gone yet; ``None`` if not."""
        return _first(_UNDER_WAY, self._context(state, decision, now_ns, world)) if self._config.policies else None

    def _context(
        self,
        state: GuardState,
        decision: AnyDecision,
        now_ns: int,
        world: World,
        observed: SubjectState | None = None,
        assumed: tuple[int, ...] = (),
    ) -> Context:
        if world.sums is None:
            world = world._replace(sums=self._summed(world))
        policies = matching(self._config, decision, world)
        pool = pool_in(self._config, decision)
        keeps = self._keeps_to_node(decision)
        index = self._indexes[decision.cell]
        return Context(self._config, state, decision, now_ns, world, index, observed, assumed, policies, pool, keeps)

    def _summed(self, world: World) -> Sums:
        """Sums of a world that has none; computed again only when its tables change."""
        tables, (known, sums) = (world.placed, world.gpus, world.nodes, world.workloads), self._made
        if not known or any(old is not new for old, new in zip(known, tables, strict=True)):
            sums = world.summed()
            self._made = tables, sums
        return sums

    def _judge(self, context: Context) -> tuple[GuardState, Verdict]:
        for check in CHECKS:
            verdict = check(context)
            if verdict is not None:
                allowed = None if verdict.allowed is None else room(context)  # of all limits, not of the first alone
                verdict = verdict._replace(check=check.__name__, allowed=allowed)
                return (_seen(context.state, context.decision) if check in _SOUND else context.state), verdict
        return _seen(context.state, context.decision), _ACCEPTED

    def _granted(self, context: Context) -> GuardState:
        state, decision = context.state, context.decision
        at_ns = state.clock(decision.cell, context.now_ns)
        grant = Grant(
            cell=decision.cell,
            target=decision.target,
            subject=decision.subject,
            decided_ns=decision.time_ns,
            at_ns=at_ns,
            taken=granted_by(context),
            decision=decision.id,
            urgency=urgency_of(decision),
            dry_run=context.config.mode == "dry_run",
            workload=decision.workload,
            type=type(decision).__name__,
            usd_per_hour=added_usd_per_hour(context),
            starts=None if context.pool is not None else context.starts_on,
            replicas=decision.replicas if context.pool is None and isinstance(decision, SetsReplicas) else None,
        )
        kept = pruned(state.grants.get(decision.cell, ()), at_ns, self._config)
        return state._replace(grants={**state.grants, decision.cell: (*kept, grant)})


def _first(checks: tuple[Check, ...], context: Context) -> Verdict | None:
    """The first objection of these checks."""
    verdicts = ((check, check(context)) for check in checks)
    return next((verdict._replace(check=check.__name__) for check, verdict in verdicts if verdict), None)


def _seen(state: GuardState, decision: AnyDecision) -> GuardState:
    return state._replace(newest={**state.newest, decision.subject: decision.time_ns})
