"""What a driver tells its platform, call by call, for whoever keeps the record; and whether it may go on."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec


class Call(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call that may change something, or is a dry run of one.

    ``verb`` and ``object`` are the platform's own words, ``status`` its answer (or why there is none), and
    ``request_id`` the platform's name for the call, by which its own log has it.
    """

    verb: str
    object: str
    status: str
    request_id: str = ""


_recorder: ContextVar[Callable[[Call], None] | None] = ContextVar("calls", default=None)
_stopped: ContextVar[Callable[[], str]] = ContextVar("stopped", default=str)


def record_call(verb: str, obj: str, status: object, request_id: str = "") -> None:
    """Say that a call was made; drivers do it right after each one, in the thread in which they were called."""
    record = _recorder.get()
    if record is not None:
        record(Call(verb=verb, object=obj, status=str(status), request_id=request_id))


def stopped() -> str:
    """Why nothing may be changed just now, or empty.

    ``poll`` asks before it carries an operation on by another step; ``submit`` is not called while it is so.
    """
    return _stopped.get()()


@contextmanager
def recording_calls(record: Callable[[Call], None], why_stopped: Callable[[], str] = str) -> Generator[None]:
    """Let ``record`` have the calls that this thread makes meanwhile, and ``why_stopped`` say whether it may go on."""
    before_recorder, before_stopped = _recorder.set(record), _stopped.set(why_stopped)
    try:
        yield
    finally:
        _recorder.reset(before_recorder)
        _stopped.reset(before_stopped)
