"""CloudEvents 1.0 in the Kafka protocol binding's binary mode.

The attributes travel as headers ``ce_<name>`` in UTF-8, the record as plain JSON in the value, so a
subscriber needs no library of ours: https://github.com/cloudevents/spec (kafka-protocol-binding).
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache

Header = tuple[str, bytes]
TYPE_PREFIX = "io.flyball."
CONTENT_TYPE = b"application/json"


def rfc3339(time_ns: int) -> str:
    """UTC timestamp with nanoseconds, from nanoseconds since the epoch."""
    seconds, nanos = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanos:09d}Z"


def event_headers(kind: str, identity: str, source: str, time_ns: int) -> list[Header]:
    """Headers of one event: ``kind`` is the record's type name, ``source`` a URI reference."""
    return [*_headers_of(kind, source), ("ce_id", identity.encode()), ("ce_time", _time_header(time_ns))]


@lru_cache(maxsize=1024)
def _headers_of(kind: str, source: str) -> tuple[Header, ...]:
    return (
        ("content-type", CONTENT_TYPE),
        ("ce_specversion", b"1.0"),
        ("ce_type", f"{TYPE_PREFIX}{kind}".encode()),
        ("ce_source", source.encode()),
    )


@lru_cache(maxsize=256)  # all records of a tick have the same few times
def _time_header(time_ns: int) -> bytes:
    return rfc3339(time_ns).encode()


def header(headers: Iterable[tuple[str, bytes | None]] | None, name: str) -> str | None:
    """Value of one header as text (the last one wins), or ``None``; undecodable bytes are replaced."""
    found: bytes | None = None
    for key, value in headers or ():
        if key == name:
            found = value
    return None if found is None else found.decode("utf-8", "replace")


def event_kind(headers: Sequence[tuple[str, bytes | None]] | None) -> str | None:
    """Record type name in ``ce_type``, or ``None`` where it is absent or not ours."""
    found: bytes | None = None
    for key, value in headers or ():
        if key == "ce_type":
            found = value
    return None if found is None else _kind(found)


@lru_cache(maxsize=256)  # the same few types come with every message
def _kind(value: bytes) -> str | None:
    name = value.decode("utf-8", "replace")
    return name.removeprefix(TYPE_PREFIX) if name.startswith(TYPE_PREFIX) else None
