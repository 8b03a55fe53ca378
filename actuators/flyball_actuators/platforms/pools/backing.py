"""What holds the machines of one pool: a group, a fleet, a scale set. Each kind is one member."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from flyball_actuators.platforms.base import Handle, Progress, Rejected
from flyball_actuators.platforms.pools.operation import Operation
from flyball_contracts.records import Scale, SubjectState

Busy = Callable[[str], frozenset[str]]
"""Nodes of a cell on which a replica runs, as the inventories show them."""


class PoolState(NamedTuple):
    """What a pool holds: machines that are asked for, and those that run.

    ``version`` changes with whatever a decision may have rested on. The cloud itself keeps the number between
    ``least`` and ``most``.
    """

    machines: int
    ready: int
    version: str
    least: int = 0
    most: int = 1_000_000

    @property
    def state(self) -> SubjectState:
        """As a subject of decisions."""
        return SubjectState(replicas=self.machines, ready=self.ready, version=self.version)


class Backing(Protocol):
    """Machines of one pool. All but :meth:`grow`, :meth:`shrink` and :meth:`poll` read only."""

    def observe(self) -> PoolState | Rejected:
        """What there is now."""
        ...

    def grow(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Ask for as many machines as the decision says; the same call again must not buy more.

        Raises :class:`PlatformError` where it is not known what became of it. ``Rejected``: nothing was bought.
        """
        ...

    def shrink(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Return machines until there are as many as the decision says; the same call again must not return more."""
        ...

    def poll(self, operation: Operation, now_ns: int) -> Progress:
        """How far an operation is; steps that are safe to repeat may carry it on."""
        ...

    def find(self, decision: Scale, observed: SubjectState | None) -> Handle | Rejected | None:
        """What the cloud shows of a decision: its operation, ``None`` where nothing does, ``Rejected``: unknown."""
        ...
