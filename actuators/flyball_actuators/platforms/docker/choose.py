"""Chooses the containers that a decision changes, and the step for each."""

from typing import get_args

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.docker.containers import COPY_OF, PREEMPT, Container, How
from flyball_actuators.platforms.docker.copies import base_name, template_of, uncopyable
from flyball_actuators.platforms.docker.plan import Step, Verb, short
from flyball_contracts.records import Preempt, Resources, Scale

NEVER = "0001-01-01T00:00:00Z"
"""The engine's start time of a container that was never started."""
CHECKPOINT_S = 60
MOST_COPIES = 100


def choose(containers: list[Container], decision: Scale | Preempt, version: tuple[int, int]) -> list[Step] | Rejected:
    """Steps of a decision on replicas; deterministic for the same containers."""
    replicas = [one for one in containers if one.is_replica]
    change = decision.replicas - len(replicas)
    if isinstance(decision, Preempt):
        if change > 0:
            return Rejected("conflict", f"only {len(replicas)} containers of {decision.workload!r} run; decide again")
        return _preempt(replicas, -change, decision)
    if change >= 0:
        return _more(containers, change, decision, version)
    return _all_stay([_stop(one, "stop") for one in _latest_first(replicas)[:-change]], replicas)


def updates(containers: list[Container], wanted: Resources) -> dict[str, dict[str, int]] | Rejected:
    """Resource update of each container, by its id."""
    if wanted.gpu_profile is not None:
        return Rejected(
            "unsupported", "platform docker cannot change the part of a GPU; decide on CPU and memory alone"
        )
    return {one.id: _update(one, wanted) for one in containers}


def _more(containers: list[Container], more: int, decision: Scale, version: tuple[int, int]) -> list[Step] | Rejected:
    paused = [one for one in containers if one.paused]
    stopped = [one for one in containers if one.shown.state.status in ("exited", "created")]
    steps = [Step("unpause", one.id, one.name, one.shown.state.started_at) for one in paused]
    steps += [Step("start", one.id, one.name, one.shown.state.started_at) for one in stopped]
    copies = more - len(steps)
    if copies <= 0:
        return steps[:more]
    if copies > MOST_COPIES:
        return Rejected(
            "invalid", f"{copies} more containers at once are too many for a machine; {MOST_COPIES} at most"
        )
    template = template_of(containers)
    why = uncopyable(template, version)
    if why is not None:
        most = decision.replicas - copies
        return Rejected("unsupported", f"{why}; or request {most} replicas of {decision.workload!r} at most")
    names = (f"{base_name(template)}-{short(decision.id)}-{i}" for i in range(copies))
    return [*steps, *(Step("copy", template.id, name, NEVER) for name in names)]


def _preempt(replicas: list[Container], fewer: int, decision: Preempt) -> list[Step] | Rejected:
    by_name = {one.name: one for one in replicas}
    unknown = next((name for name in decision.victims if name not in by_name), None)
    if unknown is not None and len(decision.victims) >= fewer > 0:
        return Rejected(
            "invalid", f"no running container of {decision.workload!r} is called {unknown!r}; name others or none"
        )
    first = [by_name[name] for name in dict.fromkeys(decision.victims) if name in by_name]
    chosen = [*first, *(one for one in _latest_first(replicas) if one not in first)][:fewer]
    steps: list[Step] = []
    for one in chosen:
        if one.preempt not in get_args(How):
            return Rejected(
                "invalid", f"container {one.name} has label {PREEMPT}={one.preempt}; use {', '.join(get_args(How))}"
            )
        steps.append(_stop(one, _verb(one.preempt, decision)))
    return _all_stay(steps, replicas)


def _verb(how: str, decision: Preempt) -> Verb:
    """How a container stops; one that hangs must not go on where it was."""
    if how == "checkpoint" and decision.checkpoint:
        return "checkpoint"
    return "pause" if how == "pause" and not decision.restarts else "stop"


def _all_stay(steps: list[Step], replicas: list[Container]) -> list[Step] | Rejected:
    """Reject steps that would remove a container for good."""
    lost = {one.id: one.name for one in replicas if one.shown.host_config.auto_remove}
    gone = next((lost[step.id] for step in steps if step.verb != "pause" and step.id in lost), None)
    if gone is not None:
        return Rejected(
            "unsupported", f"container {gone} is removed for good when it stops; run it without --rm, or name others"
        )
    return steps


def _stop(one: Container, verb: Verb) -> Step:
    grace_s = CHECKPOINT_S if verb == "checkpoint" else max(0, one.grace_s)
    return Step(verb, one.id, one.name, one.shown.state.started_at, grace_s)


def _latest_first(replicas: list[Container]) -> list[Container]:
    """Copies before original containers, the youngest first."""
    return sorted(replicas, key=lambda one: (COPY_OF in one.labels, one.shown.created, one.name), reverse=True)


def _update(one: Container, wanted: Resources) -> dict[str, int]:
    host, body = one.shown.host_config, dict[str, int]()
    if wanted.cpu is not None and host.cpu_quota > 0:
        period = host.cpu_period or 100_000
        body |= {"CpuPeriod": period, "CpuQuota": round(wanted.cpu * period)}
    elif wanted.cpu is not None:
        body["NanoCpus"] = round(wanted.cpu * 1e9)
    if wanted.memory_bytes is not None:
        body["Memory"] = wanted.memory_bytes
        # The engine compares with the sum of memory and swap that it had, also where that was no limit.
        more = host.memory_swap - host.memory if host.memory_swap > 0 else wanted.memory_bytes
        body["MemorySwap"] = -1 if host.memory_swap < 0 else wanted.memory_bytes + max(0, more)
    return body
