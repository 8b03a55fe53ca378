"""An embedded broker that speaks the real protocol on loopback: for the demo and for tests.

It is librdkafka's mock cluster. It keeps 5 MiB per partition, then silently drops the oldest; it persists nothing;
records of 4 MB and more are unreadable; finding offsets by time and the admin API do not work. Every rebalance of a
group after its first lasts the members' session timeout less a second. Never join one group with both confluent-kafka
and aiokafka members: that aborts the process.
"""

import logging
import threading
from collections.abc import Mapping
from typing import Self

from confluent_kafka import Producer

from flyball_contracts.errors import TransportError
from flyball_streams.broker.mock_cluster import LibraryMissing, MockCluster

_LOG = logging.getLogger(__name__)
_SERVE_MS = 100
_START_S = 10.0
FALLBACK_PARTITIONS = 4  # partitions that the mock gives every topic that it does not know


class EmbeddedBroker:
    """A broker that runs until `close`, or to the end of its `with` block.

    `topics` maps names to partition counts; `join_delay_ms` is how long a new consumer group
    waits for more members. `TransportError` when it cannot start.

    Where librdkafka's shared object cannot be opened, a client's own mock cluster serves instead:
    topics then have `FALLBACK_PARTITIONS` partitions, the first join takes 3 s, and faults cannot
    be injected. A warning says so.
    """

    def __init__(self, topics: Mapping[str, int], *, brokers: int = 1, join_delay_ms: int = 100) -> None:
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._cluster: MockCluster | None = None
        self._fallback: Producer | None = None
        try:
            self._cluster = MockCluster(brokers, join_delay_ms)
            self.bootstrap = self._cluster.bootstrap
        except LibraryMissing as error:
            _LOG.warning(
                "embedded broker without fault injection, and with %d partitions in every topic: "
                "%s; install the confluent-kafka wheel from PyPI to have both",
                FALLBACK_PARTITIONS,
                error,
            )
            self._fallback = Producer({"test.mock.num.brokers": brokers, "log_level": 3})
            nodes = self._fallback.list_topics(timeout=_START_S).brokers.values()
            self.bootstrap = ",".join(f"{node.host}:{node.port}" for node in nodes)
        self._server = threading.Thread(target=self._serve, name="embedded-broker", daemon=True)
        self._server.start()
        try:
            self.create_topics(topics)
        except BaseException:
            self.close()
            raise

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create topics, name to number of partitions; `TransportError` when one is refused."""
        for name, partitions in topics.items():
            self.create_topic(name, partitions)

    def create_topic(self, name: str, partitions: int) -> None:
        """Create one topic; `TransportError` when it exists or the count is below one."""
        if partitions < 1:  # the mock would create a topic without partitions
            raise TransportError(f"topic {name!r} needs at least one partition, not {partitions}")
        self._open()
        if self._cluster is not None:
            self._cluster.create_topic(name, partitions)
            return
        assert self._fallback is not None
        self._fallback.list_topics(name, timeout=_START_S)  # the metadata request creates the topic
        if partitions != FALLBACK_PARTITIONS:
            _LOG.warning("topic %s has %d partitions, not %d", name, FALLBACK_PARTITIONS, partitions)

    def close(self) -> None:
        """End the broker; a second call does nothing."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            self._server.join()
            if self._cluster is not None:
                self._cluster.close()
            self._fallback = None  # its mock cluster ends with it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        while not self._closing.is_set():
            if self._cluster is not None:
                self._cluster.serve(_SERVE_MS)
            elif self._fallback is not None:
                self._fallback.poll(_SERVE_MS / 1000)

    def _open(self) -> None:
        if self._closing.is_set():
            raise TransportError("the embedded broker is closed")
