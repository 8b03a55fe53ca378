"""Text of the values that a configuration key accepts, for errors."""

import re
import types
import typing
from typing import Any, Literal

import msgspec

_NAMES = {
    "object": "keys with values", "array": "a list", "str": "text", "int": "a whole number", "float": "a number",
    "bool": "true or false", "null": "nothing",
}  # fmt: skip
_BOUNDS = {"<=": "at most", "<": "less than", ">=": "at least", ">": "more than"}
_BOUND = re.compile(r"Expected `[a-z]+` (of length )?([<>]=?) ([-+.\de]+)")
_TYPES = re.compile(r"Expected `([a-z |]+)`, got `([a-z]+)`")


def plainly(message: str) -> str:
    """The message of msgspec about a value, in the terms of YAML; other messages only get a lower-case first letter."""
    if bound := _BOUND.fullmatch(message):
        length, sign, number = bound.groups()
        if length and (sign, number) == (">=", "1"):
            return "must not be empty"
        return f"must {'have a length of' if length else 'be'} {_BOUNDS[sign]} {float(number):.15g}"
    if types_ := _TYPES.fullmatch(message):
        wanted, got = (" or ".join(_NAMES.get(one, one) for one in group.split(" | ")) for group in types_.groups())
        return f"expected {wanted}, got {got}"
    return message[0].lower() + message[1:]


def expected_at(kind: Any, path: str) -> str:
    """The choices, or the format, of the value at ``path`` of a ``kind``; empty if its type is enough."""
    for part in re.findall(r"[^.\[\]]+|\[[^\]]*\]", path):
        kind = _within(kind, part)
    for plain in _members(kind):
        if typing.get_origin(plain) is Literal:
            return f"one of {', '.join(str(one) or repr('') for one in typing.get_args(plain))}"
        for meta in getattr(plain, "__metadata__", ()):
            if isinstance(meta, msgspec.Meta) and meta.pattern and meta.description:
                return meta.description
    return ""


def _within(kind: Any, part: str) -> Any:
    """Type of a field, or of an item of a list or mapping; ``None`` where there is none."""
    for member in _members(kind):
        plain = typing.get_args(member)[0] if hasattr(member, "__metadata__") else member
        if isinstance(plain, type) and issubclass(plain, msgspec.Struct):
            if (found := typing.get_type_hints(plain, include_extras=True).get(part)) is not None:
                return found
            continue
        inner = typing.get_args(plain)
        if inner and part.startswith("["):
            return inner[-1] if part == "[...]" else inner[0]
        if inner and typing.get_origin(plain) is not Literal:
            return inner[-1]
    return None


def _members(kind: Any) -> tuple[Any, ...]:
    """The members of an optional type or a union, or the type itself."""
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if union else (kind,)
