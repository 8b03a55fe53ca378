"""Load and compile what ticks need before the worker joins its group: a rebalance must not wait for a compiler."""

from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest

import numpy as np

from flyball_contracts.codec import Message, frame_message, record_message
from flyball_contracts.config import WorkerConfig
from flyball_contracts.frame import make_frame
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU, HOST, WORKLOAD
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Allocation, Device, Inventory, Record, Signal, WorkloadSpec
from flyball_contracts.topics import DEMAND, TELEMETRY, TOPICS
from flyball_models import bucket
from flyball_models.sizing.choice import load_solver
from flyball_streams.engine import Directory, Engine, Incoming
from flyball_streams.engine.gate import STAGGER
from flyball_streams.engine.parameters import parameters
from flyball_streams.engine.workload.timing.schedule import SIZES

PERIOD_NS = 1_000_000_000
PER_NODE = 512
Node = tuple[str, int, tuple[Allocation, ...]]


def warm_up(config: WorkerConfig, directory: Directory, partitions: Mapping[str, int]) -> list[tuple[int, int]]:
    """Run a few ticks of a synthetic cell for every padded size that the known fleet needs, to fill JAX's cache.

    ``partitions`` are the partition counts of the topics. Returns the sizes: devices and workloads. The output of the
    synthetic cells is discarded.
    """
    devices, workloads = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for inventory in directory.inventories.values():
        place = partition_of(inventory.node.encode(), partitions[TELEMETRY.name])
        devices[inventory.cell, place] += len(inventory.devices)
    for spec in directory.specs.values():
        workloads[spec.cell, partition_of(spec.workload.encode(), partitions[DEMAND.name])] += 1
    of_nodes = sorted({bucket(n) for n in (1, *devices.values())})
    of_workloads = sorted({bucket(n) for n in (1, *workloads.values())})
    sizes = list(zip_longest(of_nodes, of_workloads, fillvalue=bucket(1)))
    for size in sizes:
        _run(config, *size)
    if parameters(config).choice.usable:
        load_solver()
    return sizes


def _run(config: WorkerConfig, devices: int, workloads: int) -> None:
    engine = Engine(config, dict.fromkeys(TOPICS, 1))
    services = [f"serve-{i}" for i in range(workloads - 1 - len(SIZES))]
    nodes: list[Node] = []
    for first in range(0, devices, PER_NODE):
        n = min(PER_NODE, devices - first)
        held = [Allocation(workload="train", replica=str(first), devices=tuple(range(n)))]
        held += [Allocation(workload=name, replica="0") for name in services if not nodes]
        nodes.append((f"warm-{first}", n, tuple(held)))
    engine.feed([_incoming(record_message(record, "/warm")) for record in _tables(config, nodes, services)])
    for tick in range(parameters(config).lateness_ticks + 2 * STAGGER + 3):  # until the last lane has closed some ticks
        engine.feed([_incoming(message) for node in nodes for message in _tick(node, tick)])


def _tables(config: WorkerConfig, nodes: list[Node], services: list[str]) -> list[Record]:
    inventories = [
        Inventory(
            node=name,
            cell="warm",
            epoch=1,
            time_ns=0,
            zone="warm",
            devices=tuple(Device(id=f"{name}/{i}", model="warm", memory_bytes=1) for i in range(n)),
            allocations=held,
        )
        for name, n, held in nodes
    ]
    serve = [
        WorkloadSpec(workload=name, cell="warm", time_ns=0, kind="inference", capacity_per_replica=1.0)
        for name in services
    ]
    train = WorkloadSpec(workload="train", cell="warm", time_ns=0, kind="training")
    jobs = [
        WorkloadSpec(
            workload=f"batch-{slots}", cell="warm", time_ns=0, kind="batch", interruptible=True,
            deadline_ns=round(slots * parameters(config).slot_s * NS_PER_S), duration_s=3600.0,
        )
        for slots in SIZES
    ]  # fmt: skip
    curve = Signal(zone="warm", kind="carbon_intensity", published_ns=0, start_ns=0, step_s=3600.0, p50=(2.0, 1.0))
    return [*inventories, *serve, train, *jobs, curve]


def _tick(node: Node, tick: int) -> list[Message]:
    name, n, held = node
    frames = ((GPU, n), (HOST, 1), (WORKLOAD, len(held)))
    return [
        frame_message(
            make_frame(
                np.zeros((rows, len(layout)), np.float32),
                schema=layout.schema,
                node=name,
                boot_id="",
                epoch=1,
                seq=3 * tick + i,
                time_ns=tick * PERIOD_NS,
                period_ns=PERIOD_NS,
                inventory_epoch=1,
            )
        )
        for i, (layout, rows) in enumerate(frames)
    ]


def _incoming(message: Message) -> Incoming:
    return Incoming(message.topic, 0, 0, message.key, message.value, message.headers)
