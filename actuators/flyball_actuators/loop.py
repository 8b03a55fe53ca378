"""The loop of one run: read, advance, publish, commit."""

import logging
import time
from collections.abc import Callable
from threading import Event
from typing import cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from flyball_actuators.audit import Trail
from flyball_actuators.backlog import Backlog, Read
from flyball_actuators.execution.authority import Authority
from flyball_actuators.execution.carry_out import Carrier
from flyball_actuators.execution.giving_back import GivingBack
from flyball_actuators.execution.judge import Judge
from flyball_actuators.execution.lanes import MOST_WAITING, RESCUES_WAITING, Lanes
from flyball_actuators.execution.task import OutcomeFactory
from flyball_actuators.guard import longest_s
from flyball_actuators.ledger import Ledger
from flyball_actuators.messages import headers_of
from flyball_actuators.platforms import Platforms, pools_of
from flyball_actuators.progress import Progress
from flyball_actuators.report import ActuatorReport
from flyball_actuators.session import CLIENT, Session, reading
from flyball_actuators.stand_back import committed_with, stand_back
from flyball_actuators.topics_watch import EVERY_S, TopicsChanged, TopicsWatch
from flyball_contracts.codec import decode_record
from flyball_contracts.config import Config
from flyball_contracts.deadletter import dead_letter
from flyball_contracts.errors import DecodeError, TransportError
from flyball_contracts.kafka import open_consumer
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import AnyDecision
from flyball_contracts.records.pools import decision_key
from flyball_contracts.topics import DECISIONS

_LOG = logging.getLogger(__name__)
_BATCH = 200
_SLACK_S = 120.0  # the clocks of worker and actuator may differ by this much
_UNREACHABLE_S = 30.0
_LEAVE_S = 8.0
_STEP_S = 0.005
_COMMIT_AGAIN_S = 0.25
_MOST_OFFSETS = 20_000
MOST_HELD = 8_192
"""Decisions that may be read beyond those in the lanes, so that rescues among them are found."""
CUT_SHORT = "cut short"


class Loop:
    """One consumer of the decisions and the state of its partitions; ``started`` is set once all topics were found.

    ``topic`` is the identity of the decisions topic. If it differs from ``known``, committed offsets are meaningless
    and the topic is read from its start.
    """

    def __init__(
        self,
        config: Config,
        session: Session,
        ledger: Ledger,
        trail: Trail,
        platforms: Platforms,
        report: ActuatorReport,
        clock: Callable[[], int],
        stop: Event,
        *,
        known: str,
    ) -> None:
        settings, kafka = config.actuator, config.kafka
        self.started = self.assigned = False
        self._session, self._report, self._stop = session, report, stop
        self._trail, self._clock = trail, clock
        self._known, self.topic = known, ""
        self._bootstrap = kafka.bootstrap
        self._authority = Authority(settings.keys, platforms.driver_of, lambda: session.world(""), session.refresh)
        self._pools = pools_of(settings, clock())
        self._progress = Progress()
        self._judge = Judge(settings, ledger, session, clock, platforms.keeps_to_node)
        outcomes = OutcomeFactory(settings, session.instance)
        self._carrier = Carrier(ledger, trail, session, self._judge, outcomes, time.monotonic)
        self._lanes = Lanes(platforms, ledger, trail, session, self._judge, self._carrier, report, self._progress.done)
        self._backlog = Backlog()
        self._misplaced: dict[int, list[Read]] = {}
        self._open: set[int] = set()
        self._paused = self._refused = False
        self._commit_s = 0.0
        self._look_back_ms = round(1000 * (longest_s(settings) + _SLACK_S))
        client = reading(kafka, settings.group)
        self._incremental = "cooperative" in str(client["partition.assignment.strategy"])
        self._consumer = open_consumer({**client, "on_commit": self._committed}, _LOG, "decisions")
        self._watch = TopicsWatch(client, kafka.bootstrap, session.lease.topics_seen, lambda: session.stops_read)
        self._giving_back = GivingBack(
            platforms, trail, client, lambda: self._watch.partitions, self._judge.stopped, self._lanes.follows,
            live=self._judge.live,
        )  # fmt: skip
        _LOG.info("actuator %s, mode %s, platforms: %s", session.instance, settings.mode, platforms.named)

    def run(self, ready: Callable[[], None] | None, beat: Callable[[], object]) -> None:
        """Run until ``stop`` is set; :class:`TopicsChanged` if the topics are replaced, truncated or repartitioned."""
        self._watch.start(self._stop)
        self.topic = self._watch.identity
        stand_back(self._consumer, self._watch.partitions, self._stop, beat)
        self._session.start()
        self._session.declare(self._pools)
        self._giving_back.start()
        self._consumer.subscribe(
            [DECISIONS.name], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        self.started = True
        while not self._stop.is_set():
            self._read(self._lanes.wait_s())
            self._step()
            self._apply_backpressure()
            if self.assigned and ready is not None:
                ready()
                ready = None
            self._watch.positions = self._progress.position()
            if self._watch.changed:
                self.topic = CUT_SHORT if self._watch.cut_short else self.topic
                raise TopicsChanged(self._watch.changed)
            if time.monotonic() - self._watch.answered_s < _UNREACHABLE_S:
                beat()
        self._leave()

    def close(self) -> None:
        """Leave the group; uncommitted decisions are delivered again."""
        self._giving_back.close()
        self._watch.close()
        self._consumer.close()
        self._carrier.close()
        self._session.close()
        self._report.delivered += self._session.outbox.delivered
        self._report.unreadable_world += self._session.unreadable
        self._report.breakers_opened += self._carrier.breakers.opened

    def _step(self) -> None:
        self._session.drain()
        self._submit_held()
        self._submit_misplaced()
        self._lanes.step()
        for status in self._carrier.breakers.due(self._clock):
            self._session.report(status)
        self._renew_lease()

    def _read(self, wait_s: float) -> None:
        """Read the messages that are there; wait only if there are none."""
        first = self._consumer.poll(wait_s)
        if first is None:
            return
        for message in (first, *self._consumer.consume(_BATCH, 0)):
            self._take(message)

    def _take(self, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        error = message.error()
        if error is not None or topic is None or partition is None or offset is None:
            if error is not None and error.fatal():
                raise TransportError(f"{self._bootstrap}: decisions can no longer be read: {error.str()}")
            _LOG.warning("reading decisions: %s", error)
            return
        self._progress.read(partition, offset)
        try:
            record = decode_record(topic, message.value(), headers_of(message))
            decision = cast(AnyDecision, record)  # the codec lets nothing else through on this topic
            misplaced = self._is_misplaced(decision, message.key(), partition)
            signature = self._authority.check(decision, message.value(), headers_of(message))
        except DecodeError as bad:
            self._refuse(message, topic, partition, offset, bad)
            return
        read = Read(decision, offset, message.timestamp()[1], signature, message, time.monotonic(), misplaced)
        self._backlog.add(partition, read)

    def _submit(self, read: Read, partition: int) -> None:
        """Hand a decision to the lanes, or keep it as misplaced until the topics are known to be unchanged."""
        if read.misplaced:
            self._misplaced.setdefault(partition, []).append(read)
        else:
            self._take_up(read, partition)

    def _submit_misplaced(self) -> None:
        """Hand over misplaced decisions once a description of the topics made after they came shows no change.

        Until then, partitions may have been added, so that such a decision is in the right partition after all.
        """
        for partition, reads in list(self._misplaced.items()):
            sure = [read for read in reads if read.read_s + EVERY_S <= self._watch.unchanged_s]
            for read in sure:
                self._take_up(read, partition)
            self._misplaced[partition] = reads[len(sure) :]

    def _take_up(self, read: Read, partition: int) -> None:
        elsewhere = self._session.all.index.elsewhere(read.decision.id, partition)
        if elsewhere is None:
            elsewhere = self._lanes.elsewhere(read.decision.id, partition)
        if elsewhere is not None:
            error = DecodeError(
                f"decision {read.decision.id} is known in partition {elsewhere}, and came again in {partition}; it has "
                "its outcomes there"
            )
            self._refuse(read.message, DECISIONS.name, partition, read.offset, error)
            return
        self._report.decisions += 1
        self._lanes.take(read.decision, partition, read.offset, read.at_ms, read.signature, moved=read.misplaced)

    def _is_misplaced(self, decision: AnyDecision, key: bytes | None, partition: int) -> bool:
        """Whether a decision is in another partition than the one of its cell; :class:`DecodeError` for a wrong key.

        A cell's limits hold only if one partition has all its decisions.
        """
        wanted = decision_key(decision).encode()
        if key != wanted:
            raise DecodeError(
                f"decision {decision.id} about {decision.target!r} came with key {key!r} in partition {partition}; "
                f"its key must be its cell, {decision.cell!r}, placed by murmur2 (partitioner murmur2_random)"
            )
        return partition_of(wanted, self._watch.partitions) != partition

    def _refuse(self, message: Message, topic: str, partition: int, offset: int, error: DecodeError) -> None:
        self._report.undecodable += 1
        _LOG.warning("%s/%d@%d goes to the dead letters: %s", topic, partition, offset, error)
        self._trail.refused(partition, offset, str(error))
        self._session.outbox.put(
            dead_letter(
                topic=topic,
                partition=partition,
                offset=offset,
                key=message.key(),
                value=message.value(),
                headers=headers_of(message),
                stage=CLIENT,
                error=error,
            ),
            lambda _: self._progress.done(partition, offset),
        )

    def _submit_held(self) -> None:
        """Hand over decisions that were read, as far as the lanes have room for them.

        All outcomes of their partition, and all others that count, must have been read before.
        """
        for partition in self._backlog.partitions:
            if partition not in self._open and not self._opened(partition):
                continue
            while (waiting := self._lanes.waiting) < MOST_WAITING + RESCUES_WAITING:
                read = self._backlog.take(partition, rescues_only=waiting >= MOST_WAITING)
                if read is None:
                    break
                self._submit(read, partition)

    def _opened(self, partition: int) -> bool:
        """Follow the outcomes of a partition, and open it once they have been read; return whether they have."""
        log, since_ms = self._session.log, self._backlog.earliest_ms(partition) - self._look_back_ms
        try:
            log.follow(partition, since_ms)
            if self._judge.live:
                self._session.follow_all(self._watch.partitions, since_ms)
        except KafkaException as error:
            _LOG.warning("outcomes of partition %d cannot be read: %s", partition, error.args[0].str())
            return False
        log.drain()
        self._session.all.drain()
        if not (log.read(partition) and self._session.all_read):
            return False
        self._judge.restore(partition)
        self._open.add(partition)
        return True

    def _renew_lease(self) -> None:
        """Commit finished decisions; an accepted commit also proves that the partitions are still ours."""
        lease, offsets = self._session.lease, self._progress.commit_to()
        if time.monotonic() < self._commit_s or not offsets:
            return
        if lease.due() or (self._progress.ahead() and not lease.commit_pending):
            lease.commit_sent()
            parts = committed_with(offsets, self._watch.partitions)
            try:
                self._consumer.commit(offsets=parts, asynchronous=True)
            except KafkaException as error:
                self._committed(error.args[0], parts)

    def _committed(self, error: KafkaError | None, parts: list[TopicPartition]) -> None:
        refused = [part.error for part in parts if part.error is not None]
        self._session.lease.commit_answered(error is None and not refused)
        if error is None and not refused:
            self._report.commits += 1
            for part in parts:
                self._progress.committed(part.partition, part.offset)
        else:
            self._report.commit_failures += 1
            self._commit_s = time.monotonic() + _COMMIT_AGAIN_S
            (_LOG.debug if self._refused else _LOG.warning)(
                "offsets are not committed yet, which is safe: %s", (error or refused[0]).str()
            )
        self._refused = error is not None or bool(refused)

    def _apply_backpressure(self) -> None:
        """Pause reading while too many decisions wait for room in the lanes; resume at half the limit."""
        held, span = len(self._backlog), max(map(self._progress.span, self._progress.position()), default=0)
        if not self._paused and (held >= MOST_HELD or span >= _MOST_OFFSETS):
            self._paused = True
            _LOG.warning(
                "%d decisions are under way or wait: no more are read until half are done", self._lanes.waiting + held
            )
            self._consumer.pause(self._consumer.assignment())
        elif self._paused and held <= MOST_HELD // 2 and span <= _MOST_OFFSETS // 2:
            self._paused = False
            _LOG.warning("decisions are read again")
            self._consumer.resume(self._consumer.assignment())

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned = True
        # A partition that was taken away while it was paused comes back paused. Where there is no room, all are paused
        # again.
        self._paused = False
        consumer.resume([*consumer.assignment(), *partitions])
        if self._known not in ("", self.topic):
            _LOG.warning("%s was replaced: it is read from its start", DECISIONS.name)
            for part in partitions:
                part.offset = OFFSET_BEGINNING
            (consumer.incremental_assign if self._incremental else consumer.assign)(partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._leave()
        self._forget(partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._session.lease.lost()
        self._forget(partitions)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        for part in partitions:  # the next owner reads them and their outcomes again
            self._lanes.forget(part.partition)
            self._progress.forget(part.partition)
            self._session.log.forget(part.partition)
            self._session.outbox.give_up(part.partition)
            self._backlog.forget(part.partition)
            self._misplaced.pop(part.partition, None)
            self._open.discard(part.partition)

    def _leave(self) -> None:
        """Wait briefly for pending submissions, publish what is known, and commit it."""
        ends_s = time.monotonic() + _LEAVE_S
        while self._lanes.calling() and time.monotonic() < ends_s:
            self._session.drain()
            self._lanes.step(start_new=False)
            time.sleep(_STEP_S)
        if self._session.outbox.flush() and self._progress.ahead():
            offsets = self._progress.commit_to()
            try:
                parts = committed_with(offsets, self._watch.partitions)
                self._consumer.commit(offsets=parts, asynchronous=False)
            except KafkaException as error:
                _LOG.warning("offsets are not committed, which is safe: %s", error.args[0].str())
