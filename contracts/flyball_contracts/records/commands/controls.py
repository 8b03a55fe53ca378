"""Orders of operators: stops and approvals."""

from flyball_contracts.records.base import Record, TimeNs
from flyball_contracts.records.commands.decisions import AnyDecision


class Stop(Record, frozen=True, kw_only=True):
    """Nothing is done in the cells that the glob pattern ``cell`` matches, until the record is ``removed``."""

    cell: str
    time_ns: TimeNs
    by: str
    reason: str = ""
    removed: bool = False


class Approval(Record, frozen=True, kw_only=True):
    """A person approves a decision, and similar ones until ``until_ns``; see the guard's rule ``approval``."""

    decision: AnyDecision
    time_ns: TimeNs
    until_ns: TimeNs
    by: str
    reason: str = ""
