"""Records of one decision on the topics: itself, the records that its evidence names, and its outcomes."""

import logging
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from flyball_contracts.codec import decode_message
from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import DecodeError, FlyballError, TransportError
from flyball_contracts.kafka import bounds, consumer_settings, list_topics, open_consumer
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import AnyDecision, Decision, Incident, NodeCondition, Outcome, Record
from flyball_contracts.topics import DECISIONS, EVENTS, INCIDENTS, INSIGHTS, OUTCOMES, Topic

R = TypeVar("R", bound=Record)
log = logging.getLogger(__name__)
ANSWER_S = 10.0
BEFORE_S, AFTER_S = 900.0, 60.0
"""How long before and after a decision its evidence may have been sent."""
CLOCKS_S = 60.0
"""How far an actuator's clock may be behind that of a worker."""
_BATCH, _NAMED = 1_000, 5


LATEST = "latest"
"""Selects the decision that was sent last."""


class UnknownDecision(FlyballError):
    """No decision has the id that was requested, or more than one begins with it."""


class DecisionRecords(NamedTuple):
    """A decision, its outcomes in order, and the records that its evidence names, by id."""

    decision: AnyDecision
    outcomes: list[Outcome]
    records: dict[str, Record]


class _Read(NamedTuple):
    record: Any
    sent_ms: int


def read_records(kafka: KafkaConfig, id_: str, since_s: float) -> DecisionRecords:
    """Records of the decision whose id is, or begins with, ``id_``, from the last ``since_s`` seconds.

    Raises :class:`UnknownDecision`, and :class:`TransportError` when the broker does not respond.
    """
    with _reading(kafka) as consumer:
        decision, sent_ms = _find(consumer, id_, since_s)
        outcomes_ms = sent_ms - round(CLOCKS_S * 1e3)
        outcomes = [r.record for r in _read(consumer, OUTCOMES, outcomes_ms) if r.record.decision == decision.id]
        named = {evidence.record for evidence in decision.evidence if evidence.record}
        records: dict[str, Record] = {}
        from_ms, to_ms = sent_ms - round(BEFORE_S * 1e3), sent_ms + round(AFTER_S * 1e3)
        for topic in (INSIGHTS, EVENTS) if named else ():
            records |= {
                r.record.id: r.record
                for r in _read(consumer, topic, from_ms, lambda ms: ms > to_ms)
                if getattr(r.record, "id", "") in named
            }
        return DecisionRecords(decision, outcomes, records)


def read_decision(kafka: KafkaConfig, id_: str, since_s: float) -> AnyDecision:
    """The decision alone; errors are those of :func:`read_records`."""
    with _reading(kafka) as consumer:
        return _find(consumer, id_, since_s)[0]


def read_anchors(kafka: KafkaConfig, since_s: float) -> list[Outcome]:
    """Outcomes of the last ``since_s`` seconds that carry an anchor of an audit trail.

    Raises :class:`TransportError` when the broker does not respond.
    """
    with _reading(kafka) as consumer:
        first_ms = round((time.time() - since_s) * 1e3)
        outcomes = (r.record for r in _read(consumer, OUTCOMES, first_ms))
        return [outcome for outcome in outcomes if outcome.audit]


def read_insights(kafka: KafkaConfig, kind: type[R], since_s: float) -> list[R]:
    """Insights of one type that were sent in the last ``since_s`` seconds; raises :class:`TransportError`."""
    from_ms = round((time.time() - since_s) * 1e3)
    with _reading(kafka) as consumer:
        return [r.record for r in _read(consumer, INSIGHTS, from_ms) if isinstance(r.record, kind)]


def read_sent(kafka: KafkaConfig, since_s: float) -> tuple[list[AnyDecision], list[Outcome]]:
    """Decisions and outcomes that were sent in the last ``since_s`` seconds; raises :class:`TransportError`."""
    from_ms = round((time.time() - since_s) * 1e3)
    with _reading(kafka) as consumer:
        decisions = [r.record for r in _read(consumer, DECISIONS, from_ms)]
        return decisions, [r.record for r in _read(consumer, OUTCOMES, from_ms)]


def read_incidents(kafka: KafkaConfig, since_s: float) -> dict[str, Incident]:
    """The newest record of each incident of the last ``since_s`` seconds, by id; raises :class:`TransportError`."""
    from_ms = round((time.time() - since_s) * 1e3)
    found: dict[str, Incident] = {}
    with _reading(kafka) as consumer:
        for record in (r.record for r in _read(consumer, INCIDENTS, from_ms)):
            known = found.get(record.id) if isinstance(record, Incident) else None
            if isinstance(record, Incident) and (known is None or known.revision <= record.revision):
                found[record.id] = record
    return found


def read_conditions(kafka: KafkaConfig, since_s: float) -> dict[str, NodeCondition]:
    """The newest condition of each node of the last ``since_s`` seconds; raises :class:`TransportError`."""
    from_ms = round((time.time() - since_s) * 1e3)
    with _reading(kafka) as consumer:
        found = [r.record for r in _read(consumer, INCIDENTS, from_ms) if isinstance(r.record, NodeCondition)]
    return {f"{one.cell}/{one.node}": one for one in sorted(found, key=lambda one: (one.time_ns, one.revision))}


def last_sent(kafka: KafkaConfig, topic: Topic, keys: Collection[str], since_s: float) -> dict[str, int]:
    """When each of some keys was last sent, in ms, if in the last ``since_s`` seconds; :class:`TransportError`.

    It reads only the keys' partitions, and decodes nothing.
    """
    from_ms = round((time.time() - since_s) * 1e3)
    found: dict[str, int] = {}
    with _reading(kafka) as consumer:
        for message, sent_ms in _messages(consumer, topic, from_ms, keys=keys):
            key = (message.key() or b"").decode("utf-8", "replace")
            if key in keys and sent_ms >= from_ms:
                found[key] = max(sent_ms, found.get(key, 0))
    return found


@contextmanager
def _reading(kafka: KafkaConfig) -> Generator[Consumer]:
    settings: dict[str, Any] = {
        **consumer_settings(kafka.bootstrap, group="flyball-explain", client_id="flyball-explain", extra=kafka.client),
        "enable.partition.eof": True,
    }
    consumer = open_consumer(settings, log, "explain", log_errors=False)
    try:
        yield consumer
    except KafkaException as error:
        raise TransportError(
            f"the topics at {kafka.bootstrap} cannot be read: {error.args[0].str()}; start the broker, or set "
            "kafka.bootstrap (--bootstrap)"
        ) from error
    finally:
        consumer.close()


def _find(consumer: Consumer, id_: str, since_s: float) -> tuple[AnyDecision, int]:
    """A decision, and the time when it was first sent: a worker that starts again may repeat it."""
    first_ms = round((time.time() - since_s) * 1e3)
    read = _read(consumer, DECISIONS, first_ms)
    if id_ == LATEST:
        latest = max(_first_copies(read), key=lambda r: r.sent_ms, default=None)
        found = {} if latest is None else {"": latest}
    else:
        found = dict[str, _Read]()
        for one in read:
            if one.record.id.startswith(id_) and len(found) <= _NAMED:
                found.setdefault(one.record.id, one)
    if len(found) == 1:
        return next(iter(found.values()))
    problem = (
        f"{'more than ' if len(found) > _NAMED else ''}{min(len(found), _NAMED)} decisions begin with it: "
        f"{', '.join(sorted(found)[:_NAMED])}; give more of one"
        if found
        else f"there is none in the last {since_s / 86_400:g} days; look further back with --since, or see "
        "`flyball dashboard`"
    )
    raise UnknownDecision(f"decision {id_!r}: {problem}")


def _first_copies(read: Iterable[_Read]) -> Iterator[_Read]:
    known = set[str]()
    for one in read:
        if one.record.id not in known:
            known.add(one.record.id)
            yield one


def _read(
    consumer: Consumer, topic: Topic, from_ms: int, enough: Callable[[int], bool] = lambda _: False
) -> Iterator[_Read]:
    """Records of a topic that were sent since a time; a partition ends where ``enough`` is true for a time."""
    for message, sent_ms in _messages(consumer, topic, from_ms, enough):
        yield from _decoded(topic, message, sent_ms)


def _messages(
    consumer: Consumer,
    topic: Topic,
    from_ms: int,
    enough: Callable[[int], bool] = lambda _: False,
    keys: Collection[str] = (),
) -> Iterator[tuple[Message, int]]:
    """Messages and the times when they were sent; with ``keys``, only from the partitions of those keys."""
    ends, starts = _span(consumer, topic, from_ms, keys)
    left = {p: ends[p] for p, start in starts.items() if start < ends[p]}
    consumer.assign([TopicPartition(topic.name, p, starts[p]) for p in left])
    give_up_s = time.monotonic() + ANSWER_S
    while left:
        messages = consumer.consume(_BATCH, 0.5)
        if messages:
            give_up_s = time.monotonic() + ANSWER_S
        elif time.monotonic() > give_up_s:
            raise TransportError(f"{topic.name}: the broker sends no more, and {len(left)} partitions have not ended")
        for message in messages:
            partition, offset = message.partition(), message.offset()
            if partition not in left or offset is None:
                continue
            sent_ms = message.timestamp()[1]
            if message.error() is not None or offset + 1 >= left[partition] or enough(sent_ms):
                del left[partition]
            if message.error() is None and not enough(sent_ms):
                yield message, sent_ms


def _span(
    consumer: Consumer, topic: Topic, from_ms: int, keys: Collection[str] = ()
) -> tuple[dict[int, int], dict[int, int]]:
    """Ends of the partitions, and the offsets of the first messages sent since a time.

    Some brokers (the demo's) do not find offsets by time, not even the first one: then the first offsets are returned.
    """
    known_topic = list_topics(consumer, ANSWER_S).topics.get(topic.name)
    if known_topic is None or not known_topic.partitions:
        raise TransportError(f"the broker has no topic {topic.name}; create the topics with `flyball topics --create`")
    partitions = list(known_topic.partitions)
    if keys:
        partitions = sorted({partition_of(key.encode(), len(partitions)) for key in keys})
    found = bounds(consumer, ((topic.name, p) for p in partitions), ANSWER_S)
    ends = {p: found[topic.name, p].following for p in partitions}
    first, since = (
        {
            answer.partition: answer.offset
            for answer in consumer.offsets_for_times([TopicPartition(topic.name, p, ms) for p in partitions], ANSWER_S)
        }
        for ms in (0, max(0, from_ms))
    )
    known = {p: since[p] if since[p] >= 0 else ends[p] for p in partitions}
    return ends, {p: known[p] if first[p] >= 0 else found[topic.name, p].first for p in partitions}


def _decoded(topic: Topic, message: Any, sent_ms: int) -> Iterable[_Read]:
    try:
        record = decode_message(topic.name, message.value(), message.headers())
    except DecodeError as error:
        log.warning("%s/%s@%s is passed over: %s", topic.name, message.partition(), message.offset(), error)
        return ()
    wanted = {DECISIONS.name: Decision, OUTCOMES.name: Outcome}.get(topic.name, Record)
    return (_Read(record, sent_ms),) if isinstance(record, wanted) else ()
