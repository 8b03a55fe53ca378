"""Nodes that are gone for good: their inventories, and the tombstones that end them."""

import difflib
from collections.abc import Sequence

from flyball_cli.compacted import read_compacted, remove_keys
from flyball_cli.explain.records import last_sent
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import FlyballError
from flyball_contracts.records import Inventory
from flyball_contracts.tables import Tables
from flyball_contracts.topics import INVENTORY, TELEMETRY

CLIENT = "flyball-nodes"
RECENT_S = 120.0
"""A node that has sent a frame within this time is there."""


class NotRemovable(FlyballError):
    """A node has no inventory, belongs to another cell, or still sends frames."""


def removable(kafka: KafkaConfig, names: Sequence[str], cell: str | None) -> list[Inventory]:
    """Inventories of nodes that are gone; of ``cell``, if given.

    Raises :class:`NotRemovable`, and :class:`TransportError` when the broker does not respond or lacks a topic.
    """
    tables = Tables()
    for key, record in read_compacted(kafka, INVENTORY, CLIENT):
        if record is None:
            tables.forget(INVENTORY.name, key)
        else:
            tables.apply(record)
    for name in names:
        if name not in tables.inventories:
            near = difflib.get_close_matches(name, tables.inventories, 1)
            hint = f"did you mean {near[0]!r}?" if near else "name one as its agent does (agent.node)"
            raise NotRemovable(f"node {name!r} has no inventory; {hint}")
        found = tables.inventories[name]
        if cell is not None and found.cell != cell:
            raise NotRemovable(f"node {name!r} is of cell {found.cell!r}, not {cell!r}; correct --cell")
    there = sorted(last_sent(kafka, TELEMETRY, set(names), RECENT_S))
    if there:
        raise NotRemovable(
            f"{', '.join(there)} sent frames in the last {RECENT_S:.0f} s; stop the agent, and wait for as long"
        )
    return [tables.inventories[name] for name in dict.fromkeys(names)]


def remove(kafka: KafkaConfig, names: Sequence[str]) -> None:
    """Publish a tombstone of each inventory; :class:`TransportError` if the broker does not acknowledge all."""
    remove_keys(kafka, INVENTORY, names, CLIENT, "nodes")
