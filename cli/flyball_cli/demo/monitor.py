"""Observes the loop from outside: input, decisions, and outcomes."""

import logging
import re
from collections import Counter, deque
from typing import NamedTuple

from confluent_kafka import KafkaException, TopicPartition

from flyball_contracts.cloudevents import header
from flyball_contracts.codec import decode_record
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.kafka import bounds, consumer_settings, list_topics, open_consumer
from flyball_contracts.records import Decision, Outcome
from flyball_contracts.topics import DEAD_LETTERS, DECISIONS, INSIGHTS, OUTCOMES, TELEMETRY

log = logging.getLogger(__name__)
_PARTICULARS = re.compile(r"'[^']*'|\d+")
UNDER_WAY_NS = 900 * 1_000_000_000
"""How long an operation may be in progress, in event time."""


class RecentDecision(NamedTuple):
    """One decision as the summary shows it."""

    kind: str
    target: str
    reason: str
    time_ns: int


class Monitor:
    """Counts decisions, outcomes and dead letters since it was made."""

    def __init__(self, kafka: KafkaConfig) -> None:
        settings = consumer_settings(
            kafka.bootstrap, group="flyball-demo", client_id="flyball-demo", extra=kafka.client
        )
        self._consumer = open_consumer(settings, log, "demo")
        try:
            known = list_topics(self._consumer, 10.0).topics
        except KafkaException as error:
            raise TransportError(f"no broker answers at {kafka.bootstrap}: {error.args[0].str()}") from error
        self._places = {
            topic.name: [TopicPartition(topic.name, p) for p in known[topic.name].partitions]
            for topic in (TELEMETRY, INSIGHTS, DECISIONS, OUTCOMES, DEAD_LETTERS)
        }
        self._start = {name: self._ends(name) for name in self._places}
        watched = (DECISIONS.name, OUTCOMES.name, DEAD_LETTERS.name)
        self._consumer.assign(
            [TopicPartition(n, tp.partition, self._start[n][tp.partition]) for n in watched for tp in self._places[n]]
        )
        self.decisions: dict[str, RecentDecision] = {}
        self.kinds: Counter[str] = Counter()
        self.outcomes: dict[str, Outcome] = {}
        """Final outcome of each decision."""
        self.begun: set[str] = set()
        """Decisions that were accepted."""
        self.newest_ns = 0
        self.dead: Counter[str] = Counter()
        """Dead letters by the first reason of each kind; reasons of one kind differ only in names and numbers."""
        self._first: dict[str, str] = {}
        self.recent: deque[RecentDecision] = deque(maxlen=8)

    def poll(self, timeout_s: float) -> None:
        """Read new messages."""
        for message in self._consumer.consume(200, timeout_s):
            if message.error() is not None:
                continue
            topic, value = message.topic() or "", message.value()
            headers: list[tuple[str, bytes | None]] = list(message.headers() or [])  # type: ignore[arg-type]
            if topic == DEAD_LETTERS.name:
                self._bury(header(headers, "__connect.errors.exception.message") or "unknown reason")
                continue
            try:
                record = decode_record(topic, value, headers)
            except DecodeError as error:
                self._bury(str(error))
                continue
            if isinstance(record, Decision) and record.id not in self.decisions:
                seen = RecentDecision(type(record).__name__, record.target, record.reason, record.time_ns)
                self.decisions[record.id] = seen
                self.kinds[seen.kind] += 1
                self.recent.append(seen)
            elif isinstance(record, Outcome):
                self.newest_ns = max(self.newest_ns, record.time_ns)
                if record.final:
                    self.outcomes[record.decision] = record
                else:
                    self.begun.add(record.decision)

    def sent(self, topic: str) -> int:
        """Messages that a topic has received since the start."""
        now = self._ends(topic)
        return sum(end - self._start[topic][p] for p, end in now.items())

    def open_decisions(self) -> list[str]:
        """Decisions without a final outcome yet."""
        return [identity for identity in self.decisions if identity not in self.outcomes]

    def under_way(self) -> list[str]:
        """Recent open decisions that were accepted, and those queued behind them (one operation per target)."""
        since_ns = self.newest_ns - UNDER_WAY_NS
        recently = [d for d in self.open_decisions() if self.decisions[d].time_ns >= since_ns]
        busy = {self.decisions[d].target for d in recently if d in self.begun}
        return [d for d in recently if self.decisions[d].target in busy]

    def close(self) -> None:
        """Stop observing."""
        self._consumer.close()

    def _bury(self, reason: str) -> None:
        self.dead[self._first.setdefault(_PARTICULARS.sub("", reason), reason)] += 1

    def _ends(self, topic: str) -> dict[int, int]:
        try:
            found = bounds(self._consumer, ((topic, tp.partition) for tp in self._places[topic]))
        except KafkaException as error:
            raise TransportError(f"the broker no longer reports where {topic} ends: {error.args[0].str()}") from error
        return {partition: following for (_, partition), (_, following) in found.items()}
