"""A Faust transport that delivers each partition's fetch as one event.

Stock Faust costs some 75 µs of CPU for each message, whatever the agent does. Here the list of records that a
fetch brought for a partition is the value of one event at the last offset; the offsets before it are declared a
gap, so that acknowledging the event commits them all. Where a partition resumes is the lanes' to say: they know
which offsets their state includes.

This leans on private parts of faust-streaming and aiokafka: their versions are pinned, and a contract test runs
the transport against a broker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, cast

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage
from yarl import URL

Resume = Callable[[Collection[TP]], Mapping[TP, int]]


class BatchConsumer(driver.Consumer):
    """Consumer whose events carry a list of records of one partition."""

    async def perform_seek(self) -> None:
        """Seek to the committed offsets, then to where the lanes say that their state ends."""
        await super().perform_seek()
        transport = cast("BatchTransport", self.transport)
        loop = asyncio.get_running_loop()  # reading snapshots must not stop the heartbeats' loop
        places = await loop.run_in_executor(None, transport.resume, self.assignment())
        if places:
            await self.seek_wait(places)

    async def _drain_messages(self, fetcher: Any) -> None:
        try:
            while not (self._stopped.is_set() or fetcher._stopped.is_set()):
                await self._drain_once()
        except self.consumer_stopped_errors:
            if not self.transport.app.should_stop:
                raise

    async def _drain_once(self) -> None:
        records, _ = await self._wait_next_records(1.0)
        generation = self.app.consumer_generation_id
        await asyncio.sleep(0)  # fetches that are ready never yield to the loop
        if not records:
            return
        if not self.flow_active:  # a rebalance began while the fetch was out
            await self.perform_seek()
            return
        for place, batch in records.items():
            if not self.flow_active or self.app.consumer_generation_id != generation:
                return
            await self._deliver(TP(*place), list(batch), generation)

    async def _deliver(self, tp: TP, batch: list[Any], generation: int) -> None:
        expected = self._read_offset[tp]
        batch = [record for record in batch if expected is None or record.offset >= expected]
        if not batch:
            return
        first, last = batch[0].offset, batch[-1]
        self.app.monitor.track_tp_end_offset(tp, self.highwater(tp))
        if self.app.topics.acks_enabled_for(tp.topic):
            await self._add_gap(tp, first if expected is None else expected, last.offset - 1)
        callback: Callable[[ConsumerMessage], Awaitable[None]] = cast("Any", self).callback
        await callback(
            ConsumerMessage(
                tp.topic,
                tp.partition,
                last.offset,
                last.timestamp / 1000.0,
                last.timestamp_type,
                [],
                None,
                cast("Any", batch),
                None,
                0,
                sum(record.serialized_value_size for record in batch),
                tp,
                generation_id=generation,
            )
        )
        self._read_offset[tp] = last.offset + 1


class BatchTransport(driver.Transport):
    """aiokafka transport with the consumer above; ``resume`` says where assigned partitions start."""

    Consumer = BatchConsumer

    def __init__(self, app: faust.App, resume: Resume) -> None:
        super().__init__([URL(str(url)) for url in app.conf.broker_consumer], app)
        self.resume = resume
