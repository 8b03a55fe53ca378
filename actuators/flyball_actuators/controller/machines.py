"""Selects the node inventories that have to be published."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from flyball_actuators.controller.nodes import Node
from flyball_actuators.controller.pods import Pod, WorkloadNames, allocations_of
from flyball_actuators.controller.taints import Tolerations, is_for_any
from flyball_actuators.controller.topics import CONTROLLERS, Publisher, Topics
from flyball_contracts.records import Inventory
from flyball_contracts.topics import INVENTORY

AGENT_SILENT_S = 300.0
"""An agent counts as reporting until its last inventory is this old; agents repeat it every 30 s by default."""


class Changes(NamedTuple):
    """Inventories to publish, and nodes to publish a tombstone for."""

    changed: list[Inventory]
    gone: list[str]


def inventories_of(
    nodes: Iterable[Node],
    tolerations: Sequence[Tolerations],
    pods: Iterable[Pod],
    workloads: WorkloadNames,
    topics: Topics,
    source: str,
    now_ns: int,
) -> Changes:
    """Changes between the cluster and the inventory topic.

    The controller leaves a node to its agent until the agent has been silent for :data:`AGENT_SILENT_S`. When an agent
    returns with a record older than the controller's, a tombstone clears the way for it. A node that another controller
    reports is left to that controller. The record keeps an agent's announcement that it stops. ``tolerations`` are
    those of the declared workloads: a node with taints that none of them tolerates is unschedulable.
    """
    by_node: dict[str, list[tuple[Pod, str]]] = defaultdict(list)
    for pod in pods:
        if pod.requests or workloads.is_declared(pod):
            by_node[pod.node].append((pod, workloads.of(pod)))
    changed: list[Inventory] = []
    names: set[str] = set()
    agents_back = set(topics.agents_back)
    for bare, reserved in nodes:
        names.add(bare.node)
        publisher = topics.publishers.get((INVENTORY.name, bare.node))
        if bare.node in agents_back or (
            publisher is not None and publisher.source != source and _is_current(publisher, now_ns)
        ):
            continue
        known = topics.tables.inventories.get(bare.node)
        before = () if known is None else known.allocations
        allocations = allocations_of(bare, by_node.get(bare.node, ()), before)
        agent = "none" if known is None else known.agent
        takes = bare.schedulable and is_for_any(reserved, tolerations)
        wanted = msgspec.structs.replace(bare, allocations=allocations, agent=agent, schedulable=takes)
        if known is None or publisher is None or publisher.source != source:
            time_ns = now_ns if known is None else max(now_ns, known.time_ns + 1)
            changed.append(msgspec.structs.replace(wanted, epoch=time_ns, time_ns=time_ns))
        elif msgspec.structs.replace(known, epoch=0, time_ns=0) != wanted:
            time_ns = max(now_ns, known.time_ns + 1)
            changed.append(msgspec.structs.replace(wanted, epoch=known.epoch + 1, time_ns=time_ns))
    mine = {key for (topic, key), one in topics.publishers.items() if topic == INVENTORY.name and one.source == source}
    return Changes(changed, sorted((mine - names) | (mine & agents_back)))


def _is_current(publisher: Publisher, now_ns: int) -> bool:
    """Whether another publisher still reports a node."""
    return publisher.source.startswith(CONTROLLERS) or now_ns - publisher.at_ns < AGENT_SILENT_S * 1e9
