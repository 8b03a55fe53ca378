"""The result of discovery, and the interface of all its sources."""

import logging
import threading
from abc import ABC, abstractmethod
from typing import Literal, NamedTuple

from flyball_collectors.workload.scraping.token import FetchError
from flyball_contracts.declared.names import NamesSpec
from flyball_contracts.records.inventory import CordonState

_LOG = logging.getLogger(__name__)


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


class NodeState(NamedTuple):
    """Whether the platform starts new work on the node, and who has closed it."""

    schedulable: bool = True
    cordon: CordonState = ""


class Watch(ABC):
    """Looks for replicas every ``period_s``, in a thread of its own named ``who``.

    ``found`` is the last result, however old it is, and the same object while nothing has changed; ``problem`` says why
    there is no newer or complete one, empty if there is none and ``None`` before the first result. ``errors`` counts
    failed attempts. The log shows a new problem after ``warning``. ``node`` is the last known state of the node.
    ``homes`` are the namespaces whose pods may bear a name, and the same object while nothing has changed.
    """

    warning: str

    def __init__(self, who: str, period_s: float, patience_s: float) -> None:
        self.errors: int = 0
        self.problem: str | None = None
        self.found: tuple[DiscoveredReplica, ...] = ()
        self.node = NodeState()
        self.homes = NamesSpec()
        self._period_s = period_s
        self._patience_s = patience_s
        self._looked, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=who, daemon=True)
        self._thread.start()

    def hurry(self) -> None:
        """Abort a request that takes too long, if there are requests."""
        return

    def wait(self, longest_s: float) -> None:
        """Wait for the end of the first look, or for the given time."""
        self._looked.wait(longest_s)

    def close(self) -> None:
        """End the thread, unless a call holds it for longer than its patience."""
        self._stop.set()
        self._thread.join(self._patience_s)

    @abstractmethod
    def _look(self) -> tuple[tuple[DiscoveredReplica, ...], str]:
        """The current replicas, and why they are not complete."""

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                found, problem = self._look()
                if found != self.found:
                    self.found = found
            except Exception as error:  # whatever the error, the known replicas stay known
                self.errors += 1
                problem = str(error) if isinstance(error, FetchError) else f"{type(error).__name__}: {error}"
            if problem and problem != self.problem and not self._stop.is_set():
                _LOG.warning(self.warning, problem)
            self.problem = problem
            self._looked.set()
            self._stop.wait(self._period_s)
