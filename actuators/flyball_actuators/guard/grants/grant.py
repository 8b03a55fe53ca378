"""A grant: a decision as the limits count it."""

import msgspec

from flyball_contracts.records.commands.kinds.base import Urgency


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that was let through, as the limits count it.

    A later decision on the same ``subject`` supersedes this one; ``decided_ns`` is the decision's time, ``at_ns`` the
    guard's time, and ``taken`` the number of replicas that stop. Each ``urgency`` has its own limits (see
    :func:`~flyball_actuators.guard.state.urgency_of`), and so have dry runs. ``type`` is the decision's type,
    ``usd_per_hour`` the cost it expected to add, ``starts`` the node on which it starts replicas (empty: any node of
    the cell; ``None``: it starts none), and ``replicas`` how many replicas the workload has after it (``None``: unknown
    or unchanged). Lines of older versions lack these four fields and ``workload``.
    """

    cell: str
    target: str
    subject: str
    decided_ns: int
    at_ns: int
    taken: int
    decision: str = ""
    urgency: Urgency = "normal"
    dry_run: bool = False
    workload: str = ""
    type: str = ""
    usd_per_hour: float = 0.0
    starts: str | None = None
    replicas: int | None = None
