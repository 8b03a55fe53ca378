"""Grants of a cell by tenant, kept from one judgement to the next, as most add one grant to those before."""

from bisect import bisect_left
from collections import Counter, defaultdict
from operator import attrgetter

from flyball_actuators.guard.grants.grant import Grant
from flyball_actuators.guard.sums import UNDECLARED, DeclaredByName

_at_ns = attrgetter("at_ns")
Start = tuple[str, float]
"""Node on which a grant starts replicas, empty for any, and the GPUs that each requests."""


class RecentGrants:
    """Grants that inventories may not show yet, and what a walk over them gives. Not thread-safe.

    ``grants`` are in the order of time. ``replicas[tenant][workload]`` is how many replicas the newest of them gives a
    workload; ``starts[tenant][start]`` is how many of them start such replicas.
    """

    def __init__(self) -> None:
        self.grants: tuple[Grant, ...] = ()
        self._declared: DeclaredByName = {}
        self._clear()

    def update(self, grants: tuple[Grant, ...], declared: DeclaredByName) -> None:
        """Hold these grants, in the order of time, instead of those before."""
        known = self.grants
        gone = bisect_left(known, grants[0].at_ns, key=_at_ns) if grants else len(known)
        stay = len(known) - gone
        if declared is not self._declared or known[gone:] != grants[:stay]:
            self._clear()
            known, gone, stay = (), 0, 0
        # Those that stay are kept as they are: grants of other actuators are equal, but other objects each time.
        self.grants, self._declared = (*known[gone:], *grants[stay:]), declared
        for grant in known[:gone]:
            self._drop(grant)
        for grant in grants[stay:]:
            self._add(grant)

    def _clear(self) -> None:
        self.replicas: dict[str, dict[str, int]] = defaultdict(dict)
        self.starts: dict[str, Counter[Start]] = defaultdict(Counter)
        self._newest: dict[str, Grant] = {}

    def _add(self, grant: Grant) -> None:
        tenant, gpus = self._declared.get(grant.workload, UNDECLARED)
        if grant.replicas is not None:
            self._newest[grant.workload] = grant
            self.replicas[tenant][grant.workload] = grant.replicas
        if grant.starts is not None:
            self.starts[tenant][grant.starts, gpus] += 1

    def _drop(self, grant: Grant) -> None:
        tenant, gpus = self._declared.get(grant.workload, UNDECLARED)
        if self._newest.get(grant.workload) is grant:
            del self._newest[grant.workload], self.replicas[tenant][grant.workload]
        if grant.starts is not None:
            starts = self.starts[tenant]
            starts[grant.starts, gpus] -= 1
            if not starts[grant.starts, gpus]:
                del starts[grant.starts, gpus]
