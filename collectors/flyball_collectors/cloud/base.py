"""The port of a cloud's metadata service."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from flyball_collectors.base import Place
from flyball_contracts.errors import TransportError
from flyball_contracts.records.events import EventKind, Remedy, Severity


class MetadataError(TransportError):
    """An answer that cannot be had or used; names the address, and what to do where that is known."""


class Notice(NamedTuple):
    """Something that the cloud is going to do to this machine; ``key`` is the same as long as it is the same."""

    key: str
    kind: EventKind
    message: str
    severity: Severity = "critical"
    remedy: Remedy = "drain"


class Cloud(Protocol):
    """One cloud, as its machines see it.

    Retry contract: both may be called again at any time; neither changes anything. They take at most a few times
    the server's timeout, and raise :class:`MetadataError` and nothing else.
    """

    @property
    def name(self) -> str:
        """``aws``, ``gcp`` or ``azure``."""
        ...

    def place(self) -> Place:
        """What machine this is and where; it does not change while the machine runs."""
        ...

    def notices(self) -> Iterator[Notice]:
        """What is going to happen, the most urgent first; those before an error are good."""
        ...
