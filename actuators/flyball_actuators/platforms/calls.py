"""Records each call that a driver makes to its platform, and stops it right before a call that changes something."""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call that may change something, or the dry run of one.

    ``verb`` and ``object`` are the platform's terms, ``status`` its answer (or why there is none), and ``request_id``
    the platform's id of the call, as in its own log.
    """

    verb: str
    object: str
    status: str
    request_id: str = ""


_recorder: ContextVar[Callable[[Call], None] | None] = ContextVar("calls", default=None)
_stopped: ContextVar[Callable[[], str]] = ContextVar("stopped", default=str)


def record_call(verb: str, obj: str, status: object, request_id: str = "") -> None:
    """Record a call; a driver does so right after each call, in the thread in which the service called the driver."""
    record = _recorder.get()
    if record is not None:
        record(Call(verb=verb, object=obj, status=str(status), request_id=request_id))


def described(parameters: Mapping[str, Any]) -> str:
    """Parameters of a call as the object of a :class:`Call`; cut at 300 characters."""
    return json.dumps(parameters, default=str)[:300]


class StoppedError(Exception):
    """Changes are stopped: the call was not made. The text says why."""


def check_stop() -> None:
    """Raise :class:`StoppedError` if nothing may be changed now.

    A driver calls this right before each call that changes something, in ``submit`` and in ``poll``: its steps are safe
    to repeat, so the operation goes on where it was once the stop ends.
    """
    why = stopped()
    if why:
        raise StoppedError(why)


def stopped() -> str:
    """Why nothing may be changed now; empty if changes are allowed."""
    return _stopped.get()()


@contextmanager
def recording_calls(record: Callable[[Call], None], why_stopped: Callable[[], str] = str) -> Generator[None]:
    """Pass the calls of this thread to ``record`` during the block, and let ``why_stopped`` stop them."""
    before_recorder, before_stopped = _recorder.set(record), _stopped.set(why_stopped)
    try:
        yield
    finally:
        _recorder.reset(before_recorder)
        _stopped.reset(before_stopped)
