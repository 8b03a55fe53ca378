"""Records each call that a driver makes to its platform, and lets a driver ask whether it may go on."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

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
    """Record a call; a driver does so right after each call, in the thread in which the service called it."""
    record = _recorder.get()
    if record is not None:
        record(Call(verb=verb, object=obj, status=str(status), request_id=request_id))


def stopped() -> str:
    """Why nothing may be changed now; empty if changes are allowed.

    ``poll`` checks this before it advances an operation by another step; ``submit`` is not called while it is set.
    """
    return _stopped.get()()


@contextmanager
def recording_calls(record: Callable[[Call], None], why_stopped: Callable[[], str] = str) -> Generator[None]:
    """Pass the calls of this thread to ``record`` during the block, and answer :func:`stopped` by ``why_stopped``."""
    before_recorder, before_stopped = _recorder.set(record), _stopped.set(why_stopped)
    try:
        yield
    finally:
        _recorder.reset(before_recorder)
        _stopped.reset(before_stopped)
