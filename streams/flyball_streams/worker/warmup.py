"""Compile the models before the worker joins its group: a rebalance must not wait for a compiler."""

import numpy as np

from flyball_contracts.codec import Message, frame_message, record_message
from flyball_contracts.config import WorkerConfig
from flyball_contracts.frame import make_frame
from flyball_contracts.metrics import GPU, HOST, WORKLOAD
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Allocation, Device, Inventory, Record, Signal, WorkloadSpec
from flyball_contracts.topics import TOPICS
from flyball_models import bucket
from flyball_streams.engine import Directory, Engine, Incoming

PERIOD_NS = 1_000_000_000


def warm_up(config: WorkerConfig, directory: Directory, partitions: int) -> list[int]:
    """Run a few ticks of a made-up cell for every padded size that the known inventories need.

    ``partitions`` is that of the telemetry topic. Returns the sizes. What the made-up cells produce is thrown away;
    only JAX's cache of compiled steps remembers them.
    """
    devices: dict[tuple[str, int], int] = {}
    for inventory in directory.inventories.values():
        place = (inventory.cell, partition_of(inventory.node.encode(), partitions))
        devices[place] = devices.get(place, 0) + len(inventory.devices)
    sizes = sorted({bucket(n) for n in (1, *devices.values())})
    for size in sizes:
        _run(config, size)
    return sizes


def _run(config: WorkerConfig, size: int) -> None:
    engine = Engine(config, dict.fromkeys(TOPICS, 1))
    per_node = 512
    nodes = [(f"warm-{i}", min(per_node, size - i * per_node)) for i in range(-(-size // per_node))]
    engine.feed([_incoming(m) for node, n in nodes for m in _start(node, n)])
    for tick in range(config.lateness_ticks + 2):
        engine.feed([_incoming(m) for node, n in nodes for m in _tick(node, n, tick)])


def _start(node: str, n: int) -> list[Message]:
    inventory = Inventory(
        node=node,
        cell="warm",
        epoch=1,
        time_ns=0,
        zone="warm",
        devices=tuple(Device(id=f"{node}/{i}", model="warm", memory_bytes=1) for i in range(n)),
        allocations=(
            Allocation(workload="train", replica="0", devices=tuple(range(n))),
            Allocation(workload="serve", replica="0"),
        ),
    )
    train = WorkloadSpec(workload="train", cell="warm", time_ns=0, kind="training")
    serve = WorkloadSpec(workload="serve", cell="warm", time_ns=0, kind="inference", capacity_per_replica=1.0)
    batch = WorkloadSpec(
        workload="batch", cell="warm", time_ns=0, kind="batch",
        interruptible=True, deadline_ns=10**15, duration_s=3600.0,
    )  # fmt: skip
    curve = Signal(zone="warm", kind="carbon_intensity", published_ns=0, start_ns=0, step_s=3600.0, p50=(2.0, 1.0))
    records: list[Record] = [inventory, train, serve, batch, curve]
    return [record_message(record, "/warm") for record in records]


def _tick(node: str, n: int, tick: int) -> list[Message]:
    frames = ((GPU, n), (HOST, 1), (WORKLOAD, 2))
    return [
        frame_message(
            make_frame(
                np.zeros((rows, len(layout)), np.float32),
                schema=layout.schema,
                node=node,
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
