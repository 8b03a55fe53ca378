"""What is derived from a cell's grants, kept between judgements because most of them add a single grant."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from operator import attrgetter

from flyball_actuators.guard.grants.grant import Grant
from flyball_actuators.guard.sums import UNDECLARED, Declared, DeclaredByName

_at_ns = attrgetter("at_ns")


class KeptGrants(ABC):
    """Grants in order of time, and values derived from them, which subclasses keep current. Not thread-safe."""

    def __init__(self) -> None:
        self.grants: tuple[Grant, ...] = ()
        self._given: tuple[Grant, ...] = ()
        self._declared: DeclaredByName = {}
        self._clear()

    def update(self, grants: tuple[Grant, ...], declared: DeclaredByName) -> None:
        """Replace the held grants with these, which are in order of time."""
        if grants is self._given and declared is self._declared:
            return
        known = self.grants
        gone = bisect_left(known, grants[0].at_ns, key=_at_ns) if grants else len(known)
        if declared is not self._declared:
            self._clear()
            known, gone = (), 0
        same = _common(known[gone:], grants)
        # Grants that stay keep their objects: grants of other actuators are equal, but new objects each time.
        self.grants, self._given, self._declared = (*known[gone : gone + same], *grants[same:]), grants, declared
        for grant in (*known[:gone], *reversed(known[gone + same :])):
            self._drop(grant)
        for grant in grants[same:]:
            self._add(grant)

    def _of(self, grant: Grant) -> Declared:
        return self._declared.get(grant.workload, UNDECLARED)

    @abstractmethod
    def _clear(self) -> None:
        """Drop everything."""

    @abstractmethod
    def _add(self, grant: Grant) -> None:
        """Add the newest grant."""

    @abstractmethod
    def _drop(self, grant: Grant) -> None:
        """Drop the oldest or the newest grant: the second check of a decision takes back the grant of the first."""


def remove_end(grants: list[Grant], grant: Grant) -> None:
    """Remove a grant that is the first or the last of ``grants``."""
    del grants[0 if grants[0] is grant else -1]


def _common(one: tuple[Grant, ...], other: tuple[Grant, ...]) -> int:
    """Length of the common prefix."""
    least = min(len(one), len(other))
    if one[:least] == other[:least]:
        return least
    return next(i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
