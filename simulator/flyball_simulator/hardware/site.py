"""The hardware of the simulated fleet: nodes, and one row per GPU over the whole fleet."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.config import FleetConfig, NodePool
from flyball_contracts.errors import ConfigError
from flyball_contracts.ids import record_id
from flyball_contracts.records import Device, Link
from flyball_simulator.hardware.sku import SKUS, SkuData

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class Node(NamedTuple):
    """One node; its GPUs are the fleet's rows ``first`` to ``first + len(devices) - 1``.

    An ``extra`` node must be bought first. ``rack`` and ``leaf`` are names, empty if unknown.
    """

    name: str
    boot_id: str
    pool: NodePool
    sku: SkuData
    first: int
    extra: bool
    devices: tuple[Device, ...]
    rack: str
    leaf: str


class Site(NamedTuple):
    """M nodes and N GPUs: ``starts`` is int64[M + 1], the rest is [N]; units as in :class:`SkuData`.

    ``zone_of`` indexes the zones of the configuration; ``price_usd_per_s`` is a GPU's share of its node's price.
    """

    nodes: tuple[Node, ...]
    starts: Ints
    node_of: Ints
    zone_of: Ints
    price_usd_per_s: NDArray[np.float64]
    ambient_cel: Floats
    memory_bytes: Floats
    power_limit_w: Floats
    idle_power_w: Floats
    sm_clock_hz: Floats
    idle_clock_hz: Floats
    memory_clock_hz: Floats
    slowdown_cel: Floats
    nvlink_bytes_per_s: Floats
    pcie_bytes_per_s: Floats
    no_gpm: NDArray[np.bool_]


def build_site(config: FleetConfig, start_ns: int) -> Site:
    """Nodes of all pools, in order; ids are derived from cell, seed and start.

    Raises :class:`ConfigError` if two pools share a name or a pool is in an unknown zone.
    """
    zones = {zone.name for zone in config.zones}
    nodes: list[Node] = []
    first = 0
    for i, pool in enumerate(config.pools):
        if pool.zone not in zones:
            raise ConfigError(f"pools[{i}].zone: {pool.zone!r} is not one of zones: {', '.join(sorted(zones))}")
        if any(pool.name == other.name for other in config.pools[:i]):
            raise ConfigError(f"pools[{i}].name: {pool.name!r} is used twice; give each pool its own name")
        sku = SKUS[pool.sku]
        for number in range(1, max(pool.nodes, pool.max_nodes) + 1):
            name = f"{pool.name}-{number:03d}"
            # The start is part of the id: a fleet started again must not look like a repetition of the first run.
            boot_id = record_id("boot", config.cell, name, config.seed, start_ns)
            devices = _devices(config, name, sku, pool.gpus_per_node)
            rack, leaf = _domains(pool, number)
            nodes.append(Node(name, boot_id, pool, sku, first, number > pool.nodes, devices, rack, leaf))
            first += pool.gpus_per_node
    if not nodes:
        raise ConfigError("pools: there are none; describe at least one pool of nodes")
    sizes = np.array([len(node.devices) for node in nodes], np.int64)

    def per_gpu(values: list[float]) -> Floats:
        return np.repeat(np.array(values, np.float32), sizes)

    skus = [node.sku for node in nodes]
    order = [zone.name for zone in config.zones]
    prices = [(node.pool.price_usd_per_hour or 0.0) / len(node.devices) / 3600.0 for node in nodes]
    return Site(
        nodes=tuple(nodes),
        starts=np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
        node_of=np.repeat(np.arange(len(nodes), dtype=np.int64), sizes),
        zone_of=np.repeat(np.array([order.index(node.pool.zone) for node in nodes], np.int64), sizes),
        price_usd_per_s=np.repeat(np.array(prices), sizes),
        ambient_cel=per_gpu([node.pool.ambient_cel for node in nodes]),
        memory_bytes=per_gpu([float(sku.memory_bytes) for sku in skus]),
        power_limit_w=per_gpu([sku.power_limit_w for sku in skus]),
        idle_power_w=per_gpu([sku.idle_power_w for sku in skus]),
        sm_clock_hz=per_gpu([sku.sm_clock_hz for sku in skus]),
        idle_clock_hz=per_gpu([sku.idle_clock_hz for sku in skus]),
        memory_clock_hz=per_gpu([sku.memory_clock_hz for sku in skus]),
        slowdown_cel=per_gpu([sku.slowdown_cel for sku in skus]),
        nvlink_bytes_per_s=per_gpu([sku.nvlink_bytes_per_s for sku in skus]),
        pcie_bytes_per_s=per_gpu([sku.pcie_bytes_per_s for sku in skus]),
        no_gpm=np.repeat(np.array([not sku.gpm for sku in skus], np.bool_), sizes),
    )


def _domains(pool: NodePool, number: int) -> tuple[str, str]:
    """Rack and leaf switch of a pool's node, counted from 1."""
    if not pool.nodes_per_rack:
        return "", ""
    rack = (number - 1) // pool.nodes_per_rack
    leaf = f"{pool.name}-leaf-{rack // pool.racks_per_leaf + 1:02d}" if pool.racks_per_leaf else ""
    return f"{pool.name}-rack-{rack + 1:02d}", leaf


def _devices(config: FleetConfig, node: str, sku: SkuData, count: int) -> tuple[Device, ...]:
    """GPUs of one node, each linked to all others through a switch."""
    devices: list[Device] = []
    for i in range(count):
        digits = record_id("gpu", config.cell, node, config.seed, i)
        uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))
        peers = tuple(
            Link(peer=peer, bandwidth_bytes_per_s=sku.nvlink_bytes_per_s) for peer in range(count) if peer != i
        )
        devices.append(
            Device(
                id=f"GPU-{uuid}",
                model=sku.model,
                memory_bytes=sku.memory_bytes,
                index=i,
                pci_address=f"00000000:{0x10 + i:02X}:00.0",
                serial=str(int(digits[:10], 16)),
                numa_node=2 * i // count,
                power_limit_w=sku.power_limit_w,
                links=peers,
            )
        )
    return tuple(devices)
