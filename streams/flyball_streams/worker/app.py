"""The Faust app: four source topics, three lanes, nothing else."""

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import faust
from faust.types import TP

from flyball_contracts.config import Config
from flyball_contracts.errors import FlyballError, Stopped
from flyball_contracts.topics import DEMAND, EVENTS, PROPOSALS, TELEMETRY
from flyball_streams.worker.credentials import credentials
from flyball_streams.worker.fetch import MOST, Fetch
from flyball_streams.worker.host import LANE_OF, LaneHost
from flyball_streams.worker.stacks import stacks
from flyball_streams.worker.transport import BatchConsumer, BatchTransport

log = logging.getLogger(__name__)
T = TypeVar("T")
SOURCES = (TELEMETRY, EVENTS, DEMAND, PROPOSALS)
GATHER_S = 0.01
"""Longest wait for the remaining batches of a fetch."""
WAITING = 64
"""Most batches that may wait while the lanes work."""
REST_S = 0.1
"""After this time without messages, none are in transit between the lanes."""
FAILED = 70
"""Exit status when the broker did not accept the lanes' messages; a supervisor restarts the worker."""


class Worker:
    """The Faust app of one worker process; the watchdog reads its progress.

    There is one agent for each source topic. All lanes run in one thread beside the event loop: it steps through
    pending batches and then waits once until the broker has acknowledged their output. Nothing raises: bad data become
    dead letters in the lanes. If the broker refuses the output the process ends, as acknowledging the batches would
    lose them. Faust keeps only its identity in ``scratch``.
    """

    def __init__(
        self, config: Config, host: LaneHost, partitions: Mapping[str, int], scratch: Path, *, session_s: float
    ) -> None:
        self.host = host
        self.app = faust.App(
            config.worker.app,
            broker=[f"kafka://{address}" for address in config.kafka.bootstrap.split(",")],
            broker_credentials=credentials(config.kafka.client),
            store="memory://",
            datadir=str(scratch),
            web_enabled=False,
            topic_allow_declare=False,
            topic_disable_leader=True,
            consumer_auto_offset_reset="earliest",
            broker_commit_interval=1.0,
            broker_session_timeout=session_s,
            broker_heartbeat_interval=session_s / 6,
            broker_rebalance_timeout=max(session_s, 10.0),
            stream_buffer_maxsize=64,
        )
        fetch = Fetch(config.kafka, f"{config.worker.app}-fetch", config.worker.app)
        self.app.transport = BatchTransport(self.app, self, fetch)
        self._pool = ThreadPoolExecutor(1, "lanes")
        self._refreshing = ThreadPoolExecutor(1, "refresh")
        self._refreshed: Future[None] = self._refreshing.submit(host.refresh_tables)
        self._waiting: asyncio.Queue[Any] = asyncio.Queue(WAITING)
        self._expected = 0
        self._all_arrived = asyncio.Event()
        self._joined = False
        untyped = cast("Any", self.app)
        for source in SOURCES:
            topic = untyped.topic(
                source.name,
                key_type=bytes,
                value_type=bytes,
                key_serializer="raw",
                value_serializer="raw",
                partitions=partitions[source.name],
            )
            untyped.agent(topic, name=f"{LANE_OF[source.name]}-{source.name}")(self._run)
        untyped.task(self._step)
        untyped.on_partitions_revoked.connect(self._revoked, weak=False)
        untyped.on_partitions_assigned.connect(self._assigned, weak=False)
        untyped.on_before_shutdown.connect(self._leaving, weak=False)

    def joined(self) -> bool:
        """Whether the consumer group has assigned partitions to this process, possibly none."""
        consumer = cast("BatchConsumer", self.app.consumer)
        return self._joined and (consumer.placed or not consumer.assignment())

    def progress(self) -> int:
        """Return a counter that rises with each tick that a lane closes, and with each step."""
        return self.host.progress()

    def lag(self) -> int:
        """Messages of our partitions that no lane has used."""
        consumer = cast("BatchConsumer", self.app.consumer)
        waiting = 0
        for tp in consumer.assignment():
            done = self.host.offset(tp.topic, tp.partition)
            waiting += max(0, (consumer.highwater(tp) or 0) - done) if done is not None else 0
        return waiting

    def stacks(self) -> str:
        """Where the threads of this process and the tasks of its event loop stand."""
        return stacks(self.app.loop)

    def resume(self, assigned: Collection[TP]) -> Mapping[TP, int]:
        """Offsets from which assigned partitions with known state resume; called in a thread."""
        return _or_end("lanes could not be made", self.host.resume, assigned)

    def begin(self, starts: Mapping[TP, int]) -> None:
        """Note the start offsets of the other partitions; called in a thread."""
        _or_end("first snapshots could not be written", self.host.begin, starts)

    def changed(self) -> set[str]:
        """Source topics that were deleted and recreated; called in a thread."""
        return self.host.changed()

    def refresh(self) -> None:
        """Start reading the tables to their ends while messages are fetched and delivered; called in a thread.

        A refresh that is queued and has not begun covers these messages too, so at most one waits behind another.
        """
        if self._refreshed.running() or self._refreshed.done():
            self._refreshed = self._refreshing.submit(self.host.refresh_tables)

    def expect(self, batches: int) -> None:
        """Expect this many more batches of a fetch; called in the event loop."""
        self._expected += batches
        if self._expected > 0:
            self._all_arrived.clear()
        else:
            self._all_arrived.set()

    def ahead(self, ends: Mapping[TP, int]) -> set[TP]:
        """Partitions to pause, by the end offsets of all; called in a thread."""
        return self.host.ahead({tp: end - (self.host.offset(*tp) or 0) for tp, end in ends.items()})

    async def _run(self, stream: Any) -> None:
        async for event in stream.noack().events():
            await self._waiting.put(event)
            self.expect(-1)

    async def _step(self, _app: Any) -> None:
        while True:
            events = [await self._next()]
            if not self._waiting.full():
                await self._gather()
            await self._take_waiting(events)
            generation = self.app.consumer_generation_id  # batches from before a rebalance are fetched again
            events = [event for event in events if event.message.generation_id == generation]
            if not events:
                continue
            batches = [(event.message.tp, event.message.value) for event in events]
            why = f"batches of {', '.join(sorted({f'{tp.topic}/{tp.partition}' for tp, _ in batches}))} are not done"
            await self._in_lanes(_or_end, why, self.host.step, batches)
            for event in events:
                event.ack()

    async def _take_waiting(self, events: list[Any]) -> None:
        """Take the waiting batches, and wait once, until the tables are read up to their ends at the fetch.

        The newest refresh belongs to the last fetch, so it covers all batches that were taken before. Batches that
        arrived during the wait are covered as well, if no newer refresh was started.
        """
        self._take(events)
        refreshed = self._refreshed
        await asyncio.wrap_future(refreshed)
        if refreshed is self._refreshed:
            self._take(events)

    def _take(self, events: list[Any]) -> None:
        messages = sum(len(event.message.value) for event in events)
        while messages < MOST and not self._waiting.empty():
            events.append(self._waiting.get_nowait())
            messages += len(events[-1].message.value)

    async def _gather(self) -> None:
        """Wait for the other batches of a fetch: partitions that advance together share their event time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GATHER_S):
                await self._all_arrived.wait()

    async def _next(self) -> Any:
        """Wait for the next batch; publish snapshots in the meantime, one at a time."""
        wait_s: float | None = REST_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    return await self._waiting.get()
            more = await self._in_lanes(_or_end, "snapshots were not written", self.host.rest)
            wait_s = 0.0 if more else None

    async def _revoked(self, _app: Any, revoked: set[TP], **_: Any) -> None:
        self._joined = False
        while not self._waiting.empty():  # they are fetched again by the next owner of their partitions
            self._waiting.get_nowait()
        if revoked:
            await self._save()

    async def _assigned(self, _app: Any, assigned: set[TP], **_: Any) -> None:
        log.info("assigned %d partitions", len(assigned))
        self._joined = True
        self.expect(-self._expected)  # batches in transit for the previous partitions are fetched again

    async def _leaving(self, _app: Any, **_: Any) -> None:
        """Publish the last snapshots: the streams have stopped, and no other worker has our partitions yet."""
        await self._save()

    async def _save(self) -> None:
        try:
            await self._in_lanes(self.host.save)
        except Exception:  # the next owner of the partitions rereads a little more
            log.warning("the last snapshots could not be written", exc_info=True)

    async def _in_lanes(self, function: Any, *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)


def _or_end(why: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function of the lanes; end the process when it fails, because continuing would lose data."""
    try:
        return function(*arguments)
    except Stopped:
        raise
    except Exception as error:
        log.critical("worker ends: %s: %s", why, error, exc_info=not isinstance(error, FlyballError))
        os._exit(FAILED)
