"""One Docker engine as a platform; see :class:`DockerPlatform`."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context

import msgspec

from flyball_actuators.platforms.base import (
    Capabilities,
    Done,
    Failed,
    Handle,
    Progress,
    Promises,
    Rejected,
    Running,
    Superseded,
)
from flyball_actuators.platforms.docker.choose import choose, updates
from flyball_actuators.platforms.docker.containers import Container, containers_of, state_of, unknown, version_of
from flyball_actuators.platforms.docker.effects import StepStatus, has, run_step
from flyball_actuators.platforms.docker.engine import Engine
from flyball_actuators.platforms.docker.plan import Plan, Step, decode, load_plan, remove_old_plans, store_plan
from flyball_contracts.config import PlatformConfig
from flyball_contracts.records import AnyDecision, Preempt, Scale, SetsReplicas, SubjectState

GIVE_UP_S = 900.0
AT_ONCE = 8
_NS = 1_000_000_000


class DockerPlatform:
    """Carries out decisions on the containers of one machine.

    A workload is the containers with label ``flyball.dev/workload=NAME``; a replica is such a container that runs and
    is not paused. The plan is stored in the engine first (see :mod:`flyball_actuators.platforms.docker.plan`), and the
    engine does each step once. No container is ever removed.
    """

    name = "docker"
    capabilities = Capabilities(
        kinds=frozenset({"Scale", "Preempt"}), tracks=True, promises=Promises(victims=True, checkpoint="platform")
    )

    def __init__(self, entry: PlatformConfig, where: str = "platform", clock: Callable[[], int] = time.time_ns) -> None:
        self._engine = Engine(entry.url, entry.timeout_s, where)
        self._clock = clock

    def observe(self, decision: AnyDecision) -> SubjectState | Rejected:
        """Containers of the workload; the replicas that the decision names and that run are on the engine's machine."""
        containers = containers_of(self._engine, decision.workload)
        if not containers:
            return unknown(decision.workload)
        known = {one.name for one in containers}
        nodes = self._nodes(containers, [name for name in decision.named_replicas if name in known])
        return msgspec.structs.replace(state_of(containers), nodes=nodes)

    def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
        """Store the plan and begin, if nothing has changed since it was observed."""
        if not isinstance(decision, SetsReplicas):
            return Rejected("unsupported", "platform docker is one machine: a replica has nowhere else to go")
        containers = containers_of(self._engine, decision.workload)
        if not containers:
            return unknown(decision.workload)
        if version_of(containers) != observed.version:
            return Rejected(
                "conflict",
                f"the containers of {decision.workload!r} were changed since they were observed; decide again",
            )
        plan = self._plan(decision, containers)
        if isinstance(plan, Rejected):
            return plan
        expected = _expected(decision, observed, plan)
        if dry_run:
            text = ", ".join(f"{step.verb} {step.name}" for step in plan.steps) or "nothing has to change"
            return Handle(operation="", expected=expected, answer=f"would be done: {text}")
        plan = store_plan(self._engine, decision, plan)
        statuses = self._run_steps(plan, first=True)
        remove_old_plans(self._engine, decision)
        return Handle(operation=plan.encode(), expected=expected, answer=_describe(statuses))

    def poll(self, handle: Handle) -> Progress:
        """Progress in the engine; does the steps that are left, unless the decision has expired."""
        plan = decode(handle.operation)
        statuses = self._run_steps(plan)
        containers = containers_of(self._engine, plan.workload)
        nodes = self._nodes(containers, handle.expected.nodes)
        state = msgspec.structs.replace(state_of(containers), nodes=nodes)
        answer = _describe(statuses)
        if any(one.refused for one in statuses):
            return Failed(answer, state)
        if any(one.lost for one in statuses):
            return Superseded(answer, state)
        now_ns = self._clock()
        if all(one.settled for one in statuses):
            return Done(state, now_ns, answer)
        return Failed(f"after {GIVE_UP_S:.0f} s: {answer}", state) if now_ns >= plan.until_ns else Running(answer)

    def find(self, decision: AnyDecision, observed: SubjectState | None) -> Handle | None:
        """Find the decision's plan, which is stored before anything is done."""
        plan = load_plan(self._engine, decision.id)
        if plan is None:
            return None
        expected = _expected(decision, observed or SubjectState(), plan)
        return Handle(operation=plan.encode(), expected=expected, answer="found in the engine")

    def _nodes(self, containers: list[Container], names: Iterable[str]) -> dict[str, str]:
        """Nodes of replicas: the engine's machine, or empty once they are stopped."""
        run = {one.name for one in containers if one.is_replica}
        return {name: self._engine.machine() if name in run else "" for name in names}

    def _plan(self, decision: Scale | Preempt, containers: list[Container]) -> Plan | Rejected:
        now_ns = self._clock()
        bodies: dict[str, dict[str, int]] = {}
        partly = False
        if isinstance(decision, Scale) and (decision.power_limit_w or decision.mix):
            cannot = f"platform docker cannot give {decision.workload!r} {decision.besides[0]}"
            return Rejected("unsupported", f"{cannot}; decide on replicas alone")
        if isinstance(decision, Scale) and decision.resources is not None:
            bodies_by_id = updates(containers, decision.resources)
            if isinstance(bodies_by_id, Rejected):
                return bodies_by_id
            left = [one for one in containers if not has(one, bodies_by_id[one.id])]
            running = [one for one in left if one.is_replica]
            batch = running[: decision.batch_size]
            partly = len(batch) < len(running)
            batch += [one for one in left if not one.is_replica]  # nothing that runs depends on these
            bodies = {one.id: bodies_by_id[one.id] for one in batch}
            steps = [Step("update", one.id, one.name) for one in batch]
        else:
            chosen = choose(containers, decision, self._engine.version())
            if isinstance(chosen, Rejected):
                return chosen
            steps = chosen
        if any(step.verb == "checkpoint" for step in steps) and not self._engine.experimental():
            return Rejected(
                "unsupported",
                "the engine takes no checkpoints: they need CRIU and dockerd --experimental; install them, or label "
                "the containers flyball.dev/preempt=stop or pause",
            )
        return Plan(
            decision=decision.id,
            workload=decision.workload,
            version=version_of(containers),
            replicas=decision.replicas,
            begun_ns=now_ns,
            begin_until_ns=max(decision.expires_ns, now_ns),
            until_ns=now_ns + round(GIVE_UP_S * _NS),
            steps=tuple(steps),
            update=bodies,
            partly=partly,
        )

    def _run_steps(self, plan: Plan, *, first: bool = False) -> list[StepStatus]:
        """Run all steps, several at once, because a container may take long to stop."""
        now_ns = self._clock()
        if len(plan.steps) < 2:
            return [run_step(self._engine, plan, step, now_ns, first=first) for step in plan.steps]

        def run_one(step: Step, context: Context) -> StepStatus:
            return context.run(run_step, self._engine, plan, step, now_ns, first=first)

        with ThreadPoolExecutor(min(AT_ONCE, len(plan.steps))) as threads:
            contexts = [copy_context() for _ in plan.steps]  # calls are recorded, and stopped, in these threads too
            return [*threads.map(run_one, plan.steps, contexts)]


def _expected(decision: AnyDecision, observed: SubjectState, plan: Plan) -> SubjectState:
    expected = decision.expected_state(observed)
    return msgspec.structs.replace(expected, resources=None) if plan.partly else expected


def _describe(statuses: list[StepStatus]) -> str:
    return "; ".join(dict.fromkeys(one.message for one in statuses)) or "nothing has to change"
