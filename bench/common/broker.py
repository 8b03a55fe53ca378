"""Sending to the broker, at a pace that it can keep, and seeing from outside what the worker has done.

The embedded broker keeps 5 MiB per partition and then drops the oldest without a word, so the sender stays only so
far ahead of the worker as fits, and every claim of a row rests on a count of what arrived.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, Message as Delivered, Producer, TopicPartition

from flyball_contracts.codec import Message, decode_record
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.kafka import bounds, consumer_settings, producer_settings
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import DemandTick, ProposalTick, Tick
from flyball_contracts.topics import DEAD_LETTERS, DEMAND, PROPOSALS, TELEMETRY

AHEAD_BYTES = 8_000_000
"""Uncompressed bytes per partition that may wait for the worker: a quarter of it travels, the broker keeps 5 MiB."""
LEAST_AHEAD = 7
"""Ticks: more than the grace of a node lane, which closes nothing before, less than that of the lane after it, so that
the workload lanes need a message of every node lane before they close their first tick."""
DEADLINE_S = 180.0


def wait_for(what: str, done: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """Poll until ``done``; raises :class:`TransportError` that says what did not happen."""
    end = time.monotonic() + deadline_s
    while not done():
        if time.monotonic() > end:
            raise TransportError(f"{what} did not happen within {deadline_s:.0f} s")
        time.sleep(0.005)


class Sender:
    """Producer that loses nothing: what the broker refuses is an error."""

    def __init__(self, bootstrap: str) -> None:
        self._failed: KafkaError | None = None
        settings = producer_settings(bootstrap, client_id="bench-sender", linger_ms=0, extra={"log_level": "0"})
        self._producer = Producer({**settings, "on_delivery": self._delivered})

    def send(self, messages: Iterable[Message]) -> None:
        """Queue messages."""
        for m in messages:
            self.produce(m.topic, m.key, m.value, m.headers)

    def produce(self, topic: str, key: bytes, value: bytes, headers: Sequence[tuple[str, bytes]] = ()) -> None:
        """Queue one message; waits while the queue is full."""
        while True:
            try:
                self._producer.produce(topic, value, key, headers=cast("Any", list(headers)))
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def flush(self) -> None:
        """Wait until the broker has everything; raises :class:`TransportError` when it refused some."""
        if self._producer.flush(60.0) or self._failed is not None:
            raise TransportError(f"the broker did not take the benchmark's data: {self._failed or 'timeout'}")

    def _delivered(self, error: KafkaError | None, _message: Delivered) -> None:
        self._failed = error or self._failed


class Watch:
    """Follows what the lanes leave for each closed tick: how far the worker is, and what it missed."""

    def __init__(self, bootstrap: str, sources: set[str], demand_partitions: int) -> None:
        self._admin = Consumer(consumer_settings(bootstrap, group="flyball", client_id="bench-admin"))
        self._consumer = Consumer(consumer_settings(bootstrap, group="bench-watch", client_id="bench-watch"))
        # Every partition of the demand topic receives every tick: one is enough.
        places = [TopicPartition(DEMAND.name, 0, 0)]
        places += [TopicPartition(PROPOSALS.name, p, 0) for p in self._partitions(PROPOSALS.name)]
        self._consumer.assign(places)
        self._nodes = sources
        self._workloads = {f"workload/{p}" for p in range(demand_partitions)}
        self._marks: dict[str, Counter[int]] = {source: Counter() for source in self._nodes | self._workloads}
        self._incomplete: dict[str, dict[int, Tick]] = {source: {} for source in self._marks}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def reached(self, tick: int) -> bool:
        """Whether every node lane has closed a tick."""
        return all(tick in self._marks[source] for source in self._nodes)

    def passed(self, tick: int) -> bool:
        """Whether node and workload lanes all have closed a tick."""
        return all(tick in marks for marks in self._marks.values())

    def committed(self) -> bool:
        """Whether the worker has committed everything there is, from the frames to the proposals."""
        for topic in (TELEMETRY.name, DEMAND.name, PROPOSALS.name):  # in this order: each feeds the next
            places = [TopicPartition(topic, p) for p in self._partitions(topic)]
            for place in self._admin.committed(places, timeout=10.0):
                end = self._end(topic, place.partition)
                if end and place.offset != end:
                    return False
        return True

    def problem(self, first: int, last: int) -> str:
        """Say why the claim "every frame of these ticks was used exactly once" is false; empty when it is true."""
        for source, marks in sorted(self._marks.items()):
            missing = [tick for tick in range(first, last + 1) if marks[tick] != 1]
            if missing:
                return f"{source} closed tick {missing[0]} {marks[missing[0]]} times ({len(missing)} ticks not once)"
            incomplete = [tick for index, tick in sorted(self._incomplete[source].items()) if first <= index <= last]
            if incomplete:
                how = f"without {', '.join(incomplete[0].missing) or 'nobody'}, {incomplete[0].late} late"
                return f"{source} closed {len(incomplete)} ticks incomplete, tick {incomplete[0].index} {how}"
        refused = self.count(DEAD_LETTERS.name)
        return f"{refused} messages were refused" if refused else ""

    def count(self, topic: str) -> int:
        """Messages ever sent to a topic."""
        return sum(self._end(topic, p) for p in self._partitions(topic))

    def close(self) -> None:
        """Stop following."""
        self._stop.set()
        self._thread.join(5.0)
        self._consumer.close()
        self._admin.close()

    def _partitions(self, topic: str) -> list[int]:
        return sorted(self._admin.list_topics(topic, timeout=10.0).topics[topic].partitions)

    def _end(self, topic: str, partition: int) -> int:
        return bounds(self._admin, [(topic, partition)])[topic, partition].following

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, 0.02):
                value = message.value()
                if message.error() is not None or value is None:
                    continue
                headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
                if message.topic() in (DEMAND.name, PROPOSALS.name):
                    self._mark(message.topic() or "", value, headers)

    def _mark(self, topic: str, value: bytes, headers: list[tuple[str, bytes | None]]) -> None:
        try:
            mark = decode_record(topic, value, headers)
        except DecodeError:
            return
        closes = isinstance(mark, DemandTick) or (isinstance(mark, ProposalTick) and mark.closes)
        if isinstance(mark, ProposalTick | DemandTick) and closes and mark.source in self._marks:
            tick = mark.tick
            self._marks[mark.source][tick.index] += 1
            if tick.closed_by != "complete" or tick.late:
                self._incomplete[mark.source][tick.index] = tick


def send_paced(
    sender: Sender, watch: Watch, ticks: list[list[Message]], first: int, partitions: int, *, warm: bool
) -> None:
    """Send ticks from index ``first`` on, staying within what the broker keeps; slower where they ``warm`` up."""
    largest = max(_bytes_per_partition(messages, partitions) for messages in ticks)
    ahead = LEAST_AHEAD if warm else max(LEAST_AHEAD, AHEAD_BYTES // max(largest, 1))
    for i, messages in enumerate(ticks):
        if i >= ahead:
            wait_for("closing a tick", partial(watch.reached, first + i - ahead))
        sender.send(messages)
    sender.flush()


def _bytes_per_partition(messages: list[Message], partitions: int) -> int:
    sizes: Counter[int] = Counter()
    for m in messages:
        if m.topic == TELEMETRY.name:
            sizes[partition_of(m.key, partitions)] += len(m.value) + len(m.key)
    return max(sizes.values(), default=0)
