"""Log messages of Kafka clients, through ``logging`` and not too often."""

import logging
import re
import threading
import time
from collections.abc import Callable

from confluent_kafka import KafkaError

EVERY_S = 30.0
AWAY_S = 60.0
"""An unreachable broker is reported once per process, and again after this time or for another reason."""
_DETAILS = re.compile(r" \(after \d+ms in state \w+.*\)|^[^ ]+: ")  # parts that differ between attempts
_AWAY = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE)


class Outages:
    """Unreachable brokers, as reported by any client of the process; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reported_s: dict[tuple[str, str], float] = {}

    def is_news(self, bootstrap: str, reason: str, now_s: float) -> bool:
        """Whether to report that ``bootstrap`` is unreachable for a ``reason`` (empty: any) at ``now_s``, monotonic."""
        reason = _DETAILS.sub("", reason)
        with self._lock:
            for (address, known), at_s in self._reported_s.items():
                if address == bootstrap and reason in ("", known) and now_s - at_s < AWAY_S:
                    return False
            self._reported_s[bootstrap, reason] = now_s
        return True


_OUTAGES = Outages()


class ClientLog:
    """The ``logger=`` and ``error_cb`` of one confluent-kafka client.

    librdkafka repeats each failure for each connection and each attempt: its own lines are logged for debugging only,
    and of its errors at most one in :data:`EVERY_S` seconds. An unreachable broker concerns all clients of the process,
    so ``outages`` decides which one reports it.
    """

    def __init__(
        self,
        log: logging.Logger,
        who: str,
        bootstrap: str,
        monotonic: Callable[[], float] = time.monotonic,
        outages: Outages = _OUTAGES,
    ) -> None:
        self._log, self._who, self._bootstrap, self._monotonic = log, who, bootstrap, monotonic
        self._outages = outages
        self._logged_s: float | None = None

    def log(self, level: int, text: str, *args: object) -> None:
        """Handle a line of librdkafka's own log."""
        self._log.debug(text, *args)

    def on_error(self, error: KafkaError) -> None:
        """Log an error of the client, which retries by itself."""
        now_s = self._monotonic()
        if error.code() in _AWAY:
            reason = "" if error.code() == KafkaError._ALL_BROKERS_DOWN else error.str()  # it repeats earlier errors
            if self._outages.is_news(self._bootstrap, reason, now_s):
                self._log.warning("no Kafka broker answers at %s (%s)", self._bootstrap, error.str())
            return
        if self._logged_s is not None and now_s - self._logged_s < EVERY_S:
            return
        self._logged_s = now_s
        self._log.warning("%s: Kafka at %s: %s", self._who, self._bootstrap, error.str())


class RepeatFilter(logging.Filter):
    """Passes one record of each line of third-party code in :data:`EVERY_S` seconds, with the number of those left out.

    aiokafka logs hundreds of lines while a broker is unreachable. Put it on a handler; records of other loggers pass.
    """

    def __init__(self, *names: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._names, self._monotonic = names, monotonic
        self._logged_s: dict[tuple[str, int], float] = {}
        self._left_out: dict[tuple[str, int], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is to be shown."""
        if record.name.partition(".")[0] not in self._names:
            return True
        place, now_s = (record.pathname, record.lineno), self._monotonic()
        if now_s - self._logged_s.get(place, -EVERY_S) < EVERY_S:
            self._left_out[place] = self._left_out.get(place, 0) + 1
            return False
        self._logged_s[place] = now_s
        if left_out := self._left_out.pop(place, 0):
            record.msg = f"{record.getMessage()} (and {left_out} more since the last)"
            record.args = ()
        return True
