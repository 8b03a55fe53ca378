"""The result of discovery, and the interface of all its sources."""

from typing import Literal, NamedTuple, Protocol


class DiscoveredReplica(NamedTuple):
    """One replica that takes part; ``url`` is empty without an address, or if the declared one is unusable.

    ``model`` selects one of several on its page, ``labels`` are the runtime's names of it. A ``pending`` one serves no
    requests yet.
    """

    runtime: Literal["kubernetes", "slurm"]
    workload: str
    replica: str
    labels: tuple[tuple[str, str], ...]
    url: str
    server: str
    work: str
    model: str = ""
    pending: bool = False


class Watch(Protocol):
    """Discovers replicas periodically, in a thread of its own.

    ``found`` is the last result, however old it is; ``problem`` says why there is no newer or complete one, empty if
    there is none and ``None`` before the first result. ``errors`` counts failed attempts.
    """

    @property
    def found(self) -> tuple[DiscoveredReplica, ...]:
        """The current replicas; the same object while nothing has changed."""
        ...

    @property
    def problem(self) -> str | None:
        """Why discovery is incomplete."""
        ...

    @property
    def errors(self) -> int:
        """Number of failed attempts."""
        ...

    def hurry(self) -> None:
        """Abort a request that takes too long."""
        ...

    def close(self) -> None:
        """End the thread."""
        ...
