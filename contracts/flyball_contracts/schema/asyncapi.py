"""An AsyncAPI 3 document of all topics, with Kafka bindings."""

from typing import Any

from flyball_contracts.cloudevents import TYPE_PREFIX
from flyball_contracts.codec import BINDINGS, RECORD_TYPES
from flyball_contracts.config import Config
from flyball_contracts.deadletter import MOST_BYTES, PREFIX
from flyball_contracts.schema.json_schema import Schema, components
from flyball_contracts.schema.packed import frame_message, snapshot_message
from flyball_contracts.security.rights import roles
from flyball_contracts.topics import DEAD_LETTERS, RETENTION_MS, STATE, TELEMETRY, TOPICS, Topic

VERSION = "1.0.0"
KAFKA_BINDING = "0.5.0"
_SCHEMAS = "#/components/schemas/"
_MESSAGES = "#/components/messages/"


def asyncapi() -> dict[str, Any]:
    """The document as plain data, in reading order."""
    _, schemas = components(RECORD_TYPES.values(), _SCHEMAS + "{name}")
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Flyball",
            "version": VERSION,
            "description": (
                "GPU fleets, governed: telemetry in, scale, migrate and preempt decisions out. Every arrow "
                "between the parts is a Kafka topic of this document. Records are JSON in CloudEvents 1.0 binary "
                "mode; telemetry frames and snapshots are msgpack. Keys are placed by murmur2, as in Java clients."
            ),
        },
        "defaultContentType": "application/json",
        "servers": {
            "local": {
                "host": "127.0.0.1:9092",
                "protocol": "kafka",
                "description": "Where the parts look for a broker unless told otherwise.",
            }
        },
        "channels": {_channel_id(topic): _channel(topic) for topic in TOPICS.values()},
        "operations": _operations(),
        "components": {
            "messages": _messages(),
            "messageTraits": {"cloudEvent": {"headers": {"$ref": _SCHEMAS + "CloudEventHeaders"}}},
            "schemas": {**schemas, "CloudEventHeaders": _cloud_event_headers()},
        },
    }


def _channel_id(topic: Topic) -> str:
    return topic.name.split(".")[1]


def _messages_on(topic: Topic) -> list[str]:
    if topic is TELEMETRY:
        return ["Frame"]
    if topic is STATE:
        return ["Snapshot"]
    if topic is DEAD_LETTERS:
        return ["DeadLetter"]
    return [kind.__name__ for kind, binding in BINDINGS.items() if binding.topic is topic]


def _channel(topic: Topic) -> Schema:
    kept = {"cleanup.policy": ["compact" if topic.retention == "compacted" else "delete"]}
    limit = {} if topic.retention == "compacted" else {"retention.ms": RETENTION_MS[topic.retention]}
    return {
        "address": topic.name,
        "description": f"{topic.holds[0].upper()}{topic.holds[1:]}, keyed by {topic.key}.",
        "messages": {name: {"$ref": _MESSAGES + name} for name in _messages_on(topic)},
        "bindings": {
            "kafka": {
                "topic": topic.name,
                "partitions": topic.partitions,
                "topicConfiguration": {**kept, **limit},
                "bindingVersion": KAFKA_BINDING,
            }
        },
    }


def _operations() -> Schema:
    found: Schema = {}
    for part, role in roles(Config()).items():
        for action, topics in (("send", role.writes), ("receive", role.reads)):
            for topic in topics:
                channel = _channel_id(topic)
                verb = "says" if action == "send" else "hears"
                found[f"{part}{action.capitalize()}s{channel.capitalize()}"] = {
                    "action": action,
                    "channel": {"$ref": f"#/channels/{channel}"},
                    "summary": f"The {part} {verb}: {topic.holds}.",
                }
    return found


def _key(topic: Topic) -> Schema:
    return {"kafka": {"key": {"type": "string", "description": topic.key}, "bindingVersion": KAFKA_BINDING}}


def _messages() -> Schema:
    found: Schema = {}
    for kind, binding in BINDINGS.items():
        name = kind.__name__
        found[name] = {
            "name": TYPE_PREFIX + name,
            "title": name,
            "summary": (kind.__doc__ or "").partition("\n")[0],
            "contentType": "application/json",
            "traits": [{"$ref": "#/components/messageTraits/cloudEvent"}],
            "payload": {"$ref": _SCHEMAS + name},
            "bindings": _key(binding.topic),
        }
    found["Frame"] = {**frame_message(), "bindings": _key(TELEMETRY)}
    found["Snapshot"] = {**snapshot_message(), "bindings": _key(STATE)}
    found["DeadLetter"] = {
        "name": "DeadLetter",
        "title": "DeadLetter",
        "summary": (
            f"A message that was refused, and why. Key, value and headers are untouched, except in a letter of more "
            f"than {MOST_BYTES} bytes: its headers cut.* name what was cut, and it must not be sent again."
        ),
        "contentType": "application/octet-stream",
        "headers": {
            "type": "object",
            "required": [PREFIX + part for part in _REASONS],
            "properties": {
                PREFIX + part: {"type": "string", "description": about} for part, about in (_REASONS | _CUT).items()
            },
        },
        "payload": {"description": "The bytes of the original message, or the first of them."},
        "bindings": _key(DEAD_LETTERS),
    }
    return found


_REASONS = {
    "topic": "where it came from",
    "partition": "its partition there, in digits",
    "offset": "its offset there, in digits",
    "stage": "the part that refused it",
    "exception.class.name": "kind of error",
    "exception.message": "what was wrong, and what of the message was cut",
}
_CUT = {
    "cut.value.bytes": "only if the value was cut: its bytes before, in digits",
    "cut.key.bytes": "only if the key was cut: its bytes before, in digits",
    "cut.headers.bytes": "only if headers were left out: the bytes of all (names, values and 10 for each), in digits",
}


def _cloud_event_headers() -> Schema:
    properties: Schema = {
        "content-type": {"const": "application/json"},
        "ce_specversion": {"const": "1.0"},
        "ce_type": {"type": "string", "enum": [TYPE_PREFIX + name for name in sorted(RECORD_TYPES)]},
        "ce_source": {"type": "string", "format": "uri-reference", "description": "who says it"},
        "ce_id": {
            "type": "string",
            "minLength": 1,
            "description": "the same cause gives the same id: the idempotency key",
        },
        "ce_time": {"type": "string", "format": "date-time", "description": "event time, in nanoseconds, UTC"},
    }
    required = list(properties)
    properties["flyball-signature"] = {
        "type": "string",
        "description": "of a decision: key id, colon, base64 of the Ed25519 signature of topic, zero byte and value",
    }
    return {
        "title": "CloudEventHeaders",
        "description": "CloudEvents 1.0 attributes in the Kafka binding's binary mode; header values are UTF-8 text.",
        "type": "object",
        "required": required,
        "properties": properties,
    }
