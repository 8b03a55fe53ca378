"""Configuration sections extended by constants that no file can set."""

import typing
from functools import cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


def with_constants(kind: type[T], section: msgspec.Struct) -> T:
    """Return ``section`` as a ``kind``, which extends its type by fields with defaults; unchanged if it is one.

    Parts add their constants to their section this way: tests and benchmarks vary them, and a file cannot. Nested
    sections are extended likewise, by the types of the fields of ``kind``.
    """
    if isinstance(section, kind):
        return section
    types = _types(kind)
    values = {name: getattr(section, name) for name in section.__struct_fields__}
    return kind(**{name: _extended(types[name], value) for name, value in values.items()})


@cache
def _types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _extended(kind: Any, value: Any) -> Any:
    if typing.get_origin(kind) is tuple and isinstance(value, tuple):
        items: Any = typing.cast("Any", value)
        return tuple(_extended(typing.get_args(kind)[0], one) for one in items)
    if isinstance(value, msgspec.Struct) and msgspec.inspect.is_struct_type(kind):
        return with_constants(kind, value)
    return value
