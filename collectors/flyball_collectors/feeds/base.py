"""The feed interface: every source of carbon and price curves, as the runner uses it."""

from typing import Protocol

from flyball_contracts.errors import TransportError
from flyball_contracts.records import Signal


class FeedError(TransportError):
    """A missing or unusable response; names the place, the field and the remedy, and never a secret.

    ``retry_after_s`` is the server's requested wait. A ``lasting`` error does not go away by itself (a wrong token, an
    unknown zone), so it is retried less often.
    """

    def __init__(self, text: str, *, retry_after_s: float = 0.0, lasting: bool = False) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s
        self.lasting = lasting


class Feed(Protocol):
    """One source of curves.

    Retry contract: ``fetch`` may be called again at any time, after a response or an error; it changes nothing at the
    source. It respects the source's own limits by stored state (an ETag, a login, a file's time), and leaves waiting to
    the caller.
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
        """Curves that the source has at wall time ``now_ns``.

        ``published_ns`` of each is when it was issued, not when it was fetched. A curve that was returned before may be
        returned again. Raises :class:`FeedError` and nothing else.
        """
        ...
