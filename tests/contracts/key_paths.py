"""All keys of a configuration document."""

import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec


def key_paths(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Paths of the leaf keys of a document of type ``kind``, such as ``kafka.bootstrap``, in the order of its fields.

    A leaf is a key whose value has no further named keys. An item of a list counts once, whatever the list's length,
    and each section counts at each of its places. If a place accepts several kinds of section, a key that they share
    counts once. Keys of mappings do not count: they are topics, labels or label values.
    """
    return tuple(dict.fromkeys(_leaves(kind, "")))


def _leaves(kind: Any, path: str) -> Iterator[str]:
    sections = list(_sections(kind))
    if not sections:
        yield path
    for section in sections:
        for name, inner in section.items():
            yield from _leaves(inner, f"{path}.{name}" if path else name)


def _sections(kind: Any) -> Iterator[Mapping[str, Any]]:
    """Sections that a value of ``kind`` can contain, through options, lists and unions: fields and their types."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        yield from _sections(inner[0])
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        tag = kind.__struct_config__
        named = {} if tag.tag is None else {str(tag.tag_field): str}
        yield named | {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield from _sections(inner[1])
    elif origin is not Literal:
        for member in inner:
            yield from _sections(member)
