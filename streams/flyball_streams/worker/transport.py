"""A Faust transport that delivers the messages of a fetch as one event per partition.

Stock Faust has a cost for each message, whatever the agent does (``bench/spine.py`` measures it). Here the messages
that a fetch returned for a partition are the value of one event at the last offset; the offsets before it are declared
a gap, so that acknowledging the event commits them all. The lanes determine where a partition resumes, as they know
which offsets their state includes. aiokafka joins the group and commits; another client fetches (``fetch.py``).

What is private in Faust and aiokafka is in ``faust_private.py``; a contract test runs the transport against a broker.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, cast

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage
from yarl import URL

from flyball_streams.engine.lane import Incoming
from flyball_streams.worker.faust_private import PrivateConsumer
from flyball_streams.worker.fetch import Fetch

PAUSE_S = 0.02
ALIVE_S = 30.0
"""Interval at which aiokafka is polled, though it fetches no messages: the group removes a member that never polls."""
HOLD_S = 0.5
"""Interval of the check for partitions that are too far ahead of others."""
LOOK_S = 2.0
"""Interval of the check whether the group's leader has assigned every topic."""
FOLLOW_S = 5.0
"""Interval of the check whether the topics are still the same."""
T = TypeVar("T")


class Lanes(Protocol):
    """What the consumer needs of the lanes; all methods but :meth:`expect` may block, and run in a thread."""

    def resume(self, assigned: Collection[TP]) -> Mapping[TP, int]:
        """Offsets from which assigned partitions with known state resume."""
        ...

    def begin(self, starts: Mapping[TP, int]) -> None:
        """Note the start offsets of the other partitions."""
        ...

    def refresh(self) -> None:
        """Start reading the tables to their ends: messages have arrived and will be delivered."""
        ...

    def expect(self, batches: int) -> None:
        """Expect this many more batches; a negative number withdraws some. Called in the event loop."""
        ...

    def ahead(self, ends: Mapping[TP, int]) -> set[TP]:
        """Partitions to pause, by the end offsets of all."""
        ...

    def changed(self) -> set[str]:
        """Topics that were recreated since they were read."""
        ...


class BatchConsumer(PrivateConsumer):
    """Consumer whose events carry a list of messages of one partition."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.placed = False
        self._epoch = 0
        self._polled_at_s = 0.0
        self._held_at_s = 0.0
        self._followed_at_s = 0.0
        self._looked_at_s = 0.0
        self._followed: set[TP] = set()
        self._pool = ThreadPoolExecutor(1, "fetch")

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Deliver nothing until the new partitions have their offsets."""
        self.placed = False
        await super().on_partitions_revoked(revoked)

    async def perform_seek(self) -> None:
        """Fetch from the end of the lanes' state, or else from the committed offsets."""
        self.placed = False
        assigned = self.assignment()
        await self.pause_client(assigned)
        await super().perform_seek()
        transport = cast("BatchTransport", self.transport)
        loop = asyncio.get_running_loop()  # reading snapshots must not block the loop that sends heartbeats
        places = await loop.run_in_executor(None, transport.lanes.resume, assigned)
        self.set_read_offsets(places)
        await self.commit_ahead(places)  # the state includes all earlier messages
        starts = {tp: await self.client_position(tp) for tp in assigned if tp not in places}
        await loop.run_in_executor(None, transport.lanes.begin, starts)
        self._epoch = await self._in_pool(lambda: transport.fetch.begin({**places, **starts}))
        self.placed = self.assignment() == assigned

    def highwater(self, tp: TP) -> int:
        """Offset after the last message of a partition, as far as is known."""
        return cast("BatchTransport", self.transport).fetch.highwater(tp) or 0

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Do nothing: Faust would check fetches of aiokafka, and the worker has its own watchdog."""

    async def on_stop(self) -> None:
        """Stop fetching as well."""
        await super().on_stop()
        await self._in_pool(cast("BatchTransport", self.transport).fetch.close)
        self._pool.shutdown()

    async def _in_pool(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    async def deliver_next(self) -> None:
        """Deliver the batches of the next fetch."""
        if time.monotonic() - self._looked_at_s > LOOK_S:
            self._looked_at_s = time.monotonic()
            self.look_for_topics()
        if not self._flows():
            await asyncio.sleep(PAUSE_S)
            return
        if time.monotonic() - self._polled_at_s > ALIVE_S:
            self._polled_at_s = time.monotonic()
            await self.poll_client()
        if time.monotonic() - self._followed_at_s > FOLLOW_S:
            self._followed_at_s = time.monotonic()
            await self._follow_topics()
        if time.monotonic() - self._held_at_s > HOLD_S:
            self._held_at_s = time.monotonic()
            await self._in_pool(self._hold)
        transport = cast("BatchTransport", self.transport)
        epoch, batches = await self._in_pool(lambda: transport.fetch.take(transport.lanes.refresh))
        left = len(batches)
        transport.lanes.expect(left)
        try:
            for tp, batch in batches.items():
                while not self._flows():
                    if self.stopping():
                        return
                    await asyncio.sleep(PAUSE_S)
                if epoch != self._epoch:
                    return  # a rebalance: all partitions are fetched again from the ends of their lanes' states
                await self._deliver(tp, batch)
                left -= 1
        finally:
            transport.lanes.expect(-left)

    def _hold(self) -> None:
        transport = cast("BatchTransport", self.transport)
        ends = {tp: end for tp in self.assignment() if (end := transport.fetch.highwater(tp)) is not None}
        transport.fetch.hold(transport.lanes.ahead(ends))

    def _flows(self) -> bool:
        return self.flow_active and self.placed

    async def _deliver(self, tp: TP, batch: list[Incoming]) -> None:
        expected = self.read_offset(tp)
        if expected is not None and batch[0].offset < expected:
            self.forget_offsets(tp)  # no offset is fetched twice: this partition was recreated
            expected = None
        first, last = batch[0].offset, batch[-1].offset
        self.app.monitor.track_tp_end_offset(tp, self.highwater(tp))
        if self.app.topics.acks_enabled_for(tp.topic):
            await self.skip(tp, first if expected is None else expected, last - 1)
        self.set_read_offsets({tp: last + 1})  # before the wait, because a rebalance during the wait sets it again
        callback: Callable[[ConsumerMessage], Awaitable[None]] = cast("Any", self).callback
        generation = self.app.consumer_generation_id
        message = ConsumerMessage(
            tp.topic, tp.partition, last, 0.0, 0, [], None, cast("Any", batch), None, tp=tp, generation_id=generation
        )
        await callback(message)

    async def _follow_topics(self) -> None:
        """Fetch a recreated topic from its start: it may already have more messages than were read of the old topic."""
        transport = cast("BatchTransport", self.transport)
        loop = asyncio.get_running_loop()
        changed = await loop.run_in_executor(None, transport.lanes.changed)
        again = [tp for tp in self.assignment() if tp.topic in changed and tp not in self._followed]
        if again and self._flows():
            self._followed.update(again)
            places = {tp: int(self.read_offset(tp) or 0) for tp in self.assignment()} | dict.fromkeys(again, 0)
            self._epoch = await self._in_pool(lambda: transport.fetch.begin(places))
        self._followed &= {tp for tp in self._followed if tp.topic in changed}


class BatchTransport(driver.Transport):
    """aiokafka transport with the consumer above; ``lanes`` determine the start offsets."""

    Consumer = BatchConsumer

    def __init__(self, app: faust.App, lanes: Lanes, fetch: Fetch) -> None:
        super().__init__([URL(str(url)) for url in app.conf.broker_consumer], app)
        self.lanes = lanes
        self.fetch = fetch
