"""The simulated platform: one fleet, shared by the loop that advances time and the clients of its API."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from flyball_contracts.codec import Message, record_message
from flyball_contracts.records import Account, SubjectState
from flyball_contracts.simulated import CellState, NodeState, Operation, Submission
from flyball_simulator.cell.baseline import Baseline
from flyball_simulator.fleet import Fleet
from flyball_simulator.operations import Refused
from flyball_simulator.service.journal import Journal

ACCOUNT_EVERY_S = 10.0


class SubmitResult(NamedTuple):
    """An operation, and whether this submission created it."""

    operation: Operation
    new: bool


class Platform:
    """A thread-safe fleet; submissions take effect at the next tick.

    ``baseline`` is the same fleet without Flyball, which advances with it. ``speed`` is event seconds per second of the
    wall clock, 0 if ticks are not paced. With a ``journal``, submissions are recorded before they are carried out, and
    ticks before they are sent. Errors are those of :class:`Fleet` and its operations.
    """

    def __init__(
        self, fleet: Fleet, speed: float, baseline: Baseline | None = None, journal: Journal | None = None
    ) -> None:
        self._fleet, self._speed, self._baseline, self._journal = fleet, speed, baseline, journal
        self._lock = threading.Lock()

    def tick(self, index: int) -> list[Message]:
        """Advance by one tick; its messages include accounts every :data:`ACCOUNT_EVERY_S` of event time."""
        with self._lock:
            messages = self._tick(index)
            if self._journal is not None:
                self._journal.made(index)
            return messages

    def replay(self) -> Iterator[tuple[int, list[Message]]]:
        """Repeat the ticks and submissions of the journal; yields each tick's messages."""
        if self._journal is None:
            return
        with self._lock:
            submissions = deque(self._journal.submissions)
            for index in range(self._journal.last_made + 2):
                while submissions and submissions[0].tick <= index:
                    with suppress(Refused):  # it was refused then, too
                        self._fleet.operations.submit(submissions.popleft().submission)
                if index <= self._journal.last_made:
                    yield index, self._tick(index)

    def accounts(self) -> list[Account]:
        """Cost and results of each scenario up to the last tick."""
        with self._lock:
            return self._accounts()

    def account_messages(self) -> list[Message]:
        """The accounts as messages."""
        with self._lock:
            return self._account_messages()

    def cell(self) -> CellState:
        """State of the cell at the last tick."""
        with self._lock:
            return self._fleet.cell(self._speed)

    def workload(self, name: str) -> SubjectState:
        """State of a workload at the last tick."""
        with self._lock:
            return self._fleet.workload(name)

    def node(self, name: str) -> NodeState:
        """State of a node at the last tick."""
        with self._lock:
            return self._fleet.node(name)

    def operation(self, name: str) -> Operation | None:
        """An operation by id, ``None`` if there is none."""
        with self._lock:
            return self._fleet.operations.find(name)

    def operations(self) -> list[Operation]:
        """All operations, oldest first."""
        with self._lock:
            return self._fleet.operations.all()

    def submit(self, submission: Submission) -> SubmitResult:
        """Carry out a decision, or return its existing operation."""
        with self._lock:
            ledger = self._fleet.operations
            if self._journal is not None and not submission.dry_run:
                self._journal.record_submission(self._fleet.plant.index, submission)
            new = not ledger.knows(submission.decision.id) and not submission.dry_run
            return SubmitResult(ledger.submit(submission), new)

    def _tick(self, index: int) -> list[Message]:
        messages = self._fleet.tick(index)
        if self._baseline is not None:
            self._baseline.tick()
        tick_s = self._fleet.config.tick_s
        if index * tick_s // ACCOUNT_EVERY_S > (index - 1) * tick_s // ACCOUNT_EVERY_S:
            messages += self._account_messages()
        return messages

    def _accounts(self) -> list[Account]:
        return [self._fleet.account(), *([] if self._baseline is None else [self._baseline.account()])]

    def _account_messages(self) -> list[Message]:
        return [record_message(account, f"/cells/{account.cell}") for account in self._accounts()]
