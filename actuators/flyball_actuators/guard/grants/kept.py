"""What is kept of the grants of a cell from one judgement to the next, as most add one grant to those before."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from operator import attrgetter

from flyball_actuators.guard.grants.grant import Grant
from flyball_actuators.guard.sums import UNDECLARED, Declared, DeclaredByName

_at_ns = attrgetter("at_ns")


class KeptGrants(ABC):
    """Grants in the order of time, and what a walk over them gives. Not thread-safe."""

    def __init__(self) -> None:
        self.grants: tuple[Grant, ...] = ()
        self._given: tuple[Grant, ...] = ()
        self._declared: DeclaredByName = {}
        self._clear()

    def update(self, grants: tuple[Grant, ...], declared: DeclaredByName) -> None:
        """Hold these grants, in the order of time, instead of those before."""
        if grants is self._given and declared is self._declared:
            return
        known = self.grants
        gone = bisect_left(known, grants[0].at_ns, key=_at_ns) if grants else len(known)
        stay = len(known) - gone
        if declared is not self._declared or known[gone:] != grants[:stay]:
            self._clear()
            known, gone, stay = (), 0, 0
        # Those that stay are kept as they are: grants of other actuators are equal, but other objects each time.
        self.grants, self._given, self._declared = (*known[gone:], *grants[stay:]), grants, declared
        for grant in known[:gone]:
            self._drop(grant)
        for grant in grants[stay:]:
            self._add(grant)

    def _of(self, grant: Grant) -> Declared:
        return self._declared.get(grant.workload, UNDECLARED)

    @abstractmethod
    def _clear(self) -> None:
        """Hold nothing."""

    @abstractmethod
    def _add(self, grant: Grant) -> None:
        """Add the newest."""

    @abstractmethod
    def _drop(self, grant: Grant) -> None:
        """Drop the oldest."""
