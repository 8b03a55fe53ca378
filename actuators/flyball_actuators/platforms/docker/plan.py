"""The plan of a decision, stored in the engine before anything is done.

Docker has neither request tokens nor versions, and container labels never change. Volumes have labels and unique names:
a decision's plan is a label of an empty volume that is named after the decision. Creating a volume that exists changes
nothing and returns the existing one.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from flyball_actuators.platforms.base import PlatformError
from flyball_actuators.platforms.docker.containers import DECISION, WORKLOAD, part
from flyball_actuators.platforms.docker.engine import Engine
from flyball_contracts.records import AnyDecision

PLAN, TIME = "flyball.dev/plan", "flyball.dev/time-ns"
KEPT_NS = 24 * 3600 * 1_000_000_000
"""Plans are removed after a day; the guard refuses decisions of that age long before."""
Verb = Literal["start", "unpause", "copy", "stop", "pause", "checkpoint", "update"]


class Step(msgspec.Struct, frozen=True, omit_defaults=True, array_like=True):
    """One container and what is done to it.

    ``started_at`` is its last start on the engine's clock; it distinguishes a container that was not started yet from
    one that was started and has ended. A ``copy`` is made of container ``id`` and called ``name``.
    """

    verb: Verb
    id: str
    name: str
    started_at: str = ""
    grace_s: int = 0


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """All steps of a decision, and the deadlines for starting steps and for their effect.

    ``partly``: some containers do not get the new resources.
    """

    decision: str
    workload: str
    version: str
    replicas: int
    begun_ns: int
    begin_until_ns: int
    until_ns: int
    steps: tuple[Step, ...] = ()
    update: dict[str, dict[str, int]] = {}
    partly: bool = False

    def encode(self) -> str:
        """As text, for an outcome and a label."""
        return msgspec.json.encode(self).decode()


def decode(text: str) -> Plan:
    """Parse the plan of an outcome; :class:`PlatformError` for another platform's."""
    try:
        return msgspec.json.decode(text, type=Plan)
    except msgspec.DecodeError as error:
        raise PlatformError(f"operation {text[:200]!r} is none of platform docker: {error}") from error


def short(decision: str) -> str:
    """Hash of a decision, as part of names."""
    return hashlib.sha256(decision.encode()).hexdigest()[:12]


def store_plan(engine: Engine, decision: AnyDecision, plan: Plan) -> Plan:
    """Store a plan; if the decision already has one, return that instead."""
    labels = {
        DECISION: decision.id,
        WORKLOAD: decision.workload,
        TIME: str(decision.time_ns),
        PLAN: plan.encode(),
    }
    answer = engine.call("POST", "/volumes/create", body={"Name": _name(decision.id), "Labels": labels})
    if answer.status not in (200, 201):
        raise PlatformError(f"{engine.url}: the decision cannot be written down: {answer.message}")
    return _read(engine, answer.fields, decision.id)


def load_plan(engine: Engine, decision: str) -> Plan | None:
    """The stored plan of a decision; ``None`` if nothing was started."""
    answer = engine.get(f"/volumes/{_name(decision)}")
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise PlatformError(f"{engine.url}: the decision's plan cannot be read: {answer.message}")
    return _read(engine, answer.fields, decision)


def remove_old_plans(engine: Engine, decision: AnyDecision) -> None:
    """Remove plans for the same workload that are a day older."""
    answer = engine.get("/volumes", filters={"label": [f"{WORKLOAD}={decision.workload}", DECISION]})
    found: Sequence[dict[str, Any]] = answer.fields.get("Volumes") or ()
    for volume in found:
        time_ns = str(part(volume, "Labels").get(TIME, ""))
        if time_ns.isdigit() and int(time_ns) + KEPT_NS < decision.time_ns:
            engine.call("DELETE", f"/volumes/{volume['Name']}")


def _name(decision: str) -> str:
    return f"flyball-{short(decision)}"


def _read(engine: Engine, volume: dict[str, Any], decision: str) -> Plan:
    labels: dict[str, str] = part(volume, "Labels")
    if labels.get(DECISION) != decision or PLAN not in labels:
        raise PlatformError(
            f"{engine.url}: volume {_name(decision)} is not the plan of decision {decision}; who made it? Remove it"
        )
    return decode(labels[PLAN])
