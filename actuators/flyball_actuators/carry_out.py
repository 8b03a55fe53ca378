"""One decision from the guard to its last word: the part of the service that knows no Kafka."""

import logging
from collections.abc import Callable, Iterator

from flyball_actuators.drivers import Answer, Driver
from flyball_actuators.guard import Guard, GuardState, Verdict, World
from flyball_actuators.kill_switch import stop_reason
from flyball_actuators.ledger import Ledger
from flyball_contracts.config import ActuatorConfig
from flyball_contracts.ids import record_id
from flyball_contracts.records import AnyDecision, Outcome
from flyball_contracts.records.outcomes import OutcomeStatus, RefusalCode

_LOG = logging.getLogger(__name__)
UNKNOWN = "unknown outcome"


class Executor:
    """Guard, ledger and driver in the one order that is safe."""

    def __init__(
        self,
        config: ActuatorConfig,
        driver: Driver,
        ledger: Ledger,
        clock: Callable[[], int],
    ) -> None:
        self._config = config
        self._driver = driver
        self._ledger = ledger
        self._wall = clock
        self._guard = Guard(config)
        self._state = GuardState.restored(ledger.grants())
        self._event_ns: dict[str, int] = {}

    def carry_out(
        self, decision: AnyDecision, world: Callable[[str], World], refresh: Callable[[], None]
    ) -> Iterator[Outcome]:
        """Judge a decision, carry it out when the guard lets it, and yield its outcomes.

        ``world`` gives the world for a reason to stop; ``refresh`` brings it up to date, and is called before a
        target counts as unknown. Take the outcomes as they come: the first may be sent while the driver works.
        """
        self._event_ns[decision.cell] = max(decision.time_ns, self._event_ns.get(decision.cell, 0))
        before = self._ledger.get(decision.id)
        if before is not None and before.step == "sent" and not self._driver.repeatable:
            yield self._finish(decision, self._outcome(decision, "failed", detail=_unknown("a crash")))
            return
        verdict = self._authorise(decision, world)
        if verdict.code == "unknown_target":
            refresh()
            verdict = self._authorise(decision, world)
        if verdict.status == "accepted":
            yield from self._apply(decision)
            return
        outcome = self._outcome(decision, verdict.status, code=verdict.code, detail=verdict.detail)
        if verdict.code != "duplicate":
            yield self._finish(decision, outcome)
            return
        yield outcome
        if before is not None and before.outcome is not None and decision.id in self._ledger.restored:
            yield before.outcome  # the run that carried it out may have died before it could say so

    def _authorise(self, decision: AnyDecision, world: Callable[[str], World]) -> Verdict:
        view = world(stop_reason(self._config.kill_switch))
        self._state, verdict = self._guard.authorise(self._state, decision, self._now_ns(decision), view)
        return verdict

    def _apply(self, decision: AnyDecision) -> Iterator[Outcome]:
        self._ledger.plan(decision, self._state.grants[decision.cell][-1])
        yield self._outcome(decision, "accepted")
        self._ledger.send(decision)
        try:
            answer = self._driver.apply(decision)
        except Exception as error:
            _LOG.exception("driver %s failed on decision %s", self._driver.name, decision.id)
            answer = Answer("failed", _unknown(f"{type(error).__name__}: {error}"))
        after_s = max(0, self._now_ns(decision) - decision.time_ns) / 1e9
        yield self._finish(decision, self._outcome(decision, answer.status, answer=answer.text, effect_after_s=after_s))

    def _finish(self, decision: AnyDecision, outcome: Outcome) -> Outcome:
        self._ledger.finish(decision, outcome)
        return outcome

    def _now_ns(self, decision: AnyDecision) -> int:
        return self._event_ns[decision.cell] if self._config.clock == "event" else self._wall()

    def _outcome(
        self,
        decision: AnyDecision,
        status: OutcomeStatus,
        *,
        code: RefusalCode = "",
        detail: str = "",
        answer: str = "",
        effect_after_s: float | None = None,
    ) -> Outcome:
        return Outcome(
            id=record_id("Outcome", decision.id, status, code),
            decision=decision.id,
            type=type(decision).__name__,  # type: ignore[arg-type]
            target=decision.target,
            cell=decision.cell,
            workload=decision.workload,
            time_ns=self._now_ns(decision),
            status=status,
            mode=self._config.mode,
            driver=self._driver.name,
            code=code,
            detail=detail,
            answer=answer,
            effect_after_s=effect_after_s,
        )


def _unknown(cause: str) -> str:
    return f"{UNKNOWN}: {cause} while the driver was called; look at the platform, it is not sent again"
