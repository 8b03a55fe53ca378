"""Deadlines as an owner writes them: a moment with its time zone, or a duration from now."""

import re
from datetime import UTC, datetime

from flyball_contracts.ids import MAX_TIME_NS, NS_PER_S

_UNITS_S = {"d": 86_400, "h": 3_600, "min": 60, "m": 60, "s": 1}
_PART = r"(\d{1,18}(?:\.\d{1,18})?)\s*(d|h|min|m|s)"
_DURATION = re.compile(rf"(?:{_PART}\s*)+")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?")
FORMS = "a moment with its zone like 2027-03-01T06:00:00+01:00 (Z for UTC), or a duration from now like 8h or 1d12h"


def moment_ns(text: str, now_ns: int) -> int:
    """Nanoseconds since the epoch of a deadline; raises :class:`ValueError` with what was expected."""
    text = text.strip()
    if _DURATION.fullmatch(text):
        seconds = sum(float(count) * _UNITS_S[unit] for count, unit in re.findall(_PART, text))
        return _within(now_ns + round(seconds * NS_PER_S))
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no deadline; write {FORMS}")
    day, fraction, zone = found.groups()
    if zone is None:
        raise ValueError(f"{text!r} has no time zone; append Z for UTC, or an offset like +01:00")
    try:
        seconds = int(datetime.fromisoformat(f"{day}{zone}").timestamp())
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is no moment: {error}") from error
    return _within(seconds * NS_PER_S + int((fraction or "0").ljust(9, "0")))


def moment_text(time_ns: int) -> str:
    """The moment in UTC, in full, as :func:`moment_ns` accepts it."""
    seconds, rest = divmod(time_ns, NS_PER_S)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _within(time_ns: int) -> int:
    if not 0 <= time_ns <= MAX_TIME_NS:
        raise ValueError("it lies outside the years 1970 to 2262")
    return time_ns
