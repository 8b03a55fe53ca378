"""Queues decisions by target: many targets in parallel, one operation each, and the newest accepted decision wins."""

from collections.abc import Callable
from typing import NamedTuple

from flyball_actuators.audit import Trail
from flyball_actuators.execution.carry_out import Carrier
from flyball_actuators.execution.judge import Judge
from flyball_actuators.execution.task import Delivery, Task
from flyball_actuators.guard import Signature, urgency_of
from flyball_actuators.ledger import DecisionOutcomes, Ledger
from flyball_actuators.platforms import Handle, Platforms
from flyball_actuators.report import ActuatorReport
from flyball_actuators.session import Session
from flyball_contracts.records import AnyDecision, Outcome, SetsReplicas, SubjectState
from flyball_contracts.records.subjects import POOL, pool_of

MOST_UNDER_WAY = 64
RESCUES_BEYOND = 16
"""Rescues that may be under way in addition: long operations never delay work that leaves a failing device."""
MOST_WAITING = 512
RESCUES_WAITING = 512
"""Rescues that may wait in addition, however many other decisions wait."""
_SOON_S = 0.002
_LATER_S = 0.05
_IDLE_S = 0.2


class _Expired(NamedTuple):
    """An expired decision; ``assumed`` are the numbers of replicas that it and those before it started from.

    Decisions made until it expired, at ``time_ns``, could not know that it had no effect.
    """

    time_ns: int
    assumed: tuple[int, ...]


class Lanes:
    """A queue per target; its first task is in progress, and a later one on the same subject may supersede it.

    All pools of a cell share one queue: no purchase is judged before earlier ones were submitted, so that the cost
    which the platform then shows is complete.
    """

    def __init__(
        self,
        platforms: Platforms,
        ledger: Ledger,
        trail: Trail,
        session: Session,
        judge: Judge,
        carrier: Carrier,
        report: ActuatorReport,
        done: Callable[[int, int], None],
    ) -> None:
        self._platforms = platforms
        self._ledger = ledger
        self._trail = trail
        self._session = session
        self._judge = judge
        self._carrier = carrier
        self._report = report
        self._done = done
        self._lanes: dict[str, list[Task]] = {}
        self._by_id: dict[str, Task] = {}
        self._expired: dict[str, _Expired] = {}

    def take(
        self,
        decision: AnyDecision,
        partition: int,
        offset: int,
        at_ms: int,
        signature: Signature | None = None,
        *,
        moved: bool = False,
    ) -> None:
        """Take a decision that was read; ``at_ms`` is when it was sent.

        ``moved``: its cell has another partition, because partitions were added; it is ended and never started. A
        finished decision that was sent again is answered with its final outcome.
        """
        self._judge.saw(decision)
        known = self._by_id.get(decision.id)
        delivery = Delivery(offset, at_ms)
        if known is not None:
            known.deliveries.append(delivery)
            return
        outcomes = self._session.log.index.outcomes_of(partition, decision.id)
        entry = self._ledger.get(decision.id)
        served = self._platforms.of(decision)
        task = Task(decision, partition, [delivery], served, decision.subject, moved=moved, signature=signature)
        self._add_assumed(task)
        if outcomes is not None and outcomes.final is not None:
            self._note_expired(task, outcomes.final)
            self._publish_again(outcomes, outcomes.final, partition, [delivery])
            return
        self._trail.received(decision, partition, offset, signature.id if signature else "")
        self._by_id[decision.id] = task
        self._queue(task)
        if entry is not None and entry.outcome is not None and not _claimed_by_others(entry.outcome, outcomes):
            task.last, task.step = entry.outcome, "ending"  # it was never published
            self._note_expired(task, entry.outcome)
            return
        sent = entry is not None and entry.step == "sent"
        if self._judge.live and (sent or (outcomes is not None and outcomes.claims)):
            _resume(task, outcomes)
        elif moved:
            self._carrier.refuse_moved(task)
        else:
            self._carrier.arrive(task)
        if task.last is not None:
            self._note_expired(task, task.last)
        else:
            self._replace(task)

    def _queue(self, task: Task) -> None:
        """Append a task to the queue of its target; a rescue goes before waiting tasks that are not rescues."""
        lane = self._lanes.setdefault(_queue_of(task.decision), [])
        at = len(lane)
        if urgency_of(task.decision) == "rescue":
            while at and lane[at - 1].step == "waiting" and urgency_of(lane[at - 1].decision) != "rescue":
                at -= 1
        lane.insert(at, task)

    def _note_expired(self, task: Task, final: Outcome) -> None:
        """Remember an expired decision: decisions made before its expiry was known may have relied on it."""
        if final.code == "expired" and isinstance(task.decision, SetsReplicas):
            self._expired[task.subject] = _Expired(final.time_ns, (task.decision.replicas_before, *task.assumed))

    def _add_assumed(self, task: Task) -> None:
        """Add what expired decisions on the subject assumed, if the author could not know that they had expired."""
        expired = self._expired.get(task.subject)
        if expired is None:
            return
        if task.decision.time_ns > expired.time_ns:
            del self._expired[task.subject]
        else:
            task.assumed = tuple(dict.fromkeys((*task.assumed, *expired.assumed)))

    def _replace(self, newer: Task) -> None:
        """Let a valid decision replace those on its subject that were not submitted yet, once it is accepted itself."""
        for older in self._lanes[_queue_of(newer.decision)]:
            if older is newer or older.subject != newer.subject or older.submitted or older.step == "ending":
                continue
            if isinstance(older.decision, SetsReplicas):
                assumed = (*newer.assumed, older.decision.replicas_before, *older.assumed)
                newer.assumed = tuple(dict.fromkeys(assumed))
            if older.step == "waiting" and not older.maybe_submitted and older.aside is None:
                self._carrier.reconsider(older)

    def _stays_aside(self, task: Task) -> bool:
        """Whether a task that was set aside still waits; it ends once a newer one is submitted or done."""
        newer = [other for other in self._on_subject(task) if other.decision.time_ns > task.decision.time_ns]
        if newer and not any(other.submitted for other in newer):
            return True
        self._carrier.supersede(task)
        return False

    def _let_go_on(self, refused: Task) -> None:
        """Let the decision before a refused one go on, if it does a part of what the refused one requested."""
        if refused.last is None or refused.last.status != "refused":
            return
        older = [
            other
            for other in self._on_subject(refused)
            if other.decision.time_ns < refused.decision.time_ns and not other.submitted and other.step != "ending"
        ]
        last = max(older, key=lambda other: other.decision.time_ns, default=None)
        if last is not None and last.decision.is_step_to(refused.decision):
            self._carrier.go_on(last, refused.decision)

    def _on_subject(self, task: Task) -> list[Task]:
        """The other tasks on a task's subject."""
        lane = self._lanes[_queue_of(task.decision)]
        return [other for other in lane if other is not task and other.subject == task.subject]

    def elsewhere(self, decision: str, partition: int) -> int | None:
        """Another partition in which a decision is under way; ``None`` if there is none."""
        known = self._by_id.get(decision)
        return None if known is None or known.partition == partition else known.partition

    def follows(self, decision: str) -> bool:
        """Whether a decision is under way or waits here; thread-safe."""
        return decision in self._by_id

    def step(self, *, start_new: bool = True) -> None:
        """Advance all tasks as far as possible; without ``start_new``, only tasks that were submitted."""
        under_way = sum(task.step != "waiting" for task in self._by_id.values())
        for target in list(self._lanes):
            lane = self._lanes[target]
            ahead: list[Task] = []
            for task in list(lane):
                if task.aside is not None and self._stays_aside(task):
                    continue
                waits = task.step == "waiting"
                bought = bool(pool_of(task.decision.workload))
                free = all(other.submitted and (bought or other.subject == task.subject) for other in ahead)
                if not start_new and not (task.submitted or task.step == "submitting"):
                    pass
                elif not waits or (free and under_way < _most_under_way(task.decision)):
                    was_submitted = task.submitted
                    self._carrier.step(task)
                    under_way += waits and task.step != "waiting"
                    if task.submitted and not was_submitted:
                        _overtake(ahead, task)
                if task.step == "ending":
                    self._finish(task)
                if task.aside is None and (task.step != "ending" or task in lane):
                    ahead.append(task)

    def wait_s(self) -> float:
        """Seconds that the loop may wait for the next message."""
        tasks = self._by_id.values()
        if any(self._carrier.busy(task) for task in tasks):
            return _SOON_S
        return _LATER_S if tasks else _IDLE_S

    @property
    def waiting(self) -> int:
        """Number of decisions without a final outcome."""
        return len(self._by_id)

    def calling(self) -> bool:
        """Whether a submission is waiting for the platform's answer."""
        return any(task.step == "submitting" for task in self._by_id.values())

    def forget(self, partition: int) -> None:
        """Drop the decisions of a partition; its new owner finds them in the log."""
        for task in [t for t in self._by_id.values() if t.partition == partition]:
            task.dropped = True  # its call may still wait for a thread
            self._remove(task)

    def _finish(self, task: Task) -> None:
        if task.last is None or not self._session.lease.valid():
            return
        self._note_expired(task, task.last)
        outcomes = self._session.log.index.outcomes_of(task.partition, task.decision.id)
        if outcomes is not None and outcomes.final is not None:  # published by another actuator, or by us a moment ago
            self._publish_again(outcomes, outcomes.final, task.partition, task.deliveries)
        else:
            self._report.count(task.last)
            self._publish_final(task.last, task.partition, [delivery.offset for delivery in task.deliveries])
        self._let_go_on(task)
        self._remove(task)

    def _publish_again(
        self, outcomes: DecisionOutcomes, final: Outcome, partition: int, deliveries: list[Delivery]
    ) -> None:
        """Publish the final outcome again for deliveries sent after it; earlier ones have it already."""
        late_offsets = [delivery.offset for delivery in deliveries if delivery.at_ms > outcomes.final_ms]
        for delivery in deliveries:
            if delivery.offset not in late_offsets:
                self._done(partition, delivery.offset)
        if late_offsets:
            self._publish_final(final, partition, late_offsets)

    def _publish_final(self, outcome: Outcome, partition: int, offsets: list[int]) -> None:
        def written(_: int) -> None:
            for offset in offsets:
                self._done(partition, offset)

        self._session.publish(partition, outcome, written)

    def _remove(self, task: Task) -> None:
        del self._by_id[task.decision.id]
        lane = self._lanes[_queue_of(task.decision)]
        lane.remove(task)
        if not lane:
            del self._lanes[_queue_of(task.decision)]


def _most_under_way(decision: AnyDecision) -> int:
    """How many decisions may be under way before this one has to wait."""
    return MOST_UNDER_WAY + (RESCUES_BEYOND if urgency_of(decision) == "rescue" else 0)


def _queue_of(decision: AnyDecision) -> str:
    """Key of a decision's queue; decisions with the same key run one after the other."""
    return f"{decision.cell}/{POOL}" if pool_of(decision.workload) else decision.target


def _resume(task: Task, outcomes: DecisionOutcomes | None) -> None:
    """Continue what another process, or this one before its restart, has claimed."""
    task.maybe_submitted = True
    if outcomes is None:
        return
    task.skip = len(outcomes.claims)
    latest = outcomes.running or outcomes.accepted
    if latest is not None:
        task.observed = latest.before
    if outcomes.running is not None and outcomes.running.operation:
        expected = outcomes.running.expected or SubjectState()
        task.handle = Handle(operation=outcomes.running.operation, expected=expected, answer=outcomes.running.answer)


def _claimed_by_others(outcome: Outcome, outcomes: DecisionOutcomes | None) -> bool:
    """Whether an unpublished refusal is void because another actuator has claimed the decision since."""
    claims = [] if outcomes is None else outcomes.claims
    return outcome.status == "refused" and any(claim != outcome.actuator for claim in claims)


def _overtake(ahead: list[Task], newer: Task) -> None:
    for task in ahead:
        if task.submitted and task.subject == newer.subject:
            task.overtaken, task.due_s = newer.decision.id, 0.0
