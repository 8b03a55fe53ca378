"""Judgement of a recording's decisions by a guard, each at its own time."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from flyball_actuators.guard import Guard, GuardState
from flyball_actuators.platforms.table import described
from flyball_actuators.world import WorldTables
from flyball_contracts.codec import decode_message
from flyball_contracts.config import ActuatorConfig
from flyball_contracts.errors import DecodeError, RecordingError
from flyball_contracts.records import AnyDecision, Record
from flyball_contracts.topics import CONTROLS, DECISIONS, INVENTORY, WORKLOADS
from flyball_streams.recording import Recording

_READ = frozenset(topic.name for topic in (WORKLOADS, INVENTORY, CONTROLS, DECISIONS))

Update = Callable[[int, int], object]


class JudgedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """One decision and the guard's verdict on it: ``accepted``, ``refused`` or ``superseded``.

    ``code`` says why it was not accepted, and ``policy`` names the policy that refused it, empty if none did.
    """

    decision: str
    type: str
    target: str
    time_ns: int
    reason: str
    verdict: str
    code: str
    policy: str
    detail: str


def judge_recorded(
    path: Path, config: ActuatorConfig, update: Callable[[int, int], object] = lambda done, total: None
) -> list[JudgedDecision]:
    """Judge all decisions of a recording, in order, as an actuator with this configuration would have.

    A decision is judged at its own time, on the earlier workloads, inventories and orders; accepted ones count toward
    the limits. ``update`` receives the number of messages read, and of all. Raises :class:`RecordingError` if the file
    is no recording, or has no decisions.
    """
    settings = msgspec.structs.replace(config, mode="live", clock="event")
    guard = Guard(settings, described(config.platforms).keeps_to_node)
    state, tables = GuardState(), WorldTables()
    found: list[JudgedDecision] = []
    seen: set[str] = set()
    recording, done = Recording.open(path), 0
    for batch in recording.messages():
        for message in batch:
            if message.topic not in _READ:
                continue
            if message.value is None:
                tables.forget(message.topic, (message.key or b"").decode("utf-8", "replace"))
                continue
            try:
                record = decode_message(message.topic, message.value, message.headers)
            except DecodeError:
                continue  # an actuator sends it to the dead letters
            if isinstance(record, AnyDecision):
                if record.id not in seen:
                    seen.add(record.id)
                    state, verdict = guard.authorise(state, record, record.time_ns, tables.view(""))
                    found.append(
                        JudgedDecision(
                            decision=record.id,
                            type=type(record).__name__,
                            target=record.target,
                            time_ns=record.time_ns,
                            reason=record.reason,
                            verdict=verdict.status,
                            code=verdict.code,
                            policy=verdict.policy,
                            detail=verdict.detail,
                        )
                    )
            elif isinstance(record, Record):
                tables.take(record)
        done += len(batch)
        update(done, recording.rows)
    if not found:
        raise RecordingError(f"{path}: has no decisions; record a broker where a worker runs, with all topics")
    return found
