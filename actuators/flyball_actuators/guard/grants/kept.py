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
        if declared is not self._declared:
            self._clear()
            known, gone = (), 0
        same = _common(known[gone:], grants)
        # Those that stay are kept as they are: grants of other actuators are equal, but other objects each time.
        self.grants, self._given, self._declared = (*known[gone : gone + same], *grants[same:]), grants, declared
        for grant in (*known[:gone], *reversed(known[gone + same :])):
            self._drop(grant)
        for grant in grants[same:]:
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
        """Drop the oldest or the newest: the second look at a decision takes back the grant that it has just had."""


def remove_end(grants: list[Grant], grant: Grant) -> None:
    """Remove a grant that is the first or the last of some."""
    del grants[0 if grants[0] is grant else -1]


def _common(one: tuple[Grant, ...], other: tuple[Grant, ...]) -> int:
    """How many grants both begin with."""
    least = min(len(one), len(other))
    if one[:least] == other[:least]:
        return least
    return next(i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
