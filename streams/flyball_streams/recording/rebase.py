"""Shifts a message in time."""

from typing import TypeVar

import msgspec

from flyball_contracts.cloudevents import header
from flyball_contracts.codec import decode_message, record_message
from flyball_contracts.frame import Frame, encode_frame
from flyball_contracts.records import Record, Snapshot
from flyball_streams.recording.format import RecordedMessage

T = TypeVar("T", Frame, Record)
_DURATIONS = frozenset({"period_ns", "read_ns"})  # every other field `*_ns` of a source record is an instant


def shift(message: RecordedMessage, by_ns: int) -> RecordedMessage:
    """Move every instant in a message by `by_ns`: headers, and each field `*_ns` that is not a duration.

    The sender sets CreateTime. Ids inside records are kept, and so are headers that are not of CloudEvents.
    `DecodeError` when the message cannot be read, `ValueError` when it is a snapshot.
    """
    record = decode_message(message.topic, message.value, message.headers)
    moved = message._replace(time_ns=message.time_ns + by_ns)
    if isinstance(record, Snapshot):
        raise ValueError("a snapshot belongs to its offsets; it cannot be moved in time")
    if isinstance(record, Frame):
        return moved._replace(value=encode_frame(_moved(record, by_ns)))
    made = record_message(_moved(record, by_ns), header(message.headers, "ce_source") or "/flyball/replay")
    ours = {name for name, _ in made.headers}
    others = [(name, value) for name, value in message.headers if name not in ours]
    return moved._replace(value=made.value, headers=[*made.headers, *others])


def _moved(record: T, by_ns: int) -> T:
    instants = {
        name: value + by_ns
        for name in record.__struct_fields__
        if name.endswith("_ns") and name not in _DURATIONS and (value := getattr(record, name)) is not None
    }
    return msgspec.structs.replace(record, **instants)
