"""One JSON Schema (draft 2020-12) for each record type."""

import inspect
from collections.abc import Iterable
from typing import Any

import msgspec

from flyball_contracts.codec import RECORD_TYPES

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_id(kind: str) -> str:
    """Identifier of a record type's schema; a name, not an address."""
    return f"urn:flyball:schema:v1:{kind}"


def json_schemas() -> dict[str, Schema]:
    """Schema of the JSON value of each record type, by type name.

    Unknown properties are allowed, because readers ignore them.
    """
    found: dict[str, Schema] = {}
    for name, kind in sorted(RECORD_TYPES.items()):
        (_, parts) = components([kind], "#/$defs/{name}")
        own = parts.pop(name)
        found[name] = {"$schema": DIALECT, "$id": schema_id(name), **own}
        if parts:
            found[name]["$defs"] = parts
    return found


def components(kinds: Iterable[type], ref_template: str) -> tuple[list[Schema], dict[str, Schema]]:
    """References to, and definitions of, types and everything they contain; descriptions are their docstrings."""
    refs, found = msgspec.json.schema_components(kinds, ref_template=ref_template)
    for definition in found.values():
        if "description" in definition:
            definition["description"] = inspect.cleandoc(definition["description"])
    plain: dict[str, Schema] = msgspec.json.decode(msgspec.json.encode(found))  # defaults that are tuples become lists
    return list(refs), dict(sorted(plain.items()))
