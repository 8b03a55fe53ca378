"""The guard with its state, the configured clock, and the current world."""

from collections.abc import Callable
from threading import Lock

import msgspec

from flyball_actuators.guard import Grant, Guard, GuardState, Signature, Verdict, World, longest_s
from flyball_actuators.ledger import Ledger
from flyball_actuators.session import Session
from flyball_actuators.world import RecentlyHeld, stop_reason
from flyball_contracts.config import ActuatorConfig
from flyball_contracts.records import AnyDecision, SubjectState


class Judge:
    """Runs the guard. Grants in the ledger count toward the limits; dry runs count for dry runs only.

    Thread-safe: the thread that submits a decision authorises it once more.
    """

    def __init__(
        self,
        config: ActuatorConfig,
        ledger: Ledger,
        session: Session,
        clock: Callable[[], int],
        keeps_to_node: Callable[[AnyDecision], bool],
    ) -> None:
        self.live = config.mode == "live"
        self.config = config
        self._session = session
        self._wall = clock
        self._guard = Guard(config, keeps_to_node)
        self._state = GuardState.restored(ledger.grants(), dry_run=config.mode == "dry_run")
        self._held = RecentlyHeld()
        self._event_ns: dict[str, int] = {}
        self._forgiven: dict[str, int] = {}
        self._turn = Lock()

    def saw(self, decision: AnyDecision) -> None:
        """Advance the event clock of a cell to a decision's time."""
        self._event_ns[decision.cell] = max(decision.time_ns, self._event_ns.get(decision.cell, 0))

    def now_ns(self, decision: AnyDecision) -> int:
        """Now on the configured clock; event time is the time of the cell's newest decision."""
        return self._event_ns[decision.cell] if self.config.clock == "event" else self._wall()

    def view(self) -> World:
        """The current world; reads the kill switch each time."""
        return self._session.world(self._stop_reason())

    def _world(self, now_ns: int) -> World:
        """The world, with what workloads held until shortly ago; the caller must hold ``_turn``."""
        return self._held.added_to(self.view(), now_ns)

    def check(self, decision: AnyDecision, signature: Signature | None) -> Verdict:
        """Check a decision on arrival; grants nothing."""
        with self._turn:
            now_ns = self.now_ns(decision)
            self._state, verdict = self._guard.check(
                self._state, decision, now_ns, self._world(now_ns), signature=signature
            )
        return verdict

    def authorise(
        self,
        decision: AnyDecision,
        observed: SubjectState,
        assumed: tuple[int, ...],
        signature: Signature | None = None,
    ) -> tuple[Verdict, Grant | None]:
        """Check a decision against the observed state; returns a grant if it may be carried out."""
        return self._authorise(decision, observed, assumed, signature)

    def authorise_again(
        self, decision: AnyDecision, observed: SubjectState, assumed: tuple[int, ...], signature: Signature | None
    ) -> tuple[Verdict, Grant | None]:
        """Check an authorised decision right before its call, with all that has arrived about the world until now.

        The new grant replaces the one that it had. The kill switch is read after all waits.
        """
        self._session.read_world()
        return self._authorise(decision, observed, assumed, signature)

    def _authorise(
        self, decision: AnyDecision, observed: SubjectState, assumed: tuple[int, ...], signature: Signature | None
    ) -> tuple[Verdict, Grant | None]:
        with self._turn:
            now_ns = self.now_ns(decision)
            view = self._world(now_ns)
            others = [grant for grant in self._others(decision.cell, now_ns) if grant.decision != decision.id]
            state = self._state.plus(decision.cell, others)
            state, verdict = self._guard.authorise(
                state, decision, now_ns, view, observed, assumed, signature=signature
            )
            self._state = state.less(decision.cell, others)
        return verdict, state.grants[decision.cell][-1] if verdict.status == "accepted" else None

    def _others(self, cell: str, now_ns: int) -> list[Grant]:
        """Grants of other actuators in a cell, from the outcomes; a time ahead of our clock counts as now.

        They are collected each time, because any of them may turn out to have no effect. A decision that this process
        has forgiven does not count, unless another actuator has taken it up since.
        """
        if not self.live:
            return []
        counted = {grant.decision for grant in self._state.grants.get(cell, ())}
        since_ns = now_ns - round(longest_s(self.config) * 1e9)
        self._forgiven = {id_: at_ns for id_, at_ns in self._forgiven.items() if at_ns > since_ns}
        found = self._session.all.index.since(cell, since_ns)
        return [
            msgspec.structs.replace(grant, at_ns=min(grant.at_ns, now_ns))
            for grant in found
            if grant.decision not in counted and grant.at_ns > self._forgiven.get(grant.decision, -1)
        ]

    def still(self, decision: AnyDecision) -> Verdict | None:
        """Why a decision that waits may no longer be carried out; ``None`` if it may."""
        return self._guard.still(self._state, decision, self.now_ns(decision), self.view())

    def under_way(self, decision: AnyDecision) -> Verdict | None:
        """Why a decision that is being carried out should be taken back if nothing has gone yet; ``None`` if not.

        Thread-safe.
        """
        return self._guard.under_way(self._state, decision, self.now_ns(decision), self._session.world(""))

    def stopped(self, cell: str) -> str:
        """Why nothing may be done in a cell; empty if it may. Thread-safe."""
        return World({}, {}, {}, self._stop_reason(), stops=self._session.stops).stopped(cell)

    def forgive(self, decision: AnyDecision) -> None:
        """Stop counting a decision that changed nothing."""
        with self._turn:
            self._state = self._state.without(decision)
            self._forgiven[decision.id] = self.now_ns(decision)

    def go_on(self, decision: AnyDecision, refused: AnyDecision) -> bool:
        """Restore a decision as the newest on its subject after a refused newer one; return whether none is newer."""
        with self._turn:
            subject = decision.subject
            if self._state.newest.get(subject) != refused.time_ns:
                return False
            self._state = self._state._replace(newest={**self._state.newest, subject: decision.time_ns})
            return True

    def restore(self, partition: int) -> None:
        """Count the grants in the log of a partition.

        For this process's own grants the ledger file takes precedence, except for what was granted right before the
        call: only the outcome records that.
        """
        with self._turn:
            held = {grant.decision: grant for grants in self._state.grants.values() for grant in grants}
            found: dict[str, Grant] = {}
            for grant in self._session.log.index.grants(partition):
                own = held.get(grant.decision)
                if own is None:
                    found[grant.decision] = grant
                elif own.at_ns < grant.at_ns or own.taken < grant.taken:
                    at_ns, taken = max(own.at_ns, grant.at_ns), max(own.taken, grant.taken)
                    found[grant.decision] = msgspec.structs.replace(own, at_ns=at_ns, taken=taken)
            if self.live and found:
                merged = GuardState.restored([*(held | found).values()])
                self._state = merged._replace(newest={**merged.newest, **self._state.newest})

    def _stop_reason(self) -> str:
        return stop_reason(self.config.kill_switch)
