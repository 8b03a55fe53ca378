"""Decisions under way: many targets at a time, one operation a target, and the newest word about a subject wins."""

from collections.abc import Callable
from typing import NamedTuple

from flyball_actuators.audit import Trail
from flyball_actuators.execution.carry_out import Carrier
from flyball_actuators.execution.judge import Judge
from flyball_actuators.execution.task import Asked, Task
from flyball_actuators.guard import subject_of, urgency_of
from flyball_actuators.ledger import Ledger, Page
from flyball_actuators.platforms import Handle, Platforms
from flyball_actuators.report import ActuatorReport
from flyball_actuators.session import Session
from flyball_contracts.records import AnyDecision, Check, Migrate, Outcome, SubjectState
from flyball_contracts.records.pools import PREFIX, pool_of

MOST_UNDER_WAY = 64
MOST_WAITING = 512
_SOON_S = 0.002
_LATER_S = 0.05
_IDLE_S = 0.2


class _Expired(NamedTuple):
    """A decision came to nothing at ``time_ns``; ``assumed`` are the replicas from which it and those before started.

    What was decided until then could not know that.
    """

    time_ns: int
    assumed: tuple[int, ...]


class Lanes:
    """A queue for each target; of each, the first task is under way, and one about the same subject may overtake it.

    All pools of a cell are in one queue: none is bought for before the platform has been told of those ahead, so that
    what it then shows of their cost is all there is.
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
        self, decision: AnyDecision, partition: int, offset: int, at_ms: int, key: str = "", *, moved: bool = False
    ) -> None:
        """Take a decision that was read; ``at_ms`` is when it was sent, and ``key`` has signed it.

        One that has ``moved`` came before its cell got another partition: it is ended, and never begun. What had its
        last word is answered with that, to whoever asked later than it was said.
        """
        self._judge.saw(decision)
        known = self._by_id.get(decision.id)
        asked = Asked(offset, at_ms)
        if known is not None:
            known.asked.append(asked)
            return
        page = self._session.log.book.page(partition, decision.id)
        entry = self._ledger.get(decision.id)
        task = Task(decision, partition, [asked], self._platforms.of(decision), subject_of(decision), moved=moved)
        self._stand_in(task)
        if page is not None and page.final is not None:
            self._came_to_nothing(task, page.final)
            self._repeat(page, page.final, partition, [asked])
            return
        self._by_id[decision.id] = task
        self._trail.received(decision, partition, offset, key)
        self._queue(task)
        if entry is not None and entry.outcome is not None and not _left_to_others(entry.outcome, page):
            task.last, task.step = entry.outcome, "ending"  # it was never heard
            self._came_to_nothing(task, entry.outcome)
            return
        sent = entry is not None and entry.step == "sent"
        if self._judge.live and (sent or (page is not None and page.claims)):
            _inherit(task, page)
        else:
            self._carrier.arrive(task)
        if task.last is not None:
            self._came_to_nothing(task, task.last)
        else:
            self._replace(task)

    def _queue(self, task: Task) -> None:
        """Put a task behind those of its target; a rescue goes before all that wait but rescues."""
        lane = self._lanes.setdefault(_queue_of(task.decision), [])
        at = len(lane)
        if urgency_of(task.decision) == "rescue":
            while at and lane[at - 1].step == "waiting" and urgency_of(lane[at - 1].decision) != "rescue":
                at -= 1
        lane.insert(at, task)

    def _came_to_nothing(self, task: Task, final: Outcome) -> None:
        """Remember what expired: decisions that were made until it was known may have counted on it."""
        if final.code == "expired" and not isinstance(task.decision, Migrate | Check):
            self._expired[task.subject] = _Expired(final.time_ns, (task.decision.replicas_before, *task.assumed))

    def _stand_in(self, task: Task) -> None:
        """Let a decision stand for those about its subject that had expired, unknown to who made it."""
        expired = self._expired.get(task.subject)
        if expired is None:
            return
        if task.decision.time_ns > expired.time_ns:
            del self._expired[task.subject]
        else:
            task.assumed = tuple(dict.fromkeys((*task.assumed, *expired.assumed)))

    def _replace(self, newer: Task) -> None:
        """Let a sound decision take the place of those about its subject that were not submitted yet."""
        for older in self._lanes[_queue_of(newer.decision)]:
            if older is newer or older.subject != newer.subject or older.submitted or older.step == "ending":
                continue
            if not isinstance(older.decision, Migrate | Check):
                newer.assumed += (older.decision.replicas_before, *older.assumed)
            if older.step == "waiting" and not older.look:
                self._carrier.reconsider(older)

    def step(self, *, anew: bool = True) -> None:
        """Carry everything on as far as it goes; without ``anew`` only what was submitted."""
        under_way = sum(task.step != "waiting" for task in self._by_id.values())
        for target in list(self._lanes):
            lane = self._lanes[target]
            ahead: list[Task] = []
            for task in list(lane):
                waits = task.step == "waiting"
                bought = bool(pool_of(task.decision.workload))
                free = all(other.submitted and (bought or other.subject == task.subject) for other in ahead)
                if not anew and not (task.submitted or task.step == "submitting"):
                    pass
                elif not waits or (free and under_way < MOST_UNDER_WAY):
                    was_submitted = task.submitted
                    self._carrier.step(task)
                    under_way += waits and task.step != "waiting"
                    if task.submitted and not was_submitted:
                        _overtake(ahead, task)
                if task.step == "ending":
                    self._finish(task)
                if task.step != "ending" or task in lane:
                    ahead.append(task)

    def wait_s(self) -> float:
        """How long the loop may wait for the next message."""
        tasks = self._by_id.values()
        if any(self._carrier.busy(task) for task in tasks):
            return _SOON_S
        return _LATER_S if tasks else _IDLE_S

    @property
    def waiting(self) -> int:
        """Decisions without a last word."""
        return len(self._by_id)

    def calling(self) -> bool:
        """Whether a call of the platform has no answer yet."""
        return any(task.step == "submitting" for task in self._by_id.values())

    def forget(self, partition: int) -> None:
        """Leave a partition's decisions to its new owner, who finds them in the log."""
        for task in [t for t in self._by_id.values() if t.partition == partition]:
            task.dropped = True  # its call may still wait for a thread
            self._remove(task)

    def _finish(self, task: Task) -> None:
        if task.last is None or not self._session.lease.valid():
            return
        self._came_to_nothing(task, task.last)
        page = self._session.log.book.page(task.partition, task.decision.id)
        if page is not None and page.final is not None:  # somebody else said it first, or we did a moment ago
            self._repeat(page, page.final, task.partition, task.asked)
        else:
            self._answer(task.last, task.partition, [asked.offset for asked in task.asked])
        self._remove(task)

    def _repeat(self, page: Page, final: Outcome, partition: int, asked: list[Asked]) -> None:
        """Say the last word again to who asked later than it was said; the others have it."""
        later = [ask.offset for ask in asked if ask.at_ms > page.final_ms]
        for ask in asked:
            if ask.offset not in later:
                self._done(partition, ask.offset)
        if later:
            self._answer(final, partition, later)

    def _answer(self, outcome: Outcome, partition: int, offsets: list[int]) -> None:
        self._report.count(outcome)

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


def _queue_of(decision: AnyDecision) -> str:
    """Decisions with the same one are carried out one after the other."""
    return f"{decision.cell}/{PREFIX}" if pool_of(decision.workload) else decision.target


def _inherit(task: Task, page: Page | None) -> None:
    """Go on with what another process, or this one before its restart, has claimed."""
    task.look = True
    if page is None:
        return
    task.skip = len(page.claims)
    latest = page.running or page.accepted
    if latest is not None:
        task.observed = latest.before
    if page.running is not None and page.running.operation:
        expected = page.running.expected or SubjectState()
        task.handle = Handle(operation=page.running.operation, expected=expected, answer=page.running.answer)


def _left_to_others(outcome: Outcome, page: Page | None) -> bool:
    """Whether a refusal that nobody received is void, because another actuator has claimed the decision meanwhile."""
    claims = [] if page is None else page.claims
    return outcome.status == "refused" and any(claim != outcome.actuator for claim in claims)


def _overtake(ahead: list[Task], newer: Task) -> None:
    for task in ahead:
        if task.submitted and task.subject == newer.subject:
            task.overtaken, task.due_s = newer.decision.id, 0.0
