"""From arrays over the whole fleet to one message per node and layout."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from flyball_contracts.codec import Message, frame_message
from flyball_contracts.config import FleetConfig
from flyball_contracts.frame import Frame
from flyball_contracts.metrics import GPU, HOST, WORKLOAD
from flyball_contracts.records import Allocation, Inventory
from flyball_simulator.hardware.hosts import CPUS, MEMORY_BYTES
from flyball_simulator.hardware.site import Floats, Ints, Node, Site

READ_NS = 6_000_000
DRIVER_VERSION = "580.95.05"
SCHEMAS = (GPU.schema, HOST.schema, WORKLOAD.schema)


def make_inventory(
    config: FleetConfig, node: Node, allocations: tuple[Allocation, ...], epoch: int, time_ns: int
) -> Inventory:
    """Inventory of one node."""
    pool = node.pool
    return Inventory(
        node=node.name,
        cell=config.cell,
        epoch=epoch,
        time_ns=time_ns,
        boot_id=node.boot_id,
        devices=node.devices,
        allocations=allocations,
        provider="simulated",
        region=pool.region,
        zone=pool.zone,
        instance_type=pool.instance_type,
        capacity_type=pool.capacity_type,
        price_usd_per_hour=pool.price_usd_per_hour,
        cpu_count=CPUS,
        memory_bytes=MEMORY_BYTES,
        driver_version=DRIVER_VERSION,
    )


class FrameTime(NamedTuple):
    """What the frames of a tick have in common."""

    number: int
    time_ns: int
    period_ns: int


def frame_messages(
    site: Site,
    blocks: tuple[Floats, Floats, Floats],
    replica_starts: Ints,
    inventories: Mapping[int, Inventory],
    boots: Mapping[int, tuple[int, int]],
    sent: FrameTime,
) -> list[Message]:
    """GPU, host and workload frame of each node that has an inventory.

    ``blocks`` are float32 [N, metrics], [M, metrics] and [R, metrics], their rows sorted by node; a node without
    replicas sends a workload frame without rows. ``boots`` are each agent's epoch and first tick.
    """
    raws = [memoryview(np.ascontiguousarray(block, "<f4").tobytes()) for block in blocks]
    widths = [4 * block.shape[1] for block in blocks]
    hosts = range(len(site.nodes) + 1)
    starts = [site.starts.tolist(), list(hosts), replica_starts.tolist()]
    messages: list[Message] = []
    for i, inventory in sorted(inventories.items()):
        agent_epoch, first_index = boots[i]
        for k, schema in enumerate(SCHEMAS):
            first, end = starts[k][i], starts[k][i + 1]
            frame = Frame(
                schema,
                inventory.node,
                inventory.boot_id,
                agent_epoch,
                len(SCHEMAS) * (sent.number - first_index) + k,
                sent.time_ns,
                READ_NS,
                sent.period_ns,
                inventory.epoch,
                end - first,
                bytes(raws[k][first * widths[k] : end * widths[k]]),
            )
            messages.append(frame_message(frame))
    return messages
