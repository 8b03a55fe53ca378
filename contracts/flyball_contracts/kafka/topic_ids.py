"""Ids of topics: a topic that was deleted and recreated keeps its name but has another id."""

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from flyball_contracts.config import KafkaConfig
from flyball_contracts.errors import TransportError
from flyball_contracts.kafka import open_admin, raise_if_stopped

log = logging.getLogger(__name__)
RESPONSE_S = 5.0
KEPT_S = 5.0
PATIENCE_S = 30.0
"""How long callers wait for ids that they need before they begin."""
RETRY_S = 0.5
_TOO_OLD = (KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION)


class TopicIds:
    """Queries the ids of some topics, every few seconds at most; thread-safe."""

    def __init__(self, kafka: KafkaConfig, names: Iterable[str]) -> None:
        self._admin = open_admin(
            {"bootstrap.servers": kafka.bootstrap, **kafka.client}, log, "topic ids", log_errors=False
        )
        self._bootstrap = kafka.bootstrap
        self._names = list(names)
        self._unanswered: dict[str, str] = dict.fromkeys(self._names, "it was not asked")
        self._known: dict[str, str] = {}
        self._queried_s = float("-inf")
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def now(self, *, refresh: bool = False) -> dict[str, str]:
        """Known id of each topic, at most a few seconds old, or queried now (``refresh``).

        Empty with brokers that have no ids, and before the first answer; a topic that is missing at the moment keeps
        its last id.
        """
        with self._lock:
            if refresh or time.monotonic() - self._queried_s > KEPT_S:
                self._queried_s = time.monotonic()
                self._ask()
            return self._known

    def wait_known(self) -> None:
        """Query the ids now, and again until the broker has reported the id of each topic, or that it has none.

        Raises :class:`TransportError` if that takes longer than :data:`PATIENCE_S`, :class:`Stopped` after
        :meth:`close`.
        """
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            self.now(refresh=True)
            missing = dict(self._unanswered)
            if not missing:
                return
            why = f"ids of topics {', '.join(missing)} are not known: {next(iter(missing.values()))}"
            if time.monotonic() > give_up_s:
                raise TransportError(
                    f"{self._bootstrap}: {why}; by them topics are known that were made again, so check that the "
                    "broker answers"
                )
            log.info("%s; asking again", why)
            self._stop.wait(RETRY_S)
            raise_if_stopped(self._stop)

    def close(self) -> None:
        """End calls of :meth:`wait_known`."""
        self._stop.set()

    def _ask(self) -> None:
        try:
            futures = self._admin.describe_topics(TopicCollection(self._names), request_timeout=RESPONSE_S)
        except KafkaException as error:
            log.debug("the ids of topics are not known: %s", error)
            self._unanswered = {name: str(error.args[0].str()) for name in self._unanswered}
            return
        found: dict[str, str] = {}
        unanswered = dict(self._unanswered)
        for name, future in futures.items():
            topic_id, why_not = _answer(future)
            if topic_id is not None:
                found[name] = topic_id
            if not why_not:
                unanswered.pop(name, None)
            elif name in unanswered:
                unanswered[name] = why_not
        self._known, self._unanswered = {**self._known, **found}, unanswered


def _answer(future: Any) -> tuple[str | None, str]:
    """Id of a topic, ``None`` where it has none, and why the broker did not report it."""
    try:
        topic_id = future.result(RESPONSE_S).topic_id
    except TimeoutError:
        return None, "no answer"
    except KafkaException as error:
        too_old = error.args[0].code() in _TOO_OLD
        return None, "" if too_old else error.args[0].str()
    return None if topic_id is None else str(topic_id), ""
