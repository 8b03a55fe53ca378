"""What discovery finds, and the port of all its sources."""

from typing import Literal, NamedTuple, Protocol


class DiscoveredReplica(NamedTuple):
    """One replica that takes part; ``url`` is empty while it has no address, and where it does not say a usable one.

    ``model`` is which of several on its page it is, ``labels`` are what its runtime calls it. One that is ``pending``
    serves nobody yet.
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
    """Looks for replicas now and then, in a thread of its own.

    ``found`` is the last answer, however old it is; ``problem`` why there is no newer or no fuller one, empty where
    all is well and ``None`` before the first. ``errors`` counts the answers that could not be had.
    """

    @property
    def found(self) -> tuple[DiscoveredReplica, ...]:
        """The replicas there are; the same object while nothing has changed."""
        ...

    @property
    def problem(self) -> str | None:
        """Why not all is found."""
        ...

    @property
    def errors(self) -> int:
        """Attempts that failed so far."""
        ...

    def hurry(self) -> None:
        """Break off a request that takes too long."""
        ...

    def close(self) -> None:
        """End the thread."""
        ...
