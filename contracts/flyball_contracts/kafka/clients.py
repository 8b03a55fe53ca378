"""Kafka clients that log their failures clearly, and not too often, and read secrets from files.

A client that is dropped is destroyed at once: no cycle of references holds it. The garbage collector may run in a
thread of librdkafka, which aborts the process when a client is destroyed there.
"""

import logging
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, Producer

from flyball_contracts.errors import ConfigError
from flyball_contracts.kafka.log import ClientLog
from flyball_contracts.security.secret import with_secrets

C = TypeVar("C")


def open_consumer(settings: Mapping[str, Any], log: logging.Logger, who: str, *, log_errors: bool = True) -> Consumer:
    """Return a consumer with these settings that logs its failures to ``log`` under the name ``who``.

    It connects and reconnects by itself. Pass ``log_errors=False`` where the caller reports failures itself. A secret
    ``file:/PATH`` is read now, and a password again each time the broker refuses the login. Raises
    :class:`ConfigError` for a file that cannot be read.
    """
    return _opened(_Consumer, settings, log, who, log_errors)


def open_producer(settings: Mapping[str, Any], log: logging.Logger, who: str, *, log_errors: bool = True) -> Producer:
    """Return a producer, like :func:`open_consumer`."""
    return _opened(_Producer, settings, log, who, log_errors)


def open_admin(settings: Mapping[str, Any], log: logging.Logger, who: str, *, log_errors: bool = True) -> Any:
    """Return an ``AdminClient``, like :func:`open_consumer`; as ``Any``, as its types do not cover its responses."""
    from confluent_kafka.admin import AdminClient  # a megabyte that agents do without

    return _opened(AdminClient, settings, log, who, log_errors)


class _Consumer(Consumer):
    """A consumer to which there are weak references."""


class _Producer(Producer):
    """A producer to which there are weak references."""


class _Login:
    """The password of a client, whose file may change while the client runs."""

    def __init__(self, settings: Mapping[str, Any], report: Callable[[KafkaError], object] | None) -> None:
        self._settings, self._report = settings, report
        self.read = with_secrets(settings)
        self.client: Callable[[], Any] = lambda: None

    def on_error(self, error: KafkaError) -> None:
        """Read the password again if the broker refused it, for the next connection."""
        if error.code() == KafkaError._AUTHENTICATION and self.client() is not None:  # pyright: ignore[reportPrivateUsage]
            try:
                now = with_secrets(self._settings)
            except ConfigError:  # the file may be there in a moment; the refusal is reported
                now = self.read
            if now.get("sasl.password") != self.read.get("sasl.password"):
                self.read = now
                # In a thread of its own: a callback may not call its client.
                threading.Thread(target=self._use, args=(now,), daemon=True).start()
        if self._report is not None:
            self._report(error)

    def _use(self, read: Mapping[str, Any]) -> None:
        client = self.client()
        if client is None:
            return
        with suppress(RuntimeError):  # it was closed meanwhile
            client.set_sasl_credentials(read.get("sasl.username", ""), read["sasl.password"])


def _opened(make: Callable[..., C], settings: Mapping[str, Any], log: logging.Logger, who: str, errors: bool) -> C:
    client_log = ClientLog(log, who, str(settings.get("bootstrap.servers", "")))
    login = _Login(settings, client_log.on_error if errors else settings.get("error_cb"))
    client = make({**login.read, "error_cb": login.on_error, "logger": client_log})
    login.client = weakref.ref(client)
    return client
