"""A fleet that obeys and the engine, tick by tick in one thread: what was decided, and what became of it."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from tests.streams.engine.cell.arbiter_harness import outcome
from tests.streams.engine.scene import ONE, START_NS, incoming

from flyball_contracts.codec import Message, decode_record, record_message
from flyball_contracts.config import FleetConfig, WorkerConfig
from flyball_contracts.records import AnyDecision, Check, Migrate, Outcome, Preempt, Scale
from flyball_contracts.simulated import Submission
from flyball_contracts.topics import DECISIONS
from flyball_simulator import Fleet
from flyball_simulator.operations import Refused
from flyball_streams.engine import Engine, Incoming

Status = Literal["accepted", "refused", "done", "failed", "superseded"]


class ClosedLoop:
    """Runs the loop; each ``refuse_every``-th decision is refused (0: none but those that the platform refuses)."""

    def __init__(self, fleet: FleetConfig, worker: WorkerConfig, refuse_every: int = 0) -> None:
        self.fleet, self.engine = Fleet(fleet, START_NS), Engine(worker, ONE)
        self.refuse_every = refuse_every
        self.decisions: list[AnyDecision] = []
        self.outcomes: list[Outcome] = []
        self._open: dict[str, AnyDecision] = {}
        self._answers: list[Message] = []
        self._ends: Counter[tuple[str, int]] = Counter()
        self.engine.feed(self._arrived(self.fleet.messages_at_start()))

    def run(self, ticks: int) -> None:
        """Let so many ticks pass."""
        for _ in range(ticks):
            sent = self.fleet.tick(self.fleet.plant.index)
            self._look()
            answers, self._answers = self._answers, []
            for message in self.published(self.engine.feed(self._arrived([*answers, *sent]))):
                if message.topic == DECISIONS.name:
                    decision = decode_record(message.topic, message.value, message.headers)
                    assert isinstance(decision, Scale | Migrate | Preempt | Check)
                    self._act(decision)

    def published(self, sent: list[Message]) -> list[Message]:
        """Messages of the engine in a tick; subclasses inspect them."""
        return sent

    def _act(self, decision: AnyDecision) -> None:
        self.decisions.append(decision)
        if self.refuse_every and len(self.decisions) % self.refuse_every == 0:
            self._answer(decision, "refused")
            return
        try:
            self.fleet.operations.submit(Submission(decision=decision))
        except Refused as error:
            self._answer(decision, "refused", str(error), unsuitable_nodes=error.unsuitable_nodes)
            return
        self._open[decision.id] = decision
        self._answer(decision, "accepted")

    def _look(self) -> None:
        """Say what has ended."""
        for identity, decision in list(self._open.items()):
            operation = self.fleet.operations.find(identity)
            assert operation is not None
            if operation.status != "running":
                del self._open[identity]
                self._answer(decision, operation.status, operation.detail)

    def _answer(self, decision: AnyDecision, status: Status, words: str = "", **more: Any) -> None:
        reply = outcome(decision, status, time_ns=self.fleet.plant.clock_ns, answer=words, **more)
        self.outcomes.append(reply)
        self._answers.append(record_message(reply, "/test"))

    def _arrived(self, messages: Sequence[Message]) -> list[Incoming]:
        found: list[Incoming] = []
        for message in (incoming(m, ONE) for m in messages):
            place = message.topic, message.partition
            found.append(message._replace(offset=self._ends[place]))
            self._ends[place] += 1
        return found
