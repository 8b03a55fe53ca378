"""Detects what a consumer does not: topics that were replaced, truncated or repartitioned, or may not be used."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._listoffsets import OffsetSpec

from flyball_actuators.lease import boot_s
from flyball_contracts.errors import TransportError
from flyball_contracts.kafka import Settings, open_admin, raise_if_stopped
from flyball_contracts.topics import CONTROLS, DEAD_LETTERS, DECISIONS, INSIGHTS, INVENTORY, OUTCOMES, WORKLOADS, Topic

_LOG = logging.getLogger(__name__)
EVERY_S = 2.0
ANSWER_S = 5.0
_GRACE_S = 1.0  # the client itself ends a request after ANSWER_S, unless this process or its client had no time
_SLICE_S = 0.2
_READ = (DECISIONS, OUTCOMES, WORKLOADS, INVENTORY, CONTROLS)
_WRITTEN = (INSIGHTS, DEAD_LETTERS)
_CREATE = "create the topics with: flyball topics"


class TopicsChanged(TransportError):
    """The topics are not the ones that were being read."""


class Shape(NamedTuple):
    """A topic as the broker describes it: its id and number of partitions."""

    identity: str
    partitions: int


class TopicsWatch:
    """Describes the topics every :data:`EVERY_S` seconds, in a thread of its own.

    ``changed`` describes how they differ from the start, and is empty while they do not; ``cut_short``: the topics are
    the same but were truncated below what was read. ``answered_s`` is when the broker last answered, ``unchanged_s``
    when the last request was sent that found the topics unchanged (monotonic seconds). The caller updates
    ``positions``: the offset of the next decision of each partition. ``seen`` is called with the time of the request
    each time the topics are unchanged and may be read, and all stops that existed at the previous check have been read
    (``stops_read`` returns the offset of the next stop of each partition): nothing is started while a stop may be
    unread.
    """

    def __init__(
        self,
        settings: Settings,
        bootstrap: str,
        seen: Callable[[float], None],
        stops_read: Callable[[], Mapping[int, int]],
    ) -> None:
        self._seen, self._stops_read = seen, stops_read
        self._stops_end: dict[int, int] = {}
        self._problem = ""
        self.changed = ""
        self.cut_short = False
        self.positions: dict[int, int] = {}
        self.answered_s = self.unchanged_s = time.monotonic()
        self._bootstrap = bootstrap
        kept = {
            name: value
            for name, value in settings.items()
            if name.startswith(("bootstrap", "client", "sasl", "ssl", "security", "reconnect", "socket", "log"))
        }
        self._admin = open_admin(kept, _LOG, "topics", log_errors=False)  # each error is raised or reported here
        self._shapes: dict[str, Shape] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topics", daemon=True)

    def start(self, stop: threading.Event) -> None:
        """Check that the required topics exist and are allowed, then start watching.

        Raises :class:`TransportError` with what is missing and the remedy.
        """
        requested_s = boot_s()
        self._shapes = self._describe(stop)
        self._seen(requested_s)
        decisions, outcomes = self._shapes[DECISIONS.name], self._shapes[OUTCOMES.name]
        if decisions.partitions != outcomes.partitions:
            raise TransportError(
                f"{DECISIONS.name} has {decisions.partitions} partitions and {OUTCOMES.name} {outcomes.partitions}; "
                "give both the same number: a reader of a decision must read its outcomes, too"
            )
        self.answered_s = time.monotonic()
        self._thread.start()

    @property
    def partitions(self) -> int:
        """Number of partitions of the decisions."""
        return self._shapes[DECISIONS.name].partitions

    @property
    def identity(self) -> str:
        """Id of the decisions topic; a recreated topic has another."""
        return self._shapes[DECISIONS.name].identity

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(ANSWER_S + 1.0)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S) and not self.changed:
            requested_s, requested_monotonic_s = boot_s(), time.monotonic()
            try:
                changed = _difference(self._shapes, self._describe())
                if not changed:
                    self._check_stops()
                    self._seen(requested_s)
                    self.unchanged_s = requested_monotonic_s
                    changed = self._cut_short()
            except TopicsMissing as error:
                self.changed = str(error)
                return
            except TransportError as error:
                self._report(str(error))
                continue
            except Exception as error:  # if the thread ended unnoticed, no process would act on the partitions
                _LOG.exception("the topics can no longer be watched")
                self.changed = f"the topics can no longer be watched ({type(error).__name__}: {error})"
                return
            self._report("")
            self.answered_s = time.monotonic()
            self.changed = changed

    def _report(self, problem: str) -> None:
        """Log a problem once, and its end."""
        if problem and problem != self._problem:
            _LOG.warning("nothing is started until this is mended: %s", problem)
        elif self._problem and not problem:
            _LOG.warning("the topics can be read again")
        self._problem = problem

    def _check_stops(self) -> None:
        """Raise :class:`TransportError` if stops that existed at the last check have not been read since."""
        read, ended = self._stops_read(), self._stops_end
        late = next((p for p, position in read.items() if position < ended.get(p, 0)), None)
        if late is not None:
            raise TransportError(
                f"{self._bootstrap}: {CONTROLS.name}/{late} ends at {ended[late]}, and was read to {read[late]}, so a "
                "stop may be unread; allow READ on it, and see that the leader of its partition answers"
            )
        self._stops_end = self._ends(CONTROLS, read)

    def _cut_short(self) -> str:
        positions = dict(self.positions)
        ends = self._ends(DECISIONS, positions)
        short = next((p for p, position in positions.items() if ends[p] < position), None)
        if short is None:
            return ""
        self.cut_short = True
        return f"{DECISIONS.name}/{short} ends at {ends[short]}, and was read to {positions[short]}"

    def _ends(self, topic: Topic, partitions: Iterable[int]) -> dict[int, int]:
        """End offset of partitions of a topic."""
        make: Any = OffsetSpec
        wanted = {TopicPartition(topic.name, p): make.latest() for p in partitions}
        if not wanted:
            return {}
        try:
            futures: Mapping[Any, Future[Any]] = self._admin.list_offsets(wanted, request_timeout=ANSWER_S)
            return {
                part.partition: self._answer(future, f"the end of {topic.name}").offset
                for part, future in futures.items()
            }
        except KafkaException as error:
            raise TransportError(f"{self._bootstrap}: ends of {topic.name}: {error.args[0].str()}") from error

    def _describe(self, stop: threading.Event | None = None) -> dict[str, Shape]:
        names = [topic.name for topic in (*_READ, *_WRITTEN)]
        try:
            futures: Mapping[str, Future[Any]] = self._admin.describe_topics(
                TopicCollection(names), include_authorized_operations=True, request_timeout=ANSWER_S
            )
            found = {name: self._result(name, future, stop) for name, future in futures.items()}
        except KafkaException as error:
            raise TransportError(
                f"{self._bootstrap}: no Kafka broker answers ({error.args[0].str()}): start one, or set "
                "kafka.bootstrap (--bootstrap)"
            ) from error
        for name, operation, what in (
            *((topic.name, AclOperation.WRITE, "written") for topic in (OUTCOMES, *_WRITTEN)),
            *((topic.name, AclOperation.READ, "read") for topic in _READ),
        ):
            allowed = found[name].authorized_operations
            if allowed and operation not in allowed:
                raise TransportError(
                    f"{self._bootstrap}: {name} may not be {what} by this user; allow {operation.name} on it"
                )
        return {name: Shape(str(topic.topic_id), len(topic.partitions)) for name, topic in found.items()}

    def _result(self, name: str, future: "Future[Any]", stop: threading.Event | None) -> Any:
        try:
            return self._answer(future, f"topic {name}", stop)
        except KafkaException as error:
            code = error.args[0].name()
            if code in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_ID"):
                raise TopicsMissing(f"topic {name} does not exist; {_CREATE}") from error
            if code == "TOPIC_AUTHORIZATION_FAILED":
                raise TransportError(
                    f"{self._bootstrap}: {name} may not be described by this user; allow READ on what is read, and "
                    f"WRITE on {OUTCOMES.name}, {INSIGHTS.name} and {DEAD_LETTERS.name}"
                ) from error
            raise

    def _answer(self, future: "Future[Any]", what: str, stop: threading.Event | None = None) -> Any:
        """Wait for the broker's answer; ``KafkaException`` if it is an error, :class:`TransportError` without one."""
        give_up_s = time.monotonic() + ANSWER_S + _GRACE_S
        while not future.done() and time.monotonic() < give_up_s:
            raise_if_stopped(stop)
            wait((future,), _SLICE_S)
        if not future.done():
            raise TransportError(f"{self._bootstrap}: no answer about {what} within {ANSWER_S:g} s; is a broker there?")
        return future.result(0.0)


class TopicsMissing(TopicsChanged):
    """A topic does not exist."""


def _difference(before: Mapping[str, Shape], now: Mapping[str, Shape]) -> str:
    for name, shape in now.items():
        was = before[name]
        if shape.identity != was.identity:
            return f"topic {name} was made again"
        if shape.partitions != was.partitions:
            return f"topic {name} has {shape.partitions} partitions instead of {was.partitions}"
    return ""
