"""The simulated platform: one fleet, shared by the loop that lets time pass and those who ask for changes."""

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


class Taken(NamedTuple):
    """An operation, and whether this submission made it."""

    operation: Operation
    new: bool


class Platform:
    """A fleet behind a lock: whatever is asked for takes effect at the tick that comes next.

    The ``baseline`` is the same fleet without Flyball, which ticks with it. ``speed`` is event seconds per second of
    the wall clock, 0 when nothing paces it. With a ``journal``, what is asked for is written there before it is done,
    and so is each tick before it can be sent. Errors are those of :class:`Fleet` and its operations.
    """

    def __init__(
        self, fleet: Fleet, speed: float, baseline: Baseline | None = None, journal: Journal | None = None
    ) -> None:
        self._fleet, self._speed, self._baseline, self._journal = fleet, speed, baseline, journal
        self._lock = threading.Lock()

    def tick(self, index: int) -> list[Message]:
        """Let one tick pass; accounts are among its messages each :data:`ACCOUNT_EVERY_S` of event time."""
        with self._lock:
            messages = self._tick(index)
            if self._journal is not None:
                self._journal.made(index)
            return messages

    def replay(self) -> Iterator[tuple[int, list[Message]]]:
        """Let the ticks of the journal pass again, and all that was asked for meanwhile; yields their messages."""
        if self._journal is None:
            return
        with self._lock:
            asked = deque(self._journal.asked)
            for index in range(self._journal.last_made + 2):
                while asked and asked[0].tick <= index:
                    with suppress(Refused):  # it was refused then, too
                        self._fleet.operations.submit(asked.popleft().submission)
                if index <= self._journal.last_made:
                    yield index, self._tick(index)

    def accounts(self) -> list[Account]:
        """What each scenario has cost and achieved up to the last tick."""
        with self._lock:
            return self._accounts()

    def account_messages(self) -> list[Message]:
        """The accounts, to be published."""
        with self._lock:
            return self._account_messages()

    def cell(self) -> CellState:
        """The cell as of the last tick."""
        with self._lock:
            return self._fleet.cell(self._speed)

    def workload(self, name: str) -> SubjectState:
        """A workload as of the last tick."""
        with self._lock:
            return self._fleet.workload(name)

    def node(self, name: str) -> NodeState:
        """A node as of the last tick."""
        with self._lock:
            return self._fleet.node(name)

    def operation(self, name: str) -> Operation | None:
        """An operation."""
        with self._lock:
            return self._fleet.operations.find(name)

    def operations(self) -> list[Operation]:
        """All operations, oldest first."""
        with self._lock:
            return self._fleet.operations.all()

    def submit(self, submission: Submission) -> Taken:
        """Take a decision on, or answer what became of it."""
        with self._lock:
            ledger = self._fleet.operations
            if self._journal is not None and not submission.dry_run:
                self._journal.ask(self._fleet.plant.index, submission)
            new = not ledger.knows(submission.decision.id) and not submission.dry_run
            return Taken(ledger.submit(submission), new)

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
