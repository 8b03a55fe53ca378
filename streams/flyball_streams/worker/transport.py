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
from importlib.metadata import version
from typing import Any, Protocol, cast

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage
from yarl import URL

TESTED = {"faust-streaming": "0.15.3", "mode-streaming": "0.7.1", "aiokafka": "0.14.0"}
"""Versions that the contract test of this module passed with."""
POSITION_S = 10.0
PAUSE_S = 0.02
PACE_S = 0.05
"""Least time between two fetches: what a fetch and its step cost hardly depends on how much they bring."""


class Lanes(Protocol):
    """What the consumer asks of whoever uses the messages; both may take a while and are called in a thread."""

    def resume(self, assigned: Collection[TP]) -> Mapping[TP, int]:
        """Where the assigned partitions go on, of those whose state is known."""
        ...

    def begin(self, starts: Mapping[TP, int]) -> None:
        """Take note where the others start."""
        ...


def untested_versions() -> dict[str, str]:
    """Installed versions that this module was not tested with, by package."""
    found = {name: version(name) for name in TESTED}
    return {name: installed for name, installed in found.items() if installed != TESTED[name]}


class BatchConsumer(driver.Consumer):
    """Consumer whose events carry a list of records of one partition."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.placed = False
        self._asked_again: dict[TP, int] = {}
        self._thrown_away: dict[TP, int] = {}

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Deliver nothing until the new partitions have their places."""
        self.placed = False
        await super().on_partitions_revoked(revoked)

    async def perform_seek(self) -> None:
        """Seek to the committed offsets, then to where the lanes say that their state ends.

        Faust fetches from the committed offsets already; what that brings is thrown away until :attr:`placed`.
        """
        self.placed = False
        await super().perform_seek()
        lanes = cast("BatchTransport", self.transport).lanes
        loop = asyncio.get_running_loop()  # reading snapshots must not stop the heartbeats' loop
        assigned = self.assignment()
        places = await loop.run_in_executor(None, lanes.resume, assigned)
        if places:
            await self.seek_wait(places)
        ahead = {tp: offset for tp, offset in places.items() if (self._committed_offset.get(tp) or 0) < offset}
        if ahead:
            # Faust commits nothing while the offsets between are not acknowledged. The state includes them.
            self._committed_offset.update(ahead)
            await self._commit(ahead)
        starts = {tp: await self._start_of(tp) for tp in assigned if tp not in places}
        await loop.run_in_executor(None, lanes.begin, starts)
        self.placed = self.assignment() == assigned

    async def _start_of(self, tp: TP) -> int:
        thread: Any = self._thread
        return int(await asyncio.wait_for(thread.call_thread(thread._consumer.position, tp), POSITION_S))

    async def _drain_messages(self, fetcher: Any) -> None:
        try:
            while not (self._stopped.is_set() or fetcher._stopped.is_set()):
                await self._drain_once()
        except self.consumer_stopped_errors:
            if not self.transport.app.should_stop:
                raise

    async def _drain_once(self) -> None:
        if not (self.flow_active and self.placed):
            await asyncio.sleep(PAUSE_S)
            return
        if self._thrown_away:
            await self._ask_again()
        generation = self.app.consumer_generation_id
        records, _ = await self._wait_next_records(1.0)
        await asyncio.sleep(PACE_S)
        batches = {TP(*place): list(batch) for place, batch in (records or {}).items() if batch}
        for tp in list(batches):
            if not (self.flow_active and self.placed) or self.app.consumer_generation_id != generation:
                # A rebalance: nobody knows whether these were fetched before or after the seek that it ends with.
                self._thrown_away |= {tp: batch[0].offset for tp, batch in batches.items()}
                return
            await self._deliver(tp, batches.pop(tp), generation)

    async def _ask_again(self) -> None:
        """Seek to where those partitions go on, of those that are still ours, whose records were thrown away."""
        thrown, self._thrown_away = self._thrown_away, {}
        assigned = self.assignment()
        places = {tp: self._read_offset[tp] for tp in thrown if tp in assigned}
        await self.seek_wait({tp: thrown[tp] if offset is None else offset for tp, offset in places.items()})

    async def _deliver(self, tp: TP, batch: list[Any], generation: int) -> None:
        expected = self._read_offset[tp]
        batch = [record for record in batch if expected is None or record.offset >= expected]
        if not batch:
            return
        first, last = batch[0].offset, batch[-1]
        if expected is not None and first > expected and self._asked_again.get(tp) != expected:
            # Messages that a rebalance made us throw away, or that the broker no longer has: asking again tells which.
            self._asked_again[tp] = expected
            await self.seek_wait({tp: expected})
            return
        self.app.monitor.track_tp_end_offset(tp, self.highwater(tp))
        if self.app.topics.acks_enabled_for(tp.topic):
            await self._add_gap(tp, first if expected is None else expected, last.offset - 1)
        self._read_offset[tp] = last.offset + 1  # before the wait: a rebalance meanwhile sets it anew
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


class BatchTransport(driver.Transport):
    """aiokafka transport with the consumer above; ``lanes`` say where assigned partitions start."""

    Consumer = BatchConsumer

    def __init__(self, app: faust.App, lanes: Lanes) -> None:
        super().__init__([URL(str(url)) for url in app.conf.broker_consumer], app)
        self.lanes = lanes
