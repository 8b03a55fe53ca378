"""Carries one decision from the guard to its final outcome, step by step; platform calls run in other threads.

The safe order: observe, check, claim, read the claim back, record it in the ledger, check everything once more, submit,
and poll until the effect shows. With several actuators each decision is still carried out at most once:

- The outcomes topic is the shared ledger. An actuator claims a decision by outcome ``accepted``, and carries it out
  only if, once it has read its claim back, that claim is the first in the log; so no other actuator acts on it.
- The new owner of a partition knows all claims before it acts (:mod:`flyball_actuators.ledger.outcome_log`). A claim
  without a final outcome, by an actuator that is gone, is resolved by observation: the operation that the log names or,
  if the platform tracks operations, the operation of the decision's id. A decision that was certainly never submitted
  is carried out; if that cannot be determined, it has failed with an unknown outcome.
- A process that was suspended for too long neither acts nor publishes until the group has confirmed its membership
  (:mod:`flyball_actuators.lease`).
- The ledger file records what the process did, so a restarted process knows it even if the broker has lost its log.

A freeze may begin while an operation prepares work to go: until some of it has gone, a platform that is able to takes
the operation back.

A platform that does not answer gets few calls (:mod:`flyball_actuators.execution.breaker`). Decisions that wait for it
are refused once they have expired, and nothing is submitted before it has answered an observation.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import msgspec

from flyball_actuators.audit import Stage, Trail
from flyball_actuators.execution.breaker import Breaker
from flyball_actuators.execution.breakers import Breakers
from flyball_actuators.execution.effect import effect_of, effect_of_pool
from flyball_actuators.execution.jitter import longer
from flyball_actuators.execution.judge import Judge
from flyball_actuators.execution.task import OutcomeFactory, Step, Task
from flyball_actuators.guard import Verdict, passed, pool_in
from flyball_actuators.ledger import Ledger, NotWrittenError
from flyball_actuators.platforms import (
    Abandoning,
    Failed,
    Handle,
    Platform,
    PlatformError,
    Rejected,
    Running,
    Served,
    TakingBack,
)
from flyball_actuators.platforms.calls import StoppedError, recording_calls
from flyball_actuators.session import Session
from flyball_contracts.records import AnyDecision, Effect, Outcome, SubjectState
from flyball_contracts.records.commands.outcomes import UNKNOWN

_LOG = logging.getLogger(__name__)
FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 10.0
GIVE_UP_S = 300.0
STOPPED_WAIT_S = 1.0
CALLS_AT_ONCE = 8
POLL_SHARE = 0.05
"""Long operations are polled less often: after this share of the time they have taken so far."""
MOST_CONFLICTS = 3
MOVED = Verdict(
    "refused",
    "stale",
    "its cell has another partition: partitions were added, or whoever sent it does not place keys by murmur2 "
    "(partitioner murmur2_random); it was not started; decide again",
)


class Carrier:
    """Advances tasks. Everything except platform calls happens in the thread that calls :meth:`step`."""

    def __init__(
        self,
        ledger: Ledger,
        trail: Trail,
        session: Session,
        judge: Judge,
        outcomes: OutcomeFactory,
        monotonic: Callable[[], float],
        pool: Callable[[str], Executor] = lambda name: ThreadPoolExecutor(CALLS_AT_ONCE, name),
    ) -> None:
        self._judge = judge
        self._ledger = ledger
        self._trail = trail
        self._session = session
        self._outcomes = outcomes
        self._monotonic = monotonic
        self._pool = pool
        self._pools: dict[int, Executor] = {}
        self.breakers = Breakers(session.instance, monotonic)

    def arrive(self, task: Task) -> None:
        """Check a new decision without observing the platform; a refusal ends it."""
        verdict = self._judge.check(task.decision, task.signature)
        if verdict.code == "unknown_target":
            self._session.refresh()
            verdict = self._judge.check(task.decision, task.signature)
        if verdict.status != "accepted":
            self._trail.judged(task.decision, "arrival", verdict, passed(verdict, "arrival"))
            self._refuse(task, verdict)
        elif isinstance(task.served, Rejected):
            self._refuse(task, Verdict("refused", task.served.code, task.served.detail))

    def refuse_moved(self, task: Task) -> None:
        """End an unclaimed decision that is in a partition which its cell no longer uses."""
        self._trail.judged(task.decision, "arrival", MOVED, ())
        self._refuse(task, MOVED)

    def reconsider(self, task: Task) -> bool:
        """End a waiting task that has expired, or set it aside for a newer one; return whether it did either."""
        verdict = self._judge.still(task.decision)
        if verdict is None:
            return False
        self._object(task, verdict, "claimed")
        return True

    def go_on(self, task: Task, refused: AnyDecision) -> None:
        """Resume a task that was set aside: the newer decision that was to replace it is refused."""
        if self._judge.go_on(task.decision, refused):
            task.aside = None

    def supersede(self, task: Task) -> None:
        """End a task that was set aside: a newer decision has replaced it."""
        if task.aside is not None and task.step != "ending":
            self._refuse(task, task.aside)

    def busy(self, task: Task) -> bool:
        """Whether the task waits for something that takes milliseconds."""
        return task.step in ("finding", "observing", "planning", "claimed", "submitting", "polling")

    def step(self, task: Task) -> None:
        """Advance a task as far as possible without waiting."""
        before = None
        while before != task.step and task.step != "ending":
            before = task.step
            getattr(self, f"_{task.step}")(task)

    def close(self) -> None:
        """Shut the thread pools down without waiting for calls in progress."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def _waiting(self, task: Task) -> None:
        if self._monotonic() < task.due_s or task.aside is not None:
            return
        if isinstance(task.served, Rejected):
            self._fail(task, f"{UNKNOWN}: it may be under way, but {task.served.detail}")
        elif not task.maybe_submitted:
            if self._admitted(task, "observing"):
                self._call(task, self._breaker(task).look, task.served.platform.observe, task.decision)
        elif task.handle is not None:
            task.step = "running"
        elif task.served.platform.capabilities.tracks:
            if self._admitted(task, "finding"):
                self._call(task, self._breaker(task).look, task.served.platform.find, task.decision, task.observed)
        else:
            cause = task.problem or "the actuator that claimed it ended before its final outcome"
            self._fail(task, f"{UNKNOWN}: {cause}; look at the platform, it is not sent again")

    def _finding(self, task: Task) -> None:
        found, ended = self._result(task)
        if not ended:
            return
        if isinstance(found, Handle):
            task.handle, task.due_s = found, 0.0
            self._report(task, "running", answer=found.answer)
            task.step = "running"
        elif found is None:  # it was never submitted
            task.maybe_submitted = False
            if task.moved:
                self._refuse(task, MOVED)
            elif not self.reconsider(task):
                task.step = "waiting"

    def _observing(self, task: Task) -> None:
        observed, ended = self._result(task)
        if not ended:
            return
        if isinstance(observed, Rejected):
            self._refuse(task, Verdict("refused", observed.code, observed.detail))
            return
        task.observed = observed
        decision = task.decision
        verdict, grant = self._judge.authorise(decision, observed, task.assumed, task.signature)
        if grant is None:
            self._object(task, verdict, "observed")
            return
        self._trail.judged(decision, "observed", verdict, passed(verdict, "observed"))
        task.grant = grant
        self._ledger.grant(decision, grant)
        if self._judge.live:
            task.step = "claiming" if task.claim is None else "claimed"
        elif self._breaker(task).closed:
            platform = self._platform(task)
            self._trail.submitting(decision, platform.name, observed, dry_run=True)
            self._call(task, self._breaker(task).look, platform.submit, _granted(task), observed, dry_run=True)
            task.step = "planning"
        else:
            task.step = "waiting"

    def _planning(self, task: Task) -> None:
        planned, ended = self._result(task)
        if not ended:
            return
        if isinstance(planned, Rejected):
            if planned.code == "conflict" and task.conflicts < MOST_CONFLICTS:
                self._retry_after_conflict(task)
            else:
                self._refuse(task, Verdict("refused", planned.code, planned.detail), planned.unsuitable_nodes)
            return
        task.handle = planned
        self._end(
            task, self._outcomes.outcome(task, "planned", self._judge.now_ns(task.decision), answer=planned.answer)
        )

    def _claiming(self, task: Task) -> None:
        if not self._session.lease.valid():
            return

        def written(offset: int) -> None:
            task.claim = offset

        expected = task.decision.expected_state(task.observed or SubjectState())
        accepted = self._outcomes.outcome(task, "accepted", self._judge.now_ns(task.decision), expected=expected)
        self._session.publish(task.partition, self._trail.published(accepted), written)
        task.step = "claimed"

    def _claimed(self, task: Task) -> None:
        log = self._session.log
        if task.claim is None or not log.read(task.partition, task.claim) or not self._session.lease.valid():
            return
        outcomes = log.index.outcomes_of(task.partition, task.decision.id)
        if outcomes is not None and outcomes.final is not None:
            task.last, task.step = outcomes.final, "ending"
            return
        claims = [] if outcomes is None else outcomes.claims[task.skip :]
        if not claims or claims[0] != self._session.instance:
            _LOG.warning("decision %s was claimed by %s first; it is left to it", task.decision.id, claims[:1])
            task.skip += len(claims)
            task.claim, task.maybe_submitted, task.step = None, True, "waiting"
            task.due_s = self._monotonic() + 2 * self._session.lease.length_s
            return
        if self.reconsider(task):
            return
        if not self._breaker(task).closed:  # its state may have changed by the time that it answers
            task.maybe_submitted, task.step = False, "waiting"
            return
        platform = self._platform(task)
        self._ledger.send(task.decision)
        self._trail.submitting(task.decision, platform.name, task.observed, dry_run=False)
        self._call(task, self._submit, task, platform, task.observed)
        task.step = "submitting"

    def _submit(self, task: Task, platform: Platform, observed: SubjectState) -> Handle | Rejected | Verdict | None:
        """Submit, in another thread, unless the guard now refuses it: a disk or a queue may have taken long.

        Returns ``None`` if this process was suspended for too long on the way there, if another actuator now owns the
        decision (a renewed lease does not bring back what the lapsed one lost), or if the platform no longer answers.
        """
        if task.dropped:
            return None
        verdict, grant = self._judge.authorise_again(task.decision, observed, task.assumed, task.signature)
        if grant is None:
            return verdict
        task.grant = grant
        self._trail.judged(task.decision, "last", verdict, passed(verdict, "last"))
        breaker = self._breaker(task)
        if task.dropped or not self._session.lease.valid() or not breaker.closed:
            return None
        return breaker.call(platform.submit, _granted(task), observed, dry_run=False)

    def _submitting(self, task: Task) -> None:
        taken, ended = self._result(task)
        if not ended:
            return
        if taken is None:
            self._ledger.withdraw(task.decision)
            task.maybe_submitted, task.step = False, "waiting"
        elif isinstance(taken, Verdict):
            self._object(task, taken, "last")
        elif not isinstance(taken, Rejected):
            task.handle, task.due_s = taken, 0.0
            self._report(task, "running", answer=taken.answer)
            task.step = "running"
        elif taken.code == "conflict" and task.conflicts < MOST_CONFLICTS:
            self._retry_after_conflict(task)
        else:
            self._refuse(task, Verdict("refused", taken.code, taken.detail), taken.unsuitable_nodes)

    def _retry_after_conflict(self, task: Task) -> None:
        """Observe and check again: something else changed the subject meanwhile."""
        task.conflicts += 1
        task.maybe_submitted, task.step = False, "waiting"

    def _running(self, task: Task) -> None:
        if self._monotonic() < task.due_s or task.handle is None or not self._admitted(task, "polling"):
            return
        platform = self._platform(task)
        task.abandoned = bool(task.overtaken)
        task.objection = self._objection(task)
        ask: Callable[[Handle], Any] = platform.poll
        if task.abandoned and isinstance(platform, Abandoning):
            ask = platform.abandon
        elif task.objection is not None and isinstance(platform, TakingBack):
            ask = platform.take_back
        self._call(task, self._breaker(task).look, ask, task.handle)

    def _polling(self, task: Task) -> None:
        progress, ended = self._result(task)
        if not ended:
            return
        if progress is None:
            task.gone, task.objection, task.step = True, None, "running"
        elif isinstance(progress, Running) and not task.abandoned:
            assert isinstance(task.served, Served)
            now_s = self._monotonic()
            task.polled_s = now_s if task.polled_s is None else task.polled_s
            rests_s = max(task.served.poll_s, min(POLL_SHARE * (now_s - task.polled_s), LONGEST_WAIT_S))
            task.due_s, task.step = now_s + (0.0 if task.overtaken else rests_s), "running"
        elif isinstance(progress, Failed) and task.objection is not None:
            self._trail.judged(task.decision, "claimed", task.objection, passed(task.objection, "claimed"))
            self._refuse(task, task.objection._replace(detail=f"{task.objection.detail}; {progress.answer}"))
        else:
            shown = None if isinstance(progress, Running) else progress.observed
            effect = None if shown is None else self._effect(task, shown)
            self._end(task, self._outcomes.last(task, progress, self._judge.now_ns(task.decision), effect))

    def _effect(self, task: Task, observed: SubjectState) -> Effect | None:
        if task.observed is None:
            return None
        decision = task.decision
        pool = pool_in(self._judge.config, decision)
        if pool is not None:
            return effect_of_pool(task.observed, observed, pool)
        spec = self._judge.view().workloads.get(decision.workload)
        return effect_of(task.observed, observed, spec, self._session.usd_per_gpu_hour(decision))

    def _result(self, task: Task) -> tuple[Any, bool]:
        """Result of a call, and whether it has ended; handles failed calls."""
        call = task.call
        if call is None or not call.done():
            return None, False
        task.call = None
        try:
            answer = call.result()
        except StoppedError as stop:
            self._call_stopped(task, str(stop))
        except PlatformError as error:
            self._call_failed(task, str(error))
        except NotWrittenError:  # the call may have been made; after a restart, the platform shows whether it was
            raise
        except Exception as error:
            _LOG.exception("platform %s failed on decision %s", self._platform(task).name, task.decision.id)
            self._call_failed(task, f"{type(error).__name__}: {error}")
        else:
            task.failing_s = None
            return answer, True
        return None, False

    def _admitted(self, task: Task, step: Step) -> bool:
        """Go to a step that calls the platform; if its breaker is open, wait as after an unanswered call instead."""
        task.step, breaker = step, self._breaker(task)
        if breaker.admits:
            return True
        self._call_failed(task, breaker.why)
        return False

    def _call_stopped(self, task: Task, why: str) -> None:
        """Wait, however long the stop lasts, and go on with the step that was not done."""
        if task.problem != why:
            _LOG.warning("%s %s: nothing is continued: %s", type(task.decision).__name__, task.decision.target, why)
        task.problem, task.failing_s = why, None
        task.due_s = self._monotonic() + STOPPED_WAIT_S
        if task.step == "submitting":  # earlier calls of the same submission may have been made
            task.maybe_submitted = True
        task.step = "running" if task.step == "polling" else "waiting"

    def _call_failed(self, task: Task, problem: str) -> None:
        now_s = self._monotonic()
        if task.failing_s is None:
            task.failing_s = now_s
            _LOG.warning("%s %s: %s; trying again", type(task.decision).__name__, task.decision.target, problem)
        lasted_s = now_s - task.failing_s
        wait_s = min(max(FIRST_WAIT_S, lasted_s), LONGEST_WAIT_S)
        task.due_s = now_s + longer(wait_s, task.decision.id, self._session.instance)
        task.problem = problem
        if task.step == "submitting":
            task.maybe_submitted, task.step = True, "waiting"
        elif task.step in ("observing", "planning"):
            verdict = self._judge.still(task.decision)
            if verdict is None:
                task.maybe_submitted, task.step = False, "waiting"
            elif verdict.code == "expired":
                self._refuse(task, Verdict("refused", "platform", f"it did not answer in time: {problem}"))
            else:
                self._object(task, verdict, "claimed")
        elif lasted_s >= GIVE_UP_S:
            self._fail(task, f"{UNKNOWN}: no answer for {lasted_s:.0f} s: {problem}; look at the platform")
        else:
            task.step = "waiting" if task.step == "finding" else "running"

    def _object(self, task: Task, verdict: Verdict, stage: Stage) -> None:
        """End a decision that the guard refuses; if a newer one may replace it, set it aside."""
        self._trail.judged(task.decision, stage, verdict, passed(verdict, stage))
        if verdict.status != "superseded":
            self._refuse(task, verdict)
            return
        entry = self._ledger.get(task.decision.id)
        if entry is not None and entry.step == "sent":
            self._ledger.withdraw(task.decision)
        self._judge.forgive(task.decision)
        task.maybe_submitted, task.step = False, "waiting"
        if self._judge.still(task.decision) is not None:  # otherwise the newer one was refused meanwhile
            task.aside = verdict

    def _refuse(self, task: Task, verdict: Verdict, unsuitable_nodes: tuple[str, ...] = ()) -> None:
        """End a decision that changed nothing; it counts toward no limit."""
        self._judge.forgive(task.decision)
        now_ns = self._judge.now_ns(task.decision)
        outcome = self._outcomes.outcome(task, verdict.status, now_ns, code=verdict.code, detail=verdict.detail)
        self._end(task, msgspec.structs.replace(outcome, allowed=verdict.allowed, unsuitable_nodes=unsuitable_nodes))

    def _fail(self, task: Task, detail: str) -> None:
        self._end(task, self._outcomes.outcome(task, "failed", self._judge.now_ns(task.decision), detail=detail))

    def _end(self, task: Task, outcome: Outcome) -> None:
        outcome = self._trail.published(outcome)
        self._ledger.finish(task.decision, outcome)
        task.last, task.step = outcome, "ending"

    def _report(self, task: Task, status: Any, **fields: Any) -> None:
        outcome = self._outcomes.outcome(task, status, self._judge.now_ns(task.decision), **fields)
        self._session.publish(task.partition, self._trail.published(outcome))

    def _call(self, task: Task, function: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        platform, decision = self._platform(task), task.decision

        def made() -> Any:
            with recording_calls(
                lambda call: self._trail.called(decision.id, platform.name, call), lambda: self._why_stopped(task)
            ):
                return function(*arguments, **named)

        pool = self._pools.get(id(platform))
        if pool is None:
            pool = self._pools[id(platform)] = self._pool(f"platform-{platform.name}")
        task.call = pool.submit(made)

    def _why_stopped(self, task: Task) -> str:
        """Why no call for a task may change anything now; empty if it may."""
        if task.dropped or not self._session.lease.valid():
            return "another actuator may have its partition: this process was suspended, or gave it up"
        stopped = self._judge.stopped(task.decision.cell)
        if stopped or task.step != "polling" or task.objection is not None:  # the reason why it is taken back
            return stopped
        objection = self._objection(task)
        return "" if objection is None else objection.detail

    def _objection(self, task: Task) -> Verdict | None:
        """Why an operation should be taken back; ``None`` if it should not or cannot be. Thread-safe."""
        if task.abandoned or task.gone or not isinstance(self._platform(task), TakingBack):
            return None
        return self._judge.under_way(task.decision)

    def _breaker(self, task: Task) -> Breaker:
        assert isinstance(task.served, Served)
        return self.breakers.of(task.served)

    def _platform(self, task: Task) -> Platform:
        assert isinstance(task.served, Served)
        return task.served.platform


def _granted(task: Task) -> AnyDecision:
    """The granted part of a decision, as it is submitted to the platform."""
    return task.decision if task.grant is None else task.decision.part(task.grant.taken)
