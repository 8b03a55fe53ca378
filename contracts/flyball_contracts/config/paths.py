"""Every key that a configuration document may hold."""

import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec


def key_paths(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Paths of the leaf keys of a document of type ``kind``, such as ``kafka.bootstrap``, in the order of its fields.

    A leaf is a key whose value holds no further keys that Flyball names. An item of a list counts once, however long
    the list may be, and each section counts at each place where it may stand. Where one of several kinds of section
    may stand, a key that they share is one key. Keys of mappings do
    not count: they are topics, labels or values of labels.
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
    """What may stand below a value of ``kind``, through options, lists and unions: fields and their types."""
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
