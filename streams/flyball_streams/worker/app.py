"""The Faust app: four source topics, three lanes, nothing else."""

import asyncio
import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import faust
from faust.types import TP

from flyball_contracts.config import Config
from flyball_contracts.topics import DEMAND, EVENTS, PROPOSALS, TELEMETRY
from flyball_streams.engine.lane import Incoming
from flyball_streams.worker.host import LANE_OF, LaneHost
from flyball_streams.worker.transport import BatchTransport

log = logging.getLogger(__name__)
SOURCES = (TELEMETRY, EVENTS, DEMAND, PROPOSALS)
FAILED = 70
"""Exit status when the broker did not take what the lanes sent; a supervisor starts the worker again."""


def make_app(config: Config, host: LaneHost, partitions: Mapping[str, int], *, session_s: float) -> faust.App:
    """Faust app of one worker process.

    One agent for each source topic; all lanes run in one thread beside the event loop, one batch in flight for each
    topic. An agent never raises: bad data become dead letters in the lanes, and when the broker refuses the output the
    process ends, because to acknowledge the batch then would lose it.
    """
    app = faust.App(
        config.worker.app,
        broker=f"kafka://{config.kafka.bootstrap}",
        store="memory://",
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        broker_commit_interval=1.0,
        broker_session_timeout=session_s,
        broker_heartbeat_interval=session_s / 6,
        broker_rebalance_timeout=max(session_s, 10.0),
        consumer_max_fetch_size=4 * 1024 * 1024,
        stream_buffer_maxsize=64,
    )
    app.transport = BatchTransport(app, host.resume)
    pool = ThreadPoolExecutor(1, "lanes")

    async def run(stream: Any) -> None:
        loop = asyncio.get_running_loop()
        async for event in stream.noack().events():
            tp: TP = event.message.tp
            batch = [Incoming(r.topic, r.partition, r.offset, r.key, r.value, r.headers) for r in event.message.value]
            try:
                await loop.run_in_executor(pool, host.step, tp.topic, tp.partition, batch)
            except Exception:
                log.critical("worker ends: a batch of %s/%d could not be completed", *tp, exc_info=True)
                os._exit(FAILED)
            event.ack()

    untyped = cast("Any", app)
    for source in SOURCES:
        topic = untyped.topic(
            source.name,
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
            partitions=partitions[source.name],
        )
        untyped.agent(topic, name=f"{LANE_OF[source.name]}-{source.name}")(run)

    async def revoked(_app: Any, revoked: set[TP], **_: Any) -> None:
        if revoked:
            await asyncio.get_running_loop().run_in_executor(pool, host.revoke)

    cast("Any", app.on_partitions_revoked).connect(revoked, weak=False)
    return app
