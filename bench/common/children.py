"""The measured processes: each reads commands from a pipe, does one segment, and answers with what it cost.

CPU time is that of the whole process, its libraries' threads included.
"""

import asyncio
import os
import tempfile
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, cast

from bench.common.load import Frames, Load, Size, gpu_ticks, partition_counts
from confluent_kafka import Consumer, TopicPartition

from flyball_contracts.codec import Message
from flyball_contracts.config import WorkerConfig
from flyball_contracts.frame import decode_frame, stacked
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.metrics import GPU
from flyball_contracts.partitioner import partition_of
from flyball_contracts.topics import EVENTS, TELEMETRY

STEP = 500
NODE_TOPICS = {TELEMETRY.name, EVENTS.name}


class Cost(NamedTuple):
    """What a segment took: CPU and wall seconds, messages, and GPU rows decoded (where the row decodes)."""

    cpu_s: float
    wall_s: float
    messages: int
    rows: int = 0


class Stopwatch:
    """CPU time of this process and wall time since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def cost(self, messages: int, rows: int = 0) -> Cost:
        """Cost so far."""
        return Cost(time.process_time() - self._cpu, time.monotonic() - self._wall, messages, rows)


def engine(pipe: Connection, size: Size, seed: int, frames: Frames) -> None:
    """Feed the engine from memory, a tick at a time; a command is a number of ticks.

    Answers with the cost (``rows`` are GPU-ticks) and the frames that were not used.
    """
    from flyball_streams.engine import Engine, Incoming

    counts = partition_counts(size)
    load, lanes = Load(size.copies, seed, frames), Engine(WorkerConfig(), counts)

    def incoming(m: Message) -> Incoming:
        return Incoming(m.topic, partition_of(m.key, counts[m.topic]), 0, m.key, m.value, m.headers)

    def used() -> int:
        return sum(stats.used for lane, stats in lanes.stats().items() if lane.startswith("node/"))

    lanes.feed([incoming(m) for m in load.start()])
    pipe.send("ready")
    while ticks := pipe.recv():
        made = load.ticks(ticks)
        batches = [[incoming(m) for m in messages] for messages in made]
        before, watch = used(), Stopwatch()
        for batch in batches:
            lanes.feed(batch)
        sent = sum(m.topic in NODE_TOPICS for batch in batches for m in batch)
        pipe.send((watch.cost(sent, gpu_ticks(made)), sent - (used() - before)))


def plain_faust(pipe: Connection, bootstrap: str, topic: str, partitions: int, embedded: bool) -> None:
    """Stock Faust, one message per metric, an agent that only keeps the newest value of each series in a dict.

    A command is a number of messages; answers with the cost from their sending on, and the dict.
    """
    import faust

    if embedded:
        from flyball_streams.worker.faust_private import run_on_embedded_broker

        run_on_embedded_broker()
    app: Any = faust.App(
        "bench-plain",
        broker=f"kafka://{bootstrap}",
        store="memory://",
        datadir=tempfile.mkdtemp(prefix="flyball-bench-"),
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        broker_session_timeout=3.0 if embedded else 10.0,
        broker_heartbeat_interval=0.5,
        broker_rebalance_timeout=10.0,
    )
    source = app.topic(
        topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw", partitions=partitions
    )
    newest: dict[bytes, float] = {}
    count = 0

    async def agent(stream: Any) -> None:
        nonlocal count
        async for key, value in stream.items():
            newest[key] = float(value)
            count += 1

    app.agent(source, name="plain")(agent)

    async def commands() -> None:
        loop = asyncio.get_running_loop()
        pipe.send("ready")
        while messages := await loop.run_in_executor(None, pipe.recv):
            end, watch = count + messages, Stopwatch()
            pipe.send("go")
            while count < end:
                await asyncio.sleep(0.01)
            cost = watch.cost(messages)
            await asyncio.sleep(0.3)  # whatever came twice would come now
            pipe.send((cost, count - end, newest))
        os._exit(0)

    app.task(commands)
    runner = faust.Worker(app, override_logging=False, redirect_stdouts=False, quiet=True)
    cast("Any", runner).spinner = None
    runner.execute_from_commandline()


def bare_loop(pipe: Connection, bootstrap: str, topic: str, partitions: int, total: int) -> None:
    """A confluent ``consume(500)`` loop that reads a topic of ``total`` messages from its start.

    A command is ``(passes, decode)``; answers with the cost. With ``decode`` each batch becomes one array.
    """
    pipe.send("ready")
    while command := pipe.recv():
        passes, decode = command
        costs = [_one_pass(bootstrap, topic, partitions, total, decode) for _ in range(passes)]
        pipe.send(Cost(*(sum(column) for column in zip(*costs, strict=True))))


def _one_pass(bootstrap: str, topic: str, partitions: int, total: int, decode: bool) -> Cost:
    consumer = Consumer(consumer_settings(bootstrap, group="bench-bare", client_id="bench-bare"))
    consumer.list_topics(topic, timeout=10.0)
    count = rows = 0
    end = time.monotonic() + 60.0
    watch = Stopwatch()
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    while count < total and time.monotonic() < end:
        values = [m.value() or b"" for m in consumer.consume(STEP, 0.1) if m.error() is None]
        count += len(values)
        if decode:
            frames = [decode_frame(value) for value in values]
            rows += len(stacked([frame.block for frame in frames if frame.schema == GPU.schema], GPU))
    cost = watch.cost(count, rows)
    consumer.close()
    return cost
