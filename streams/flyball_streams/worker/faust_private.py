"""What the worker overrides and reads of the private parts of faust-streaming, mode-streaming and aiokafka.

No other module touches them. A new version may rename any of them: ``tests/streams/worker/test_faust_private.py`` fails
when other versions than the tested ones are installed, and when a name in :data:`PRIVATE` is gone.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any, TypeVar, cast

from faust.transport.drivers import aiokafka as driver
from faust.types import TP

TESTED = {"faust-streaming": "0.15.3", "mode-streaming": "0.7.1", "aiokafka": "0.14.0"}
"""Versions that the tests of this module passed with."""
PRIVATE: Mapping[str, tuple[str, ...]] = {
    "faust.transport.drivers.aiokafka.Consumer": (
        *("_acked", "_acked_index", "_add_gap", "_commit", "_committed_offset", "_drain_messages", "_gap"),
        *("_new_topicpartition", "_read_offset", "_stopped", "_thread", "_wait_next_records"),
    ),
    "faust.transport.consumer.Fetcher": ("_stopped",),
    "faust.transport.drivers.aiokafka.AIOKafkaConsumerThread": ("_consumer", "_create_worker_consumer"),
    "aiokafka.consumer.consumer.AIOKafkaConsumer": ("_client", "_coordinator", "_fetch_max_wait_ms"),
    "aiokafka.consumer.group_coordinator.GroupCoordinator": ("_metadata_snapshot",),
    "aiokafka.consumer.group_coordinator.CoordinatorGroupRebalance": ("_on_join_leader",),
}
"""The private names that are used, by class."""
CALL_S = 10.0
T = TypeVar("T")

# Through Any: aiokafka has no types, and the names are private.
_THREAD: Any = driver.AIOKafkaConsumerThread
_REBALANCE: Any = import_module("aiokafka.consumer.group_coordinator").CoordinatorGroupRebalance
_CREATE_CONSUMER: Any = _THREAD._create_worker_consumer
_LEAD_JOIN: Any = _REBALANCE._on_join_leader


def untested_versions() -> dict[str, str]:
    """Installed versions that this module was not tested with, by package."""
    found = {name: version(name) for name in TESTED}
    return {name: installed for name, installed in found.items() if installed != TESTED[name]}


class PrivateConsumer(driver.Consumer):
    """Faust's consumer, with our own names for its private members; a subclass delivers the messages."""

    @abstractmethod
    async def deliver_next(self) -> None:
        """Deliver what can be delivered now; called again until the consumer stops."""

    def stopping(self) -> bool:
        """Whether the consumer has begun to stop."""
        return self._stopped.is_set()

    def read_offset(self, tp: TP) -> int | None:
        """Offset of the next message of a partition, ``None`` where it is not known."""
        return self._read_offset[tp]

    def set_read_offsets(self, offsets: Mapping[TP, int]) -> None:
        """Set the offsets of the next messages."""
        self._read_offset.update(offsets)

    async def commit_ahead(self, offsets: Mapping[TP, int]) -> None:
        """Commit offsets that are beyond the committed ones.

        Faust itself commits nothing while the offsets between are not acknowledged.
        """
        ahead = {tp: offset for tp, offset in offsets.items() if (self._committed_offset.get(tp) or 0) < offset}
        if ahead:
            self._committed_offset.update(ahead)
            await self._commit(ahead)

    async def skip(self, tp: TP, first: int, last: int) -> None:
        """Count the offsets from ``first`` to ``last`` as acknowledged."""
        await self._add_gap(tp, first, last)

    def forget_offsets(self, tp: TP) -> None:
        """Make Faust forget the offsets of a recreated partition; it would never commit lower ones."""
        kept: Any = self
        for offsets in (kept._acked, kept._acked_index, kept._gap):
            if tp in offsets:
                offsets[tp].clear()
        self._committed_offset[tp] = None
        self._read_offset[tp] = None

    async def pause_client(self, partitions: Iterable[TP]) -> None:
        """Keep aiokafka from fetching these partitions."""
        thread: Any = self._thread
        await self._in_thread(thread._consumer.pause, *(self._new_topicpartition(*tp) for tp in partitions))

    async def client_position(self, tp: TP) -> int:
        """Offset from which aiokafka would fetch next."""
        thread: Any = self._thread
        return int(await self._in_thread(thread._consumer.position, tp))

    async def poll_client(self) -> None:
        """Let aiokafka see that this member of the group is alive."""
        await self._wait_next_records(0.0)

    def look_for_topics(self) -> None:
        """Request metadata again if a topic had no partitions, as happens while a broker starts.

        The group's leader assigns no partitions of such a topic. The group is rebalanced once the metadata contains
        them, but aiokafka refreshes its metadata only every five minutes.
        """
        thread = cast("Any", self._thread)
        if thread is None or thread._consumer is None:
            return
        consumer = thread._consumer
        if 0 in consumer._coordinator._metadata_snapshot.values():
            thread.thread_loop.call_soon_threadsafe(consumer._client.force_metadata_update)

    async def _drain_messages(self, fetcher: Any) -> None:
        try:
            while not (self._stopped.is_set() or fetcher._stopped.is_set()):
                await self.deliver_next()
        except self.consumer_stopped_errors:
            if not self.transport.app.should_stop:
                raise

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function of aiokafka's consumer in its own thread."""
        thread: Any = self._thread
        return cast("T", await asyncio.wait_for(thread.call_thread(function, *arguments), CALL_S))


def run_on_embedded_broker(fetch_wait_ms: int = 50, leader_delay_s: float = 0.3) -> None:
    """Patch Faust and aiokafka in this process for the embedded broker; a real Kafka needs neither patch.

    Call it before the Faust app starts; calling it again only changes the two times. Faust asks a broker to wait up to
    1.5 s for data, and the mock always waits that long: each new consumer requests ``fetch_wait_ms`` instead. The mock
    ends a rebalance when the group's leader reports, and a follower that reports later hangs for ever: the leader holds
    back for ``leader_delay_s``.
    """

    def create_consumer(thread: Any, transport: Any) -> Any:
        consumer = _CREATE_CONSUMER(thread, transport)
        consumer._fetch_max_wait_ms = fetch_wait_ms
        return consumer

    async def lead_join(rebalance: Any, response: Any) -> Any:
        await asyncio.sleep(leader_delay_s)
        return await _LEAD_JOIN(rebalance, response)

    _THREAD._create_worker_consumer = create_consumer
    _REBALANCE._on_join_leader = lead_join
