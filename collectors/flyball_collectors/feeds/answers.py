"""Decodes responses to typed values, with errors that name the field."""

from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

from flyball_collectors.feeds.base import FeedError
from flyball_collectors.feeds.curve import valid_time

T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def decode_json(body: bytes, kind: type[T], where: str) -> T:
    """Decode a response as ``kind``; raises :class:`FeedError` that names ``where`` and the field."""
    if body.lstrip()[:1] == b"<":
        raise FeedError(f"{where}: an HTML page, not JSON; see whether a proxy wants a log-in")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        field = path.rstrip("`") or "$"
        text = f"{where}: {field}: {message[:1].lower()}{message[1:]}; the provider's format is not the one known"
        raise FeedError(text) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FeedError(f"{where}: not whole JSON ({len(body)} bytes): {error}; it is requested again") from error


def time_ns(text: str, where: str) -> int:
    """Nanoseconds since the epoch of an ISO 8601 time with an offset; raises :class:`FeedError`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise FeedError(f"{where}: {text[:40]!r} is no ISO 8601 time; write e.g. 2026-01-31T12:30Z") from error
    if found.tzinfo is None:
        raise FeedError(f"{where}: {text[:40]!r} has no offset from UTC; append Z or e.g. +01:00")
    result = (found - _EPOCH) // timedelta(microseconds=1) * 1000
    if not valid_time(result):
        raise FeedError(f"{where}: {text[:40]!r} is out of range; expected a time after 1970")
    return result
