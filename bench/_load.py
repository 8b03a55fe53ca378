"""What the benchmarks feed: the simulated fleet, some copies of it, and how much of it in one run."""

from collections.abc import Iterator
from typing import NamedTuple

from flyball_collectors.fleet import Fleet, scaled
from flyball_contracts.codec import Message
from flyball_contracts.config import FleetConfig
from flyball_contracts.frame import decode_frame
from flyball_contracts.ids import tick_of
from flyball_contracts.metrics import GPU
from flyball_contracts.topics import EVENTS, TELEMETRY, TOPICS

START_NS = 1_767_225_600_000_000_000  # event time: any start will do, as long as it is always the same
SEED = 7


class Size(NamedTuple):
    """How much one run does.

    ``copies`` of the default fleet (192 GPUs each) over ``partitions`` telemetry partitions; ``warm_ticks`` before the
    first of ``repeats`` segments of ``ticks`` ticks. One message per metric is sent for ``plain_gpus`` GPUs and
    ``plain_ticks`` ticks; the bare loop reads its topic ``passes`` times.
    """

    copies: int
    partitions: int
    warm_ticks: int
    ticks: int
    repeats: int
    plain_gpus: int
    plain_ticks: int
    passes: int


SIZES = {
    "tiny": Size(copies=1, partitions=2, warm_ticks=16, ticks=4, repeats=1, plain_gpus=2, plain_ticks=2, passes=1),
    "quick": Size(copies=32, partitions=2, warm_ticks=16, ticks=20, repeats=3, plain_gpus=64, plain_ticks=8, passes=1),
    "full": Size(copies=32, partitions=2, warm_ticks=16, ticks=60, repeats=7, plain_gpus=64, plain_ticks=24, passes=4),
}
"""Warm ticks cover the grace of all three lanes: before it is over, nothing closes."""


class Load:
    """The ticks of a seeded fleet, in order; the same seed gives the same bytes."""

    def __init__(self, copies: int, seed: int) -> None:
        self._fleet = Fleet(scaled(FleetConfig(seed=seed), copies), START_NS)
        self._next = 0
        self.start_tick = tick_of(START_NS, self._fleet.period_ns)
        self.nodes = len(self._fleet.nodes)
        self.gpus = sum(len(node.devices) for node in self._fleet.nodes)

    def start(self) -> list[Message]:
        """Specifications, curves and inventories."""
        return self._fleet.messages_at_start()

    def ticks(self, count: int) -> list[list[Message]]:
        """Return the messages of each of the next ``count`` ticks."""
        made = [self._fleet.tick(self._next + i) for i in range(count)]
        self._next += count
        return made

    def metrics(self, gpus: int, count: int) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of one message per metric, for the first ``gpus`` GPUs and the next ``count`` ticks."""
        names = {node.node: [device.id for device in node.devices] for node in self._fleet.nodes}
        for messages in self.ticks(count):
            left = gpus
            for message in messages:
                if not left or message.topic != TELEMETRY.name:
                    continue
                frame = decode_frame(message.value)
                if frame.schema != GPU.schema:
                    continue
                for device, row in zip(names[frame.node][:left], frame.values.tolist(), strict=False):
                    left -= 1
                    for metric, value in zip(GPU.metrics, row, strict=True):
                        yield f"{device}/{metric.key}".encode(), f"{value:.6g}".encode()


def partition_counts(size: Size) -> dict[str, int]:
    """Partitions of each topic: the node topics as in ``size``, the others as in production."""
    counts = {name: topic.partitions for name, topic in TOPICS.items()}
    return counts | {TELEMETRY.name: size.partitions, EVENTS.name: size.partitions}


def gpu_ticks(ticks: list[list[Message]]) -> int:
    """Rows of GPU frames in some ticks: one GPU, one tick, 48 metrics each."""
    frames = (decode_frame(m.value) for messages in ticks for m in messages if m.topic == TELEMETRY.name)
    return sum(frame.rows for frame in frames if frame.schema == GPU.schema)
