"""What the simulated platform and its driver say to each other: JSON over HTTP on loopback.

::

    GET  /v1/cell                   CellState
    GET  /v1/workloads/{workload}   SubjectState; 404 Rejection
    GET  /v1/nodes/{node}           NodeState; 404 Rejection
    POST /v1/operations             Submission -> 202 Operation (200 where the id is known: nothing happens twice)
                                    404 unknown, 409 another version, 422 impossible: Rejection
                                    400 no Submission, 411 no length, 413 over 1 MiB, 503 no journal: Rejection
    GET  /v1/operations/{id}        Operation; 404 Rejection
    GET  /v1/operations             all operations, oldest first: what an audit goes by
    GET  /v1/accounts               the newest Account of each scenario

All times are the fleet's event time.
"""

from typing import Literal

import msgspec

from flyball_contracts.records import AnyDecision, SubjectState
from flyball_contracts.records.base import TimeNs

OperationStatus = Literal["running", "done", "failed", "superseded"]


class CellState(msgspec.Struct, frozen=True, kw_only=True):
    """The cell that the platform runs; ``speed`` is event seconds per second of the wall clock."""

    cell: str
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


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A decision to carry out, if its subject still has ``version`` (empty: whatever it has).

    With ``dry_run`` everything is checked and nothing happens: the answer is what the operation would lead to.
    """

    decision: AnyDecision
    version: str = ""
    dry_run: bool = False


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """Why the platform does not do it: in words, with the remedy."""

    code: Literal["unknown_target", "conflict", "invalid"]
    detail: str


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """What the platform does about one decision, whose id is its own.

    ``submissions`` counts how often it was asked for, ``effects`` how often it changed anything: at most once.
    ``ended_ns`` is when the effect was there, or when it was given up.
    """

    id: str
    workload: str
    status: OperationStatus
    detail: str
    submitted_ns: TimeNs
    before: SubjectState
    expected: SubjectState
    observed: SubjectState
    ended_ns: TimeNs | None = None
    submissions: int = 1
    effects: int = 0
