"""The HTTP interface of the simulated platform on loopback, in addition to that of webhooks.

::

    GET  /v1/cell                   CellState
    GET  /v1/nodes/{node}           NodeState; 404 Rejection
    POST /v1/operations             400 no Submission, 411 no length, 413 over 1 MiB, 503 no journal: Rejection
    GET  /v1/operations             all operations, oldest first, for audits
    GET  /v1/accounts               the newest Account of each scenario

All times are the fleet's event time.
"""

import msgspec

from flyball_contracts import webhook
from flyball_contracts.records import SubjectState
from flyball_contracts.records.base import TimeNs
from flyball_contracts.webhook import (
    OperationStatus as OperationStatus,
    Rejection as Rejection,
    Submission as Submission,
)


class CellState(webhook.Cell, frozen=True, kw_only=True):
    """``speed`` is event seconds per second of the wall clock."""

    now_ns: TimeNs
    speed: float
    nodes: int
    workloads: tuple[str, ...]


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """One node; ``cordoned`` are the ids of its devices on which nothing new is placed."""

    node: str
    schedulable: bool
    cordoned: tuple[str, ...] = ()
    power_limit_w: float | None = None


class Operation(webhook.Operation, frozen=True, kw_only=True):
    """``submissions`` counts the requests for it, ``effects`` how often it changed anything: at most once."""

    submitted_ns: TimeNs
    before: SubjectState
    submissions: int = 1
    effects: int = 0
