"""InfluxDB line protocol, v2: `measurement,tag=value field=value time`.

The grammar has no escape for a line break, and none for a backslash at the end of a name or tag value; the former
becomes a space, the latter is followed by one.
"""

import math
from collections.abc import Mapping

_BREAKS = str.maketrans("\n\r\x00", "   ")
_IN_MEASUREMENT = str.maketrans({",": "\\,", " ": "\\ "})
_IN_KEY = str.maketrans({",": "\\,", " ": "\\ ", "=": "\\="})
_IN_STRING = str.maketrans({'"': '\\"', "\\": "\\\\"})

Field = float | int | bool | str | None


def line(measurement: str, tags: Mapping[str, str], fields: Mapping[str, Field], time_ns: int) -> str | None:
    """One line, tags in order of their keys; `None` when no field has a value.

    Empty tags are left out, and so are fields that are `None`, NaN or infinite: the protocol has no such values.
    """
    values = [
        f"{_clean(key).translate(_IN_KEY)}={text}"
        for key, value in fields.items()
        if (text := _value(value)) is not None
    ]
    if not values:
        return None
    named = [
        f",{key.translate(_IN_KEY)}={value.translate(_IN_KEY)}"
        for key, value in sorted((_clean(key), _clean(value)) for key, value in tags.items() if value)
    ]
    return f"{_clean(measurement).translate(_IN_MEASUREMENT)}{''.join(named)} {','.join(values)} {time_ns}"


def _clean(name: str) -> str:
    clean = name.translate(_BREAKS)
    return f"{clean} " if clean.endswith("\\") else clean


def _value(value: Field) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}i"
    if isinstance(value, float):
        return f"{value:.9g}" if math.isfinite(value) else None
    return f'"{value.translate(_BREAKS).translate(_IN_STRING)}"'
