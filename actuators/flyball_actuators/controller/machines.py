"""Which inventories of a cluster's nodes are to be published."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from flyball_actuators.controller.pods import OBJECT, Pod, allocations_of, name_of
from flyball_actuators.controller.topics import CONTROLLERS, Spoken, Topics
from flyball_contracts.records import Inventory
from flyball_contracts.topics import INVENTORY

AGENT_SILENT_S = 300.0
"""So long after its last inventory an agent still speaks for its node; it repeats it every 30 s by default."""


class Changes(NamedTuple):
    """Inventories to publish, and nodes to publish a tombstone for."""

    changed: list[Inventory]
    gone: list[str]


def inventories_of(
    nodes: Iterable[Inventory],
    pods: Iterable[Pod],
    workloads: Mapping[OBJECT, str],
    topics: Topics,
    source: str,
    now_ns: int,
) -> Changes:
    """What differs from what the topic says.

    Only its agent reports a node, until the agent has been silent for :data:`AGENT_SILENT_S`. When an agent comes
    back with a record older than the controller's, a tombstone makes room for it. A node that another controller
    tells of is left to that one.
    """
    by_node: dict[str, list[tuple[Pod, str]]] = defaultdict(list)
    for pod in pods:
        if pod.asks or pod.workload or pod.owner in workloads:
            by_node[pod.node].append((pod, name_of(pod, workloads)))
    changed: list[Inventory] = []
    names: set[str] = set()
    returned = set(topics.returned)
    for bare in nodes:
        names.add(bare.node)
        spoken = topics.spoken.get((INVENTORY.name, bare.node))
        if bare.node in returned or (spoken is not None and spoken.source != source and _holds(spoken, now_ns)):
            continue
        known = topics.tables.inventories.get(bare.node)
        before = () if known is None else known.allocations
        allocations = allocations_of(bare, by_node.get(bare.node, ()), before)
        wanted = msgspec.structs.replace(bare, allocations=allocations)
        if known is None or spoken is None or spoken.source != source:
            time_ns = now_ns if known is None else max(now_ns, known.time_ns + 1)
            changed.append(msgspec.structs.replace(wanted, epoch=time_ns, time_ns=time_ns))
        elif msgspec.structs.replace(known, epoch=0, time_ns=0) != wanted:
            time_ns = max(now_ns, known.time_ns + 1)
            changed.append(msgspec.structs.replace(wanted, epoch=known.epoch + 1, time_ns=time_ns))
    mine = {key for (topic, key), one in topics.spoken.items() if topic == INVENTORY.name and one.source == source}
    return Changes(changed, sorted((mine - names) | (mine & returned)))


def _holds(spoken: Spoken, now_ns: int) -> bool:
    """Whether somebody else's word on a node still counts."""
    return spoken.source.startswith(CONTROLLERS) or now_ns - spoken.at_ns < AGENT_SILENT_S * 1e9
