"""The feed port: what every source of carbon and price curves looks like to the runner."""

from typing import Protocol

from flyball_contracts.errors import TransportError
from flyball_contracts.records import Signal


class FeedError(TransportError):
    """An answer that cannot be had or used; names the place, the field and the remedy, and never a secret.

    ``retry_after_s`` is how long the server asks to be left alone. A ``lasting`` error does not go away by
    itself (a wrong token, an unknown zone), so that there is no hurry to ask again.
    """

    def __init__(self, text: str, *, retry_after_s: float = 0.0, lasting: bool = False) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s
        self.lasting = lasting


class Feed(Protocol):
    """One source of curves.

    Retry contract: ``fetch`` may be called again at any time, after an answer or an error; it changes nothing at
    the source. It keeps to the source's own limits by what it remembers (an ETag, a log-in, a file's time), and
    leaves waiting to the caller.
    """

    @property
    def name(self) -> str:
        """Short name for logs, e.g. ``uk_carbon/GB``; unique in a run."""
        ...

    @property
    def left_out(self) -> int:
        """Values left out of all curves so far: null, impossible, or beyond a gap."""
        ...

    def fetch(self, now_ns: int) -> list[Signal]:
        """Curves that the source holds at wall time ``now_ns``.

        ``published_ns`` of each is when it was issued, not when it was fetched. An answer that was had before
        may be returned again. Raises :class:`FeedError` and nothing else.
        """
        ...
