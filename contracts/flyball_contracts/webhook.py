"""The protocol between driver ``webhook`` and a server that operates a cell in its own way: JSON over HTTP.

::

    GET  /v1/cell                   Cell
    GET  /v1/workloads/{workload}   SubjectState; 404 Rejection
    POST /v1/operations             Submission -> 202 Operation; 200 where the id is known: nothing happens twice
                                    404 unknown, 409 another version, 422 impossible: Rejection, and nothing was done
    GET  /v1/operations/{id}        Operation; 404 Rejection

Names in paths are percent-encoded, slashes as well. An operation's id is that of its decision. The server keeps
operations for as long as a decision may be valid (15 minutes), also over its own restarts, because a client that lost a
response queries the id before it submits again.
"""

from typing import Literal

import msgspec

from flyball_contracts.records import AnyDecision, SubjectState
from flyball_contracts.records.base import TimeNs

OperationStatus = Literal["running", "done", "failed", "superseded"]


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """The cell that the server runs."""

    cell: str


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A decision to carry out, if its subject still has ``version`` (empty: any).

    With ``dry_run`` everything is checked and nothing happens: the response is the state that the operation would lead
    to. A Preempt with ``victims`` stops those replicas, or is refused.
    """

    decision: AnyDecision
    version: str = ""
    dry_run: bool = False


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """Why the server refuses it, as text with the remedy.

    ``unsuitable_nodes`` are nodes on which the work may not run, such as all of a pool; another is chosen at once then.
    """

    code: Literal["unknown_target", "conflict", "invalid", "unsupported"]
    detail: str
    unsuitable_nodes: tuple[str, ...] = ()


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """State of one decision's operation, whose id is the decision's.

    ``expected`` is what the workload should show once it is done, ``observed`` what it shows now, and ``ended_ns`` when
    the effect was there, or when it was given up. Both have the ``nodes`` of the replicas that the decision names, an
    empty one for a replica that is stopped. A newer operation on a workload supersedes the running one.
    """

    id: str
    workload: str
    status: OperationStatus
    expected: SubjectState
    observed: SubjectState
    detail: str = ""
    ended_ns: TimeNs | None = None
