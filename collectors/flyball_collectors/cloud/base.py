"""The interface to a cloud's metadata service."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from flyball_collectors.base import Place
from flyball_contracts.errors import TransportError
from flyball_contracts.records.events import EventKind, Remedy, Severity


class MetadataError(TransportError):
    """A missing or unusable response; names the address, and the remedy if known."""


class Notice(NamedTuple):
    """An announced action of the cloud on this machine; ``key`` identifies it."""

    key: str
    kind: EventKind
    message: str
    severity: Severity = "critical"
    remedy: Remedy = "drain"


class Cloud(Protocol):
    """The metadata service of one cloud.

    Retry contract: both methods may be called again at any time; neither changes anything. They take at most a few
    times the server's timeout, and raise only :class:`MetadataError`.
    """

    @property
    def name(self) -> str:
        """``aws``, ``gcp`` or ``azure``."""
        ...

    def place(self) -> Place:
        """Location and type of this machine; constant while it runs."""
        ...

    def notices(self) -> Iterator[Notice]:
        """Announced actions, the most urgent first; those returned before an error are valid."""
        ...
