"""What the benchmarks feed: the simulated fleet, some copies of it, and how much of it in one run."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from flyball_contracts.codec import Message, frame_message
from flyball_contracts.config import FleetConfig
from flyball_contracts.frame import decode_frame
from flyball_contracts.metrics import GPU
from flyball_contracts.topics import EVENTS, TELEMETRY, TOPICS
from flyball_simulator import Fleet, scaled

START_NS = 1_767_225_600_000_000_000  # event time: any start will do, as long as it is always the same
SEED = 7


Frames = Literal["gpu", "all"]
"""What each node sends in a tick: 8 GPUs x 48 metrics in one message, or those of its host and workloads beside it."""


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
    "quick": Size(copies=32, partitions=2, warm_ticks=72, ticks=15, repeats=3, plain_gpus=64, plain_ticks=8, passes=1),
    "full": Size(copies=32, partitions=2, warm_ticks=72, ticks=60, repeats=7, plain_gpus=64, plain_ticks=24, passes=4),
}
"""Warm ticks cover the grace of all three lanes, before which nothing closes, and the first profiles, which compile
after a minute; only ``tiny``, which counts and measures nothing, does without those."""


class Load:
    """The ticks of a seeded fleet, in order; the same seed gives the same bytes."""

    def __init__(self, copies: int, seed: int, frames: Frames = "all") -> None:
        self._fleet = Fleet(scaled(FleetConfig(seed=seed), copies), START_NS)
        self._next = 0
        self._only_gpus = frames == "gpu"
        self._seq: Counter[str] = Counter()
        self.start_tick = START_NS // self._fleet.period_ns
        self.nodes = len(self._fleet.nodes)
        self.gpus = sum(len(node.devices) for node in self._fleet.nodes)

    def start(self) -> list[Message]:
        """Specifications, curves and inventories."""
        return self._fleet.messages_at_start()

    def ticks(self, count: int) -> list[list[Message]]:
        """Return the messages of each of the next ``count`` ticks."""
        made = [self._fleet.tick(self._next + i) for i in range(count)]
        self._next += count
        return [[m for m in map(self._gpus_only, messages) if m] for messages in made] if self._only_gpus else made

    def _gpus_only(self, message: Message) -> Message | None:
        """Message as an agent sends it that measures nothing but GPUs: no other frames, and none missing."""
        if message.topic != TELEMETRY.name:
            return message
        frame = decode_frame(message.value)
        if frame.schema != GPU.schema:
            return None
        seq, self._seq[frame.node] = self._seq[frame.node], self._seq[frame.node] + 1
        return frame_message(msgspec.structs.replace(frame, seq=seq))

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
