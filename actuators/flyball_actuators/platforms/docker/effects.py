"""Changes one container. Each step is safe to repeat, and the container itself shows its progress."""

from typing import NamedTuple

import msgspec

from flyball_actuators.platforms.docker.containers import DECISION, Container, inspect, part
from flyball_actuators.platforms.docker.copies import body_of
from flyball_actuators.platforms.docker.engine import Answer, Engine, NoAnswer, segment
from flyball_actuators.platforms.docker.plan import Plan, Step, short

_NS = 1_000_000_000
SLACK_S = 5
CHECKPOINT = "flyball-"
"""Prefix of the names of Flyball's checkpoints."""


class StepStatus(NamedTuple):
    """Status of a step.

    ``settled``: nothing is left to do; ``lost``: another program has changed the container since; ``refused``: the
    engine refuses the step.
    """

    message: str
    settled: bool = False
    lost: bool = False
    refused: bool = False


def run_step(engine: Engine, plan: Plan, step: Step, now_ns: int, *, first: bool = False) -> StepStatus:
    """Observe one container and do what is left; ``first``: certainly nothing was done yet.

    A container that was asked to stop is not asked again before its grace period is over: many programs end at once on
    a second signal.
    """
    if step.verb == "copy":
        return _copy(engine, plan, step, now_ns)
    found = inspect(engine, step.id)
    if found is None:
        return StepStatus(f"{step.name} was removed", lost=True)
    may = now_ns < plan.begin_until_ns
    if step.verb == "start":
        return _start(engine, step, found, may)
    if step.verb == "update":
        return _update(engine, step, found, plan.update.get(step.id, {}), may)
    if step.verb == "unpause":
        if not found.paused:
            return _serves(step, found)
        return _send(engine, "POST", step, "unpause") if may else _late(step)
    waited = now_ns >= plan.begun_ns + (step.grace_s + SLACK_S) * _NS
    return _end(engine, plan, step, found, may and (first or waited or step.verb == "pause"))


def _start(engine: Engine, step: Step, found: Container, may: bool) -> StepStatus:
    if found.is_replica and found.shown.state.started_at != step.started_at:
        return _restored(engine, step, found)
    if found.is_replica:
        return _serves(step, found)
    if found.shown.state.started_at != step.started_at:
        error = found.shown.state.error
        return StepStatus(
            f"{step.name} was started and has ended{': ' + error if error else ''}; see its log", refused=True
        )
    if not may:
        return _late(step)
    saved = _checkpoints(engine, step.id)
    return _send(engine, "POST", step, "start", **({"checkpoint": saved[-1]} if saved else {}))


def _copy(engine: Engine, plan: Plan, step: Step, now_ns: int) -> StepStatus:
    may = now_ns < plan.begin_until_ns
    found = inspect(engine, step.name)
    if found is None:
        template = inspect(engine, step.id)
        if template is None:
            return StepStatus(f"the container that {step.name} was to be a copy of was removed", lost=True)
        if not may:
            return _late(step)
        body = body_of(template, plan.decision)
        answer = _call(engine, "POST", "/containers/create", body, {"name": step.name})
        if answer is not None and not answer.ok and answer.status != 409:
            return StepStatus(f"{step.name} was not created: {answer.message}", refused=True)
        found = inspect(engine, step.name)
        if found is None:  # an earlier call is still creating it
            return StepStatus(f"{step.name} is being created")
    if found.labels.get(DECISION) != plan.decision:
        return StepStatus(f"there is a container {step.name} that is not of this decision", refused=True)
    return _start(engine, msgspec.structs.replace(step, id=found.id), found, may)


def _end(engine: Engine, plan: Plan, step: Step, found: Container, may: bool) -> StepStatus:
    state = found.shown.state
    if not state.running and not state.restarting:
        return StepStatus(f"{step.name} has ended", settled=True)
    if state.started_at != step.started_at:
        return StepStatus(f"{step.name} was started again by another client", lost=True)
    if step.verb == "pause":
        if found.paused:
            return StepStatus(f"{step.name} is paused", settled=True)
        return _send(engine, "POST", step, "pause") if may else _late(step)
    if not may:
        return StepStatus(f"{step.name} is ending")
    for old in _checkpoints(engine, step.id):
        engine.call("DELETE", f"/containers/{segment(step.id)}/checkpoints/{segment(old)}")
    if step.verb == "checkpoint":
        body = {"CheckpointID": CHECKPOINT + short(plan.decision), "Exit": True}
        return _read(step, "checkpoint", _call(engine, "POST", f"/containers/{segment(step.id)}/checkpoints", body))
    return _send(engine, "POST", step, "stop")


def _update(engine: Engine, step: Step, found: Container, wanted: dict[str, int], may: bool) -> StepStatus:
    if has(found, wanted):
        return StepStatus(f"{step.name} has the requested resources", settled=True)
    return _read(step, "update", _call(engine, "POST", _path(step, "update"), wanted)) if may else _late(step)


def has(found: Container, wanted: dict[str, int]) -> bool:
    """Whether a container has the values of an update."""
    host = part(found.raw, "HostConfig")
    return all(host.get(key) == value for key, value in wanted.items())


def _restored(engine: Engine, step: Step, found: Container) -> StepStatus:
    """Status of a restored container; deletes its checkpoint, so that it is not restored a second time."""
    for old in _checkpoints(engine, step.id):
        engine.call("DELETE", f"/containers/{segment(step.id)}/checkpoints/{segment(old)}")
    return _serves(step, found)


def _checkpoints(engine: Engine, container: str) -> list[str]:
    """Flyball's checkpoints of a container; none if the engine does not support them."""
    answer = engine.get(f"/containers/{segment(container)}/checkpoints")
    names = [str(one.get("Name", "")) for one in answer.entries if answer.status == 200]
    return sorted(name for name in names if name.startswith(CHECKPOINT))


def _serves(step: Step, found: Container) -> StepStatus:
    if found.ready:
        return StepStatus(f"{step.name} runs", settled=True)
    if found.is_replica:
        return StepStatus(f"{step.name} runs and is not ready yet")
    return StepStatus(f"{step.name} has ended", lost=True)


def _late(step: Step) -> StepStatus:
    return StepStatus(f"{step.name} was not asked in time to {step.verb}: the decision has expired", refused=True)


def _path(step: Step, what: str) -> str:
    return f"/containers/{segment(step.id)}/{what}"


def _send(engine: Engine, method: str, step: Step, what: str, **query: str) -> StepStatus:
    return _read(step, what, _call(engine, method, _path(step, what), None, query))


def _call(
    engine: Engine, method: str, path: str, body: object = None, query: dict[str, str] | None = None
) -> Answer | None:
    """One call; ``None`` if the engine has accepted it and is still working on it."""
    try:
        return engine.call(method, path, query, body)
    except NoAnswer:
        return None


def _read(step: Step, what: str, answer: Answer | None) -> StepStatus:
    if answer is None or answer.ok:
        return StepStatus(f"{step.name}: {what} was sent")
    if answer.status == 404 and what != "checkpoint":
        return StepStatus(f"{step.name} was removed", lost=True)
    if answer.status == 409 and what in ("pause", "unpause"):
        return StepStatus(f"{step.name} is changing: {answer.message}")  # the next poll shows its new state
    return StepStatus(f"{step.name} cannot {what}: {answer.message}", refused=True)
