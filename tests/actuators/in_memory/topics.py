"""Topics and a consumer group in memory; time stands still until it is told to go on."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tests.actuators.samples import NOW

from flyball_actuators.lease import Lease
from flyball_contracts.codec import Message, record_message
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import AnyDecision, Outcome
from flyball_contracts.topics import DECISIONS

SESSION_S = 6.0


class Time:
    """Stands in for the module ``time`` of the loop: nothing moves unless it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += max(seconds, 0.5)  # waits are long in turns, not in seconds


class Read:
    """A message as a consumer gives it."""

    def __init__(self, message: Message, partition: int, offset: int, at_ms: int) -> None:
        self._message, self._partition, self._offset, self._at_ms = message, partition, offset, at_ms

    def topic(self) -> str:
        return self._message.topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> None:
        return None

    def key(self) -> bytes | None:
        return self._message.key

    def value(self) -> bytes | None:
        return self._message.value

    def headers(self) -> list[tuple[str, bytes]]:
        return [*self._message.headers]

    def timestamp(self) -> tuple[int, int]:
        return 1, self._at_ms


class Published(NamedTuple):
    """An outcome on the topic."""

    outcome: Outcome
    at_ms: int


class Broker:
    """Topics of decisions and outcomes, and one group that reads the decisions."""

    def __init__(self, time: Time, partitions: int) -> None:
        self.time = time
        self.decisions: list[list[Read]] = [[] for _ in range(partitions)]
        self.outcomes: list[list[Published]] = [[] for _ in range(partitions)]
        self.committed = [0] * partitions
        self.owner: list[Consumer | None] = [None] * partitions
        self._heartbeat_s: dict[Consumer, float] = {}

    @property
    def now_ms(self) -> int:
        return NOW // 1_000_000 + round(1000 * self.time.now_s)

    def publish(self, decision: AnyDecision) -> None:
        message = record_message(decision, "/test")
        partition = partition_of(message.key, len(self.decisions))
        log = self.decisions[partition]
        log.append(Read(message, partition, len(log), self.now_ms))

    def all_outcomes(self) -> list[Outcome]:
        return [published.outcome for log in self.outcomes for published in log]

    def heartbeat(self, consumer: "Consumer") -> bool:
        """A member is alive; whether it still is one."""
        self._evict()
        if consumer in self._heartbeat_s:
            self._heartbeat_s[consumer] = self.time.now_s
            return True
        return False

    def join(self, consumer: "Consumer") -> None:
        self._evict()
        self._heartbeat_s[consumer] = self.time.now_s

    def leave(self, consumer: "Consumer") -> None:
        self._heartbeat_s.pop(consumer, None)
        self.owner = [None if owner is consumer else owner for owner in self.owner]

    def share(self, consumer: "Consumer") -> set[int]:
        """The partitions that a member should have."""
        members = [*self._heartbeat_s]
        at = members.index(consumer)
        return {p for p in range(len(self.owner)) if p % len(members) == at}

    def _evict(self) -> None:
        for member, heartbeat_s in [*self._heartbeat_s.items()]:
            if self.time.now_s - heartbeat_s > SESSION_S:
                self.leave(member)


class Consumer:
    """A member of the group, as far as the loop uses one."""

    def __init__(self, broker: Broker, on_commit: Callable[[Any, list[TopicPartition]], None]) -> None:
        self._broker, self._on_commit = broker, on_commit
        self._next: dict[int, int] = {}
        self._paused = False
        self._answers: list[tuple[Any, list[TopicPartition]]] = []
        self._joined = False

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        self._callbacks = callbacks

    def poll(self, wait_s: float) -> Read | None:
        answers, self._answers = self._answers, []
        for answer in answers:
            self._on_commit(*answer)
        self._sync()
        return next(iter(self.consume(1, 0)), None)

    def consume(self, most: int, wait_s: float) -> list[Read]:
        found: list[Read] = []
        for partition, offset in [] if self._paused else [*self._next.items()]:
            part = self._broker.decisions[partition][offset : offset + most - len(found)]
            self._next[partition] += len(part)
            found += part
        return found

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        alive = self._broker.heartbeat(self)
        mine = alive and all(self._broker.owner[part.partition] is self for part in offsets)
        if mine:
            for part in offsets:
                self._broker.committed[part.partition] = part.offset
        problem = None if mine else KafkaError(KafkaError.ILLEGAL_GENERATION)
        if asynchronous:
            self._answers.append((problem, offsets))
        elif problem is not None:
            raise KafkaException(problem)

    def committed(self, parts: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return parts

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(DECISIONS.name, p) for p in self._next]

    def pause(self, parts: list[TopicPartition]) -> None:
        self._paused = True

    def resume(self, parts: list[TopicPartition]) -> None:
        self._paused = False

    def close(self) -> None:
        if self._broker.heartbeat(self):
            self._call("on_revoke", set(self._next))
            self._broker.leave(self)

    def _sync(self) -> None:
        broker = self._broker
        if not broker.heartbeat(self):
            if self._joined:
                self._call("on_lost", set(self._next))
            broker.join(self)
            self._joined = True
        share = broker.share(self)
        gone = set(self._next) - share
        if gone:
            self._call("on_revoke", gone)
            if not broker.heartbeat(self):  # it took longer than the session
                return
            for partition in gone:
                broker.owner[partition] = None
        free = {p for p in share - set(self._next) if broker.owner[p] is None}
        if free:
            for partition in free:
                broker.owner[partition] = self
                self._next[partition] = broker.committed[partition]
            self._callbacks["on_assign"](self, [TopicPartition(DECISIONS.name, p) for p in sorted(free)])

    def _call(self, name: str, partitions: set[int]) -> None:
        if partitions:
            self._callbacks[name](self, [TopicPartition(DECISIONS.name, p) for p in sorted(partitions)])
        for partition in partitions:
            del self._next[partition]


class Outcomes:
    """Follows the outcomes, as :class:`flyball_actuators.ledger.OutcomeLog` does."""

    def __init__(self, broker: Broker, book: Any) -> None:
        self.index = book
        self.undecodable = 0
        self._broker = broker
        self._at: dict[int, int] = {}
        self._until: dict[int, int] = {}

    def follow(self, partition: int, since_ms: int) -> None:
        if partition not in self._at:
            self._at[partition], self._until[partition] = 0, len(self._broker.outcomes[partition])

    def read(self, partition: int, offset: int | None = None) -> bool:
        until = self._until.get(partition, 0) if offset is None else offset + 1
        return partition in self._at and self._at[partition] >= until

    def drain(self) -> None:
        for partition, at in self._at.items():
            new = self._broker.outcomes[partition][at:]
            for published in new:
                self.index.add(partition, published.outcome, published.at_ms)
            self._at[partition] += len(new)

    def forget(self, partition: int) -> None:
        self._at.pop(partition, None)
        self.index.forget(partition)


class Outbox:
    """What a process says: written at once, or with its next turn, and not at all where it was stopped too long."""

    def __init__(self, broker: Broker, lease: Lease, slow: Callable[[], bool]) -> None:
        self.delivered = 0
        self._broker, self._lease, self._slow = broker, lease, slow
        self._waiting: list[tuple[float, int, Outcome, Callable[[int], None] | None, int]] = []
        self._acknowledged: list[tuple[Callable[[int], None], int]] = []
        self._turns: Counter[int] = Counter()

    def put(self, message: Message, then: Callable[[int], None] | None = None) -> None:
        if then is not None:  # a dead letter
            self._acknowledged.append((then, 0))

    def publish(self, partition: int, outcome: Outcome, then: Callable[[int], None] | None) -> None:
        self._waiting.append((self._broker.time.now_s, partition, outcome, then, self._turns[partition]))
        if not self._slow():
            self._send()

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waits in waiting:
            sent_s, partition, outcome, then, turn = waits
            if self._broker.time.now_s - sent_s > self._lease.length_s and not self._lease.valid():
                self._waiting.append(waits)
                continue
            if turn != self._turns[partition]:
                continue
            log = self._broker.outcomes[partition]
            log.append(Published(outcome, self._broker.now_ms))
            if then is not None:
                self._acknowledged.append((then, len(log) - 1))

    def step(self) -> None:
        self._send()
        acknowledged, self._acknowledged = self._acknowledged, []
        for then, offset in acknowledged:
            then(offset)

    def flush(self) -> bool:
        self.step()
        return not self._waiting

    def give_up(self, partition: int) -> None:
        self._turns[partition] += 1
