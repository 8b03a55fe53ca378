"""AsyncAPI messages of the formats other than JSON: telemetry frames and snapshots, both msgpack."""

import inspect

import msgspec

from flyball_contracts.frame import MAX_ROWS, Frame
from flyball_contracts.ids import MAX_TIME_NS
from flyball_contracts.metrics import LAYOUTS, Layout
from flyball_contracts.records import Snapshot
from flyball_contracts.schema.json_schema import Schema

PACKED = "application/msgpack"
_COUNT: Schema = {"type": "integer", "minimum": 0}
_TIME: Schema = {**_COUNT, "maximum": MAX_TIME_NS, "format": "int64"}
_FIELDS: dict[str, Schema] = {
    "schema": {"type": "integer", "enum": sorted(LAYOUTS), "description": "layout of the columns, see below"},
    "node": {"type": "string", "minLength": 1, "description": "name of the node, also the key"},
    "boot_id": {"type": "string", "description": "the kernel's id of this boot"},
    "epoch": {**_COUNT, "description": "starts of the agent"},
    "seq": {**_COUNT, "description": "frames of this run, over all layouts"},
    "time_ns": {**_TIME, "description": "when the values were true, nanoseconds since 1970 UTC"},
    "read_ns": {**_COUNT, "description": "time that reading them took"},
    "period_ns": {"type": "integer", "minimum": 1, "description": "time that the counters cover"},
    "inventory_epoch": {**_TIME, "description": "inventory that says what the rows are"},
    "rows": {**_COUNT, "maximum": MAX_ROWS, "description": "rows of the block"},
    "block": {"description": "msgpack bin: little-endian float32, row-major [row, metric]; NaN is a missing value"},
}


def frame_message() -> Schema:
    """The telemetry frame: the array's places, and a table of columns for each layout."""
    assert tuple(_FIELDS) == Frame.__struct_fields__
    return {
        "name": "Frame",
        "title": "Frame",
        "summary": "One node's tick: a msgpack array whose last place is a packed float32 block.",
        "description": "\n\n".join([inspect.cleandoc(Frame.__doc__ or ""), *map(_table, LAYOUTS.values())]),
        "contentType": PACKED,
        "payload": {
            "type": "array",
            "minItems": len(_FIELDS),
            "maxItems": len(_FIELDS),
            "items": [{"title": name, **field} for name, field in _FIELDS.items()],
        },
        "x-flyball-layouts": {
            layout.name: {
                "schema": layout.schema,
                "rows": layout.rows,
                "metrics": [msgspec.to_builtins(metric) for metric in layout.metrics],
            }
            for layout in LAYOUTS.values()
        },
    }


def snapshot_message() -> Schema:
    """A lane's state; opaque to all but the lane."""
    (_, found) = msgspec.json.schema_components([Snapshot], ref_template="{name}")
    payload = found["Snapshot"]
    payload["properties"]["state"] = {"description": "msgpack bin, opaque"}
    payload["description"] = inspect.cleandoc(payload["description"])
    return {
        "name": "Snapshot",
        "title": "Snapshot",
        "summary": (Snapshot.__doc__ or "").partition("\n")[0],
        "contentType": PACKED,
        "payload": payload,
    }


def _table(layout: Layout) -> str:
    rows = [
        f"| {i} | `{metric.key}` | {metric.unit} | {metric.instrument} | {metric.about} |"
        for i, metric in enumerate(layout.metrics)
    ]
    head = [
        f"Layout {layout.schema} (`{layout.name}`), one row for each {layout.rows}:",
        "",
        "| column | metric | unit (UCUM) | instrument | meaning |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows])
