"""The cloud resource behind a pool: a group, a fleet, a scale set. Each kind is a class."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from flyball_actuators.platforms.base import Handle, Progress, Rejected
from flyball_actuators.platforms.pools.operation import Operation
from flyball_contracts.records import Scale, SubjectState

Busy = Callable[[str], frozenset[str]]
"""Returns the nodes of a cell with replicas on them, as the inventories show them."""


class PoolState(NamedTuple):
    """State of a pool: machines that are requested, and machines that run.

    ``version`` changes with everything that a decision may depend on. The cloud itself limits the number to ``least``
    to ``most``.
    """

    machines: int
    ready: int
    version: str
    least: int = 0
    most: int = 1_000_000

    @property
    def state(self) -> SubjectState:
        """The pool as a subject state."""
        return SubjectState(replicas=self.machines, ready=self.ready, version=self.version)


class Backing(Protocol):
    """Machines of one pool. All methods except :meth:`grow`, :meth:`shrink` and :meth:`poll` only read."""

    def observe(self) -> PoolState | Rejected:
        """State of the pool now."""
        ...

    def grow(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Request the decision's number of machines; the same call again must not buy more.

        Raises :class:`PlatformError` if the effect is unknown. ``Rejected``: nothing was bought.
        """
        ...

    def shrink(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Return machines down to the decision's number; the same call again must not return more."""
        ...

    def poll(self, operation: Operation, now_ns: int) -> Progress:
        """Progress of an operation; may advance it by steps that are safe to repeat."""
        ...

    def find(self, decision: Scale, observed: SubjectState | None) -> Handle | Rejected | None:
        """Operation of a decision; ``None`` if there certainly is none, ``Rejected`` if unknown."""
        ...
