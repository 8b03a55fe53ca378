"""From records to Kafka messages and back, for every topic."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from flyball_contracts.cloudevents import Header, event_headers, event_kind
from flyball_contracts.errors import DecodeError, UnknownSchema
from flyball_contracts.frame import Frame, decode_frame, encode_frame
from flyball_contracts.ids import MAX_TIME_NS, record_id
from flyball_contracts.records import (
    Account,
    Acknowledgement,
    Anomaly,
    Approval,
    Capacity,
    Check,
    DemandTick,
    Forecast,
    Incident,
    Inventory,
    Label,
    MachineChoice,
    Migrate,
    NodeCondition,
    NodeEvent,
    Outcome,
    Plan,
    PlatformStatus,
    Pool,
    Preempt,
    Profile,
    ProposalTick,
    Readmission,
    Record,
    Scale,
    Signal,
    Silence,
    Snapshot,
    Stop,
    Waste,
    WorkloadProfile,
    WorkloadSpec,
)
from flyball_contracts.records.pools import decision_key
from flyball_contracts.records.responses import AnyResponse
from flyball_contracts.topics import (
    CONTROLS,
    DECISIONS,
    DEMAND,
    EVENTS,
    INCIDENTS,
    INSIGHTS,
    INVENTORY,
    OUTCOMES,
    POOLS,
    PROPOSALS,
    RESPONSES,
    SIGNALS,
    STATE,
    TELEMETRY,
    TOPICS,
    WORKLOADS,
    Topic,
)

R = TypeVar("R", bound=Record)


class Message(NamedTuple):
    """A message for a broker. ``partition`` is ``None`` if the key determines it (murmur2, as in Java)."""

    topic: str
    key: bytes
    value: bytes
    headers: list[Header]
    partition: int | None = None


class _Binding(NamedTuple):
    """Transport of one record type: topic, key, CloudEvents id, event time, and the partition if not by the key."""

    topic: Topic
    key: Callable[[Any], str]
    identity: Callable[[Any], str]
    time_ns: Callable[[Any], int]
    partition: Callable[[Any], int] | None


BINDINGS: dict[type[Record], _Binding] = {}


def _bind(
    kind: type[R],
    topic: Topic,
    key: Callable[[R], str],
    identity: Callable[[R], str] = lambda record: cast("Any", record).id,
    time_ns: Callable[[R], int] = lambda record: cast("Any", record).time_ns,
    partition: Callable[[R], int] | None = None,
) -> None:
    BINDINGS[kind] = _Binding(topic, key, identity, time_ns, partition)


_bind(NodeEvent, EVENTS, lambda r: r.node)
_bind(Inventory, INVENTORY, lambda r: r.node, lambda r: record_id("Inventory", r.node, r.boot_id, r.epoch))
_bind(WorkloadSpec, WORKLOADS, lambda r: r.workload, lambda r: record_id("WorkloadSpec", r.workload, r.time_ns))
_bind(Stop, CONTROLS, lambda r: f"stop/{r.cell}", lambda r: record_id("Stop", r.cell, r.time_ns))
_bind(
    Approval,
    CONTROLS,
    lambda r: f"approval/{r.decision.id}",
    lambda r: record_id("Approval", r.decision.id, r.time_ns),
)
_bind(Pool, POOLS, lambda r: r.pool, lambda r: record_id("Pool", r.pool, r.time_ns))
_bind(
    Signal,
    SIGNALS,
    lambda r: r.zone,
    lambda r: record_id("Signal", r.zone, r.kind, r.source, r.published_ns, r.start_ns),
    lambda r: r.published_ns,
)
_bind(
    DemandTick,
    DEMAND,
    lambda r: r.cell,
    lambda r: record_id("DemandTick", r.cell, r.source, r.tick.index, r.partition, r.part),
    lambda r: r.tick.end_ns,
    lambda r: r.partition,
)
_bind(Profile, INSIGHTS, lambda r: r.subject)
_bind(Forecast, INSIGHTS, lambda r: r.subject)
_bind(Anomaly, INSIGHTS, lambda r: r.subject)
_bind(Capacity, INSIGHTS, lambda r: r.subject)
_bind(MachineChoice, INSIGHTS, lambda r: r.subject)
_bind(Plan, INSIGHTS, lambda r: r.subject)
_bind(WorkloadProfile, INSIGHTS, lambda r: r.subject)
_bind(Waste, INSIGHTS, lambda r: r.subject)
_bind(PlatformStatus, INSIGHTS, lambda r: r.subject)
_bind(Account, INSIGHTS, lambda r: r.subject)
_bind(
    ProposalTick,
    PROPOSALS,
    lambda r: r.cell,
    lambda r: record_id("ProposalTick", r.cell, r.source, r.tick.index, r.part),
    lambda r: r.tick.end_ns,
)
_bind(Scale, DECISIONS, decision_key)
_bind(Migrate, DECISIONS, decision_key)
_bind(Preempt, DECISIONS, decision_key)
_bind(Check, DECISIONS, decision_key)
_bind(Outcome, OUTCOMES, lambda r: r.target)
_bind(Incident, INCIDENTS, lambda r: f"{r.cell}/{r.id}", lambda r: record_id("Incident", r.id, r.revision))
_bind(
    NodeCondition,
    INCIDENTS,
    lambda r: f"{r.cell}/node/{r.node}",
    lambda r: record_id("NodeCondition", r.cell, r.node, r.time_ns, r.revision),
)
_RESPONSES: tuple[type[AnyResponse], ...] = (Acknowledgement, Silence, Label, Readmission)
for _response in _RESPONSES:
    _bind(_response, RESPONSES, lambda r: r.key, lambda r: record_id(type(r).__name__, r.key, r.time_ns))
RECORD_TYPES: dict[str, type[Record]] = {kind.__name__: kind for kind in BINDINGS}

_json = msgspec.json.Encoder()
_packed = msgspec.msgpack.Encoder()
_decoders = {name: msgspec.json.Decoder(kind) for name, kind in RECORD_TYPES.items()}
_snapshot_decoder = msgspec.msgpack.Decoder(Snapshot)


def frame_message(frame: Frame) -> Message:
    """Kafka message of a telemetry frame, keyed by node."""
    return Message(TELEMETRY.name, frame.node.encode(), encode_frame(frame), [])


def snapshot_message(snapshot: Snapshot) -> Message:
    """Kafka message of a lane's state, keyed by lane, partition and part."""
    key = f"{snapshot.lane}/{snapshot.partition}/{snapshot.part}"
    return Message(STATE.name, key.encode(), _packed.encode(snapshot), [])


def record_message(record: Record, source: str) -> Message:
    """Kafka message of a JSON record in CloudEvents binary mode; ``source`` is the sender (a URI reference)."""
    binding = BINDINGS[type(record)]
    headers = event_headers(type(record).__name__, binding.identity(record), source, binding.time_ns(record))
    partition = None if binding.partition is None else binding.partition(record)
    return Message(binding.topic.name, binding.key(record).encode(), _json.encode(record), headers, partition)


def decode_record(topic: str, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None) -> Record:
    """Record of a CloudEvents message.

    Raises :class:`DecodeError` (and nothing else) for anything else, and for a record that does not belong on
    ``topic``.
    """
    kind = event_kind(headers)
    if kind is None:
        raise DecodeError(f"message on {topic} has no ce_type header of ours; send CloudEvents binary mode")
    record_type = RECORD_TYPES.get(kind)
    if record_type is None or BINDINGS[record_type].topic.name != topic:
        raise UnknownSchema(f"record type {kind!r} does not belong on {topic}")
    if value is None:
        raise DecodeError(f"{kind} on {topic} has no value; a tombstone is not a record")
    try:
        record = _decoders[kind].decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError) as error:
        raise DecodeError(f"{kind} on {topic}: {error}") from error
    if BINDINGS[record_type].time_ns(record) > MAX_TIME_NS:
        raise DecodeError(f"{kind} on {topic}: its tick ends after 2^63-1 ns")
    return record


def decode_snapshot(value: bytes) -> Snapshot:
    """Snapshot of a lane; raises :class:`DecodeError` for invalid bytes."""
    try:
        return _snapshot_decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError, RecursionError) as error:
        raise DecodeError(f"not a snapshot ({len(value)} bytes): {error}") from error


def decode_message(
    topic: str, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None
) -> Record | Frame | Snapshot:
    """Decode a message of any topic of the table but the dead letters, which are untouched bytes.

    Raises :class:`DecodeError` when it cannot be read.
    """
    if topic not in TOPICS:
        raise UnknownSchema(f"topic {topic!r} is not in the topic table")
    if topic == TELEMETRY.name:
        return decode_frame(value or b"")
    if topic == STATE.name:
        return decode_snapshot(value or b"")
    return decode_record(topic, value, headers)
