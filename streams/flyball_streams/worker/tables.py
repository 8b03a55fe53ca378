"""The compacted topics and the outcomes, which every worker process reads in full.

All lanes need inventories, specifications and signals, so these are not divided in a consumer group: a plain consumer
reads all partitions from the start. Lane snapshots are found the same way.
"""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from confluent_kafka import KafkaError, KafkaException, Message as KafkaMessage, TopicPartition

from flyball_contracts.codec import Message, decode_record, decode_snapshot
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.kafka import Place, bounds, consumer_settings, ends, open_consumer
from flyball_contracts.records import Record, Snapshot
from flyball_contracts.tables import TABLES
from flyball_contracts.topics import OUTCOMES, STATE
from flyball_streams.engine.directory import Tombstone
from flyball_streams.engine.lane import Incoming, refuse
from flyball_streams.worker.snapshots import SnapshotShelf

log = logging.getLogger(__name__)
READ = (*TABLES, STATE)
OUTCOMES_BACK = 1000
"""Number of past outcomes to read per partition: they matter only while a decision is valid."""
RESPONSE_S = 10.0
ENDS_S = 2.0
RETRY_S = 0.1
SILENCE_S = 30.0
CATCH_UP_S = 30.0
"""How long new lanes wait for tables and snapshots that other workers have read and written."""


class TableChange(NamedTuple):
    """A record or a tombstone, and its offset."""

    topic: str
    partition: int
    offset: int
    what: Record | Tombstone


class Changes(NamedTuple):
    """Table changes since the last call, in order, and dead letters of unreadable messages.

    ``following`` is the first offset of each partition that was not read.
    """

    rows: list[TableChange]
    dead: list[Message]
    following: dict[Place, int]


class TableReader:
    """Reads the tables in its own thread; :meth:`drain` returns what is new."""

    def __init__(self, kafka: KafkaConfig, client_id: str, group: str) -> None:
        settings: dict[str, Any] = {
            # The group's name is for the broker's access lists: nothing joins it or commits here.
            **consumer_settings(kafka.bootstrap, group=group, client_id=client_id, extra=kafka.client),
            "enable.partition.eof": True,  # where compaction removed the last record, only this marks the end
        }
        self._consumer = open_consumer(settings, log, "tables")
        # Other threads starve while one is in consume(): metadata requests go through a client of their own.
        self._metadata_client = open_consumer(settings, log, "tables", log_errors=False)
        self._places: list[TopicPartition] = []
        self._lock = threading.Lock()
        self._rows: list[TableChange] = []
        self._dead: list[Message] = []
        self._shelf = SnapshotShelf()
        self._next: dict[Place, int] = {}
        self._stop = threading.Event()
        self._broken: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="tables", daemon=True)

    def start(self) -> None:
        """Read to the current ends of the tables, then continue in the background.

        Raises :class:`TransportError` when a topic is missing or the broker does not respond.
        """
        try:
            self._places = self._find_places()
            found = bounds(self._metadata_client, ((tp.topic, tp.partition) for tp in self._places), RESPONSE_S)
        except KafkaException as error:
            raise TransportError(f"the tables cannot be read: {error.args[0].str()}; check kafka.bootstrap") from error
        for tp in self._places:
            low, high = found[tp.topic, tp.partition]
            tp.offset = max(low, high - OUTCOMES_BACK) if tp.topic == OUTCOMES.name else low
            self._next[tp.topic, tp.partition] = tp.offset
        self._consumer.assign(self._places)
        wanted = {place: high for place, (_, high) in found.items()}
        progress_s, missing = time.monotonic(), self._missing(wanted)
        while missing:
            self._poll(0.2)
            before, missing = missing, self._missing(wanted)
            progress_s = progress_s if missing == before else time.monotonic()
            if time.monotonic() - progress_s > SILENCE_S:
                raise TransportError(f"{missing} messages of the tables did not come within {SILENCE_S:.0f} s")
        self._thread.start()

    def drain(self) -> Changes:
        """Return everything read since the last call; raises :class:`TransportError` when reading ended."""
        if self._broken is not None:
            raise TransportError(f"the tables can no longer be read: {self._broken}")
        with self._lock:
            rows, self._rows = self._rows, []
            dead, self._dead = self._dead, []
            following = {place: offset for place, offset in self._next.items() if place[0] != STATE.name}
        return Changes(rows, dead, following)

    def snapshot(self, lane: str, partition: int, topics: Mapping[str, str] | None = None) -> Snapshot | None:
        """Newest complete snapshot of a lane partition that was read, among those of these topic ids."""
        with self._lock:
            return self._shelf.newest(lane, partition, topics)

    def catch_up(self, *topics: str, timeout_s: float = CATCH_UP_S) -> None:
        """Wait until the current contents of these tables have been read.

        After a rebalance there are snapshots of other workers. An agent publishes its inventory before frames that
        refer to it, so after fetching frames and then waiting for inventories, all of them are known. Never raises and
        never takes much longer than ``timeout_s``: a worker that is behind reads more again, or refuses frames.
        """
        deadline_s = time.monotonic() + timeout_s
        requested = [(tp.topic, tp.partition) for tp in self._places if tp.topic in topics]
        found = self.ends(requested)
        while (len(found) < len(requested) or self._missing(found)) and time.monotonic() < deadline_s:
            is_incomplete = len(found) < len(requested)
            if self._stop.wait(RETRY_S if is_incomplete else 0.002):
                return
            if is_incomplete:  # a restarted broker may answer only the second request, when its leaders are known
                found = self.ends(requested)
        if len(found) < len(requested) or self._missing(found):
            log.warning("%s: not read to the end within %.0f s; what is older is used", ", ".join(topics), timeout_s)

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Offset after the last message of each partition, without those that the broker does not report.

        It takes one request.
        """
        return ends(self._metadata_client, places, ENDS_S)

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        self._consumer.close()
        self._metadata_client.close()

    def _find_places(self) -> list[TopicPartition]:
        known = self._metadata_client.list_topics(timeout=RESPONSE_S).topics
        missing = [t.name for t in READ if t.name not in known or not known[t.name].partitions]
        if missing:
            raise TransportError(f"missing topics: {', '.join(missing)}; create them with `flyball topics --create`")
        return [TopicPartition(t.name, p) for t in READ for p in known[t.name].partitions]

    def _missing(self, ends: dict[Place, int]) -> int:
        with self._lock:
            return sum(max(0, end - self._next.get(place, 0)) for place, end in ends.items())

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._poll(0.2)
        except Exception as error:  # the lanes must not continue with tables that are no longer updated
            log.exception("the tables can no longer be read")
            self._broken = error

    def _poll(self, timeout_s: float) -> None:
        messages = self._consumer.consume(1, timeout_s)  # with a larger number, it would wait for more messages
        if messages:
            messages += self._consumer.consume(500, 0.0)
        for message in messages:
            error = message.error()
            if error is None:
                self._take(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                with self._lock:  # lower than before if the topic was recreated
                    self._next[message.topic() or "", message.partition() or 0] = message.offset() or 0
            else:
                log.warning("tables: %s", error.str())

    def _take(self, message: KafkaMessage) -> None:
        topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
        headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
        incoming = Incoming(topic, partition, offset, message.key(), message.value(), headers)
        found = _read(incoming)
        with self._lock:
            self._next[topic, partition] = offset + 1
            if isinstance(found, Snapshot):
                self._shelf.put(found)
            elif isinstance(found, DecodeError):
                self._dead.append(refuse(incoming, "tables", found))
            elif topic != STATE.name:
                self._rows.append(TableChange(topic, partition, offset, found))


def _read(incoming: Incoming) -> Record | Snapshot | Tombstone | DecodeError:
    """The record in a message, or the error why it cannot be read."""
    if incoming.value is None:
        return Tombstone(incoming.topic, (incoming.key or b"").decode(errors="replace"))
    try:
        if incoming.topic == STATE.name:
            return decode_snapshot(incoming.value)
        return decode_record(incoming.topic, incoming.value, incoming.headers)
    except DecodeError as error:
        return error
