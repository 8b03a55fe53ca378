"""Ids of topics: a topic that was deleted and recreated keeps its name but has another id."""

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaException, TopicCollection

from flyball_contracts.config import KafkaConfig
from flyball_contracts.kafka import open_admin

log = logging.getLogger(__name__)
RESPONSE_S = 5.0
KEPT_S = 5.0


class TopicIds:
    """Queries the ids of some topics, every few seconds at most; thread-safe."""

    def __init__(self, kafka: KafkaConfig, names: Iterable[str]) -> None:
        self._admin = open_admin(
            {"bootstrap.servers": kafka.bootstrap, **kafka.client}, log, "topic ids", log_errors=False
        )
        self._names = TopicCollection(list(names))
        self._known: dict[str, str] = {}
        self._queried_s = float("-inf")
        self._lock = threading.Lock()

    def now(self, *, refresh: bool = False) -> dict[str, str]:
        """Known id of each topic, at most a few seconds old, or queried now (``refresh``).

        Empty with brokers that have no ids; a topic that is missing at the moment keeps its last id.
        """
        with self._lock:
            if refresh or time.monotonic() - self._queried_s > KEPT_S:
                self._queried_s = time.monotonic()
                self._ask()
            return self._known

    def _ask(self) -> None:
        try:
            futures = self._admin.describe_topics(self._names, request_timeout=RESPONSE_S)
            found = {
                name: str(future.result(RESPONSE_S).topic_id) for name, future in futures.items() if _knows(future)
            }
        except (KafkaException, TimeoutError) as error:
            log.debug("the ids of topics are not known: %s", error)
            return
        self._known = {**self._known, **found}


def _knows(future: Any) -> bool:
    try:
        return future.result(RESPONSE_S).topic_id is not None
    except (KafkaException, TimeoutError):
        return False
