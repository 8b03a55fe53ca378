"""A platform in memory: its workloads, faults that strike when they are ordered, and an account of what it has done."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.actuators.samples import NOW

from flyball_actuators.platforms import (
    Capabilities,
    Done,
    Failed,
    Handle,
    PlatformError,
    Progress,
    Rejected,
    Running,
    Superseded,
)
from flyball_actuators.platforms.calls import check_stop
from flyball_contracts.records import AnyDecision, Preempt, SetsReplicas, SubjectState

SAGA_STEPS = 6


class Effect(NamedTuple):
    """Something that the platform has done; ``wrong`` says why it must not have, ``taken`` the replicas it took."""

    decision: str
    actuator: str
    wrong: str
    cell: str = ""
    taken: int = 0


class Account:
    """The platform: its workloads, and each effect with who caused it; shared by all actuators."""

    def __init__(self, workloads: Sequence[str], replicas: int, *, tracks: bool, chance: random.Random) -> None:
        self.tracks = tracks
        self.effects: list[Effect] = []
        self.state = {name: SubjectState(replicas=replicas, ready=replicas, version="1") for name in workloads}
        self.operations: dict[str, SubjectState] = {}
        self.begun: dict[str, tuple[AnyDecision, str]] = {}
        self.steps = Counter[str]()
        self.taken_back: set[str] = set()
        self.faults = Counter[str]()
        self.chance = chance

    def scale_by_another_client(self, workload: str, replicas: int) -> None:
        """Change a workload as others do."""
        version = str(int(self.state[workload].version) + 1)
        self.state[workload] = SubjectState(replicas=replicas, ready=replicas, version=version)

    def act(self, decision: AnyDecision, actuator: str, wrong: str) -> None:
        state = self.state[decision.workload]
        count = decision.replicas if isinstance(decision, SetsReplicas) else state.replicas
        taken = max(0, (state.replicas or 0) - (count or 0))
        self.effects.append(Effect(decision.id, actuator, wrong, decision.cell, taken))
        self.scale_by_another_client(decision.workload, count or 0)
        self.operations[decision.id] = self.state[decision.workload]


class Double:
    """The platform as one actuator sees it; ``wrong`` says why nothing may be done at this moment, or is empty.

    Where it tracks operations, a Preempt is a saga: it is marked first, then replicas write their checkpoints for some
    polls, and only then they go, unless another client has changed the workload since.
    """

    name = "double"

    def __init__(
        self, account: Account, actuator: str, wrong: Callable[[AnyDecision], str], fuse: Callable[[str], None]
    ) -> None:
        self._account, self._actuator, self._wrong, self._fuse = account, actuator, wrong, fuse
        self.still_wrong: Callable[[AnyDecision], str] = wrong
        self.capabilities = Capabilities(frozenset({"Scale", "Migrate", "Preempt"}), account.tracks)

    def observe(self, decision: AnyDecision) -> SubjectState | Rejected:
        self._fails("observe")
        return self._account.state[decision.workload]

    def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
        account = self._account
        self._fuse("before the effect")
        self._fails("before")
        if self._lost("conflict"):
            return Rejected("conflict", "changed meanwhile; decide again")
        expected = decision.expected_state(observed)
        if not (account.tracks and decision.id in account.operations):
            if account.state[decision.workload].version != observed.version:
                return Rejected("conflict", "changed meanwhile; decide again")
            if account.tracks and isinstance(decision, Preempt):
                check_stop()
                account.begun[decision.id] = decision, observed.version
            else:
                account.act(decision, self._actuator, self._wrong(decision))
        self._fuse("after the effect")
        self._fails("after")
        return Handle(operation=decision.id, expected=expected)

    def poll(self, handle: Handle) -> Progress:
        self._fails("poll")
        if self._lost("slow"):
            return Running("still at it")
        if handle.operation in self._account.begun and handle.operation not in self._account.operations:
            return self._step(*self._account.begun[handle.operation])
        shown = self._account.operations[handle.operation]
        return Done(shown, NOW)

    def take_back(self, handle: Handle) -> Progress | None:
        self._fails("poll")
        account = self._account
        if handle.operation not in account.begun or handle.operation in account.operations:
            return None
        check_stop()
        self._fuse("before it is taken back")
        decision, _ = account.begun[handle.operation]
        account.taken_back.add(handle.operation)
        self._fuse("after it is taken back")
        self._fails("after")
        return Failed("nothing had gone", account.state[decision.workload])

    def find(self, decision: AnyDecision, observed: SubjectState | None) -> Handle | None:
        self._fails("find")
        account = self._account
        begun = account.begun.get(decision.id)
        shown = account.operations.get(decision.id) or (None if begun is None else account.state[decision.workload])
        return None if shown is None else Handle(operation=decision.id, expected=shown)

    def _step(self, decision: AnyDecision, version: str) -> Progress:
        account = self._account
        account.taken_back.discard(decision.id)
        if account.state[decision.workload].version != version:
            return Superseded("changed before its checkpoint", account.state[decision.workload])
        check_stop()
        self._fuse("before a step")
        if account.steps[decision.id] < SAGA_STEPS:
            account.steps[decision.id] += 1
            return Running("writes its checkpoint")
        self._fails("before")
        account.act(decision, self._actuator, self.still_wrong(decision))
        self._fuse("after a step")
        self._fails("after")
        return Running("its replicas go")

    def _fails(self, what: str) -> None:
        if self._lost(what):
            raise PlatformError(f"no answer ({what})")

    def _lost(self, what: str) -> bool:
        """Whether a fault that was ordered strikes now."""
        if self._account.faults[what] > 0:
            self._account.faults[what] -= 1
            return True
        return False
