"""What all actuators of a group did, from the outcomes of all partitions: grants by cell, partitions by decision."""

from threading import Lock
from typing import NamedTuple

import msgspec

from flyball_actuators.guard import Grant
from flyball_actuators.ledger.outcome_index import grant_of
from flyball_contracts.records import Outcome

MOST = 20_000


class _Known(NamedTuple):
    """A grant, and whether its decision was submitted; a decision superseded before that had no effect."""

    grant: Grant
    running: bool


class CellGrants:
    """Grants by cell, in the order of reading; a cell that is never queried keeps only the newest.

    It remembers in which partition the outcomes of the newest decisions are: after partitions were added, a decision
    that is sent again arrives in another one. Thread-safe.
    """

    def __init__(self) -> None:
        self._partitions: dict[str, int] = {}
        self._cells: dict[str, dict[str, _Known]] = {}
        self._turn = Lock()

    def add(self, partition: int, outcome: Outcome, at_ms: int) -> None:
        """Add the next outcome of a partition."""
        if outcome.mode != "live":
            return
        self._partitions.setdefault(outcome.decision, partition)
        if len(self._partitions) > 2 * MOST:
            self._partitions = dict(list(self._partitions.items())[-MOST:])
        with self._turn:
            self._add(outcome)

    def forget(self, partition: int) -> None:
        """Do nothing: grants stay valid, whichever process owns the partition."""

    def elsewhere(self, decision: str, partition: int) -> int | None:
        """Another partition that has outcomes of a decision; ``None`` if there is none."""
        found = self._partitions.get(decision, partition)
        return None if found == partition else found

    def since(self, cell: str, since_ns: int) -> list[Grant]:
        """Grants of a cell later than ``since_ns``; drops older ones."""
        with self._turn:
            of_cell = self._cells.get(cell, {})
            late = {decision: one for decision, one in of_cell.items() if one.grant.at_ns > since_ns}
            if len(late) < len(of_cell):
                self._cells[cell] = late
        return [one.grant for one in late.values()]

    def _add(self, outcome: Outcome) -> None:
        of_cell = self._cells.setdefault(outcome.cell, {})
        known = of_cell.get(outcome.decision)
        if outcome.status == "refused" or (outcome.status == "superseded" and known is not None and not known.running):
            of_cell.pop(outcome.decision, None)
        elif outcome.status == "running" or (outcome.status == "accepted" and known is None):
            grant = grant_of(outcome)
            if known is not None and outcome.counted is None:  # an actuator that took over does not know it
                taken = max(grant.taken, known.grant.taken)
                grant = msgspec.structs.replace(known.grant, at_ns=grant.at_ns, taken=taken)
            of_cell[outcome.decision] = _Known(grant, outcome.status == "running")
            if len(of_cell) > 2 * MOST:
                self._cells[outcome.cell] = dict(list(of_cell.items())[-MOST:])
