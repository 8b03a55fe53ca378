"""Converts arrays over the whole fleet to one message per node and frame layout."""

from collections.abc import Mapping, MutableMapping
from typing import NamedTuple

import numpy as np

from flyball_contracts.codec import Message, frame_message
from flyball_contracts.config import FleetConfig
from flyball_contracts.frame import Frame
from flyball_contracts.metrics import GPU, HOST, SERVING, WORKLOAD
from flyball_contracts.records import Allocation, Inventory
from flyball_simulator.hardware.hosts import CPUS, MEMORY_BYTES
from flyball_simulator.hardware.site import Floats, Ints, Node, Site

READ_NS = 6_000_000
DRIVER_VERSION = "580.95.05"
SCHEMAS = (GPU.schema, HOST.schema, WORKLOAD.schema, SERVING.schema)


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
        rack=node.rack,
        leaf=node.leaf,
    )


class FrameTime(NamedTuple):
    """Times that all frames of a tick share."""

    time_ns: int
    period_ns: int


def frame_messages(
    site: Site,
    blocks: tuple[Floats, Floats, Floats, Floats],
    replica_starts: Ints,
    inventories: Mapping[int, Inventory],
    boots: MutableMapping[int, tuple[int, int]],
    sent: FrameTime,
) -> list[Message]:
    """GPU, host and workload frame of each node with an inventory, and a serving frame if a server reports tokens.

    ``blocks`` are float32 [N, metrics], [M, metrics] and twice [R, metrics], their rows sorted by node; a node without
    replicas sends a workload frame without rows. ``boots`` holds each agent's epoch and next frame number, and is
    updated.
    """
    raws = [memoryview(np.ascontiguousarray(block, "<f4").tobytes()) for block in blocks]
    widths = [4 * block.shape[1] for block in blocks]
    hosts = range(len(site.nodes) + 1)
    starts = [site.starts.tolist(), list(hosts), *2 * [replica_starts.tolist()]]
    answers = np.flatnonzero(np.isfinite(blocks[-1]).any(axis=1)).tolist()
    serving = set(np.searchsorted(replica_starts, answers, "right").tolist())
    messages: list[Message] = []
    for i, inventory in sorted(inventories.items()):
        agent_epoch, seq = boots[i]
        for k, schema in enumerate(SCHEMAS):
            if schema == SERVING.schema and i + 1 not in serving:
                continue
            first, end = starts[k][i], starts[k][i + 1]
            frame = Frame(
                schema,
                inventory.node,
                inventory.boot_id,
                agent_epoch,
                seq,
                sent.time_ns,
                READ_NS,
                sent.period_ns,
                inventory.epoch,
                end - first,
                bytes(raws[k][first * widths[k] : end * widths[k]]),
            )
            messages.append(frame_message(frame))
            seq += 1
        boots[i] = agent_epoch, seq
    return messages
