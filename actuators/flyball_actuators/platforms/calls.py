"""What a driver tells its platform, call by call, for whoever keeps the record of it."""

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


_hear: ContextVar[Callable[[Call], None] | None] = ContextVar("calls", default=None)


def note(verb: str, thing: str, status: object, request_id: str = "") -> None:
    """Say that a call was made; drivers do it right after each one, in the thread in which they were called."""
    hear = _hear.get()
    if hear is not None:
        hear(Call(verb=verb, object=thing, status=str(status), request_id=request_id))


@contextmanager
def heard_by(hear: Callable[[Call], None]) -> Generator[None]:
    """Let ``hear`` have the calls that this thread makes meanwhile."""
    before = _hear.set(hear)
    try:
        yield
    finally:
        _hear.reset(before)
