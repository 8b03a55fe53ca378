"""All operations of the platform: each decision once, one at a time per workload, node and pool."""

from msgspec.structs import replace

from flyball_contracts.errors import RecordError
from flyball_contracts.records import Check, Migrate, Preempt, Scale, SubjectState
from flyball_contracts.records.subjects import node_of, pool_of
from flyball_contracts.simulated import Operation, OperationStatus, Submission
from flyball_simulator.cell.plant import Plant
from flyball_simulator.operations.base import Progress, Refused, Task
from flyball_simulator.operations.check import CheckTask
from flyball_simulator.operations.migrate import MigrateTask
from flyball_simulator.operations.pool import PoolTask
from flyball_simulator.operations.preempt import PreemptTask
from flyball_simulator.operations.scale import ScaleTask

Subject = int | str
"""A workload by its index; a node or pool by the name that decisions use, such as ``node:n1``."""


class Ledger:
    """Operations by decision, oldest first.

    A newer operation on a workload, node or pool supersedes the running one. A superseded migration still ends what it
    has started.
    """

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self._operations: dict[str, Operation] = {}
        self._tasks: dict[str, tuple[Subject, Task]] = {}

    def all(self) -> list[Operation]:
        """All operations, oldest first."""
        return list(self._operations.values())

    def find(self, operation: str) -> Operation | None:
        """One operation."""
        return self._operations.get(operation)

    def knows(self, operation: str) -> bool:
        """Whether a decision was submitted before."""
        return operation in self._operations

    def submit(self, submission: Submission) -> Operation:
        """Accept a decision, once; it takes effect at the next tick. With ``dry_run`` nothing changes.

        Raises :class:`Refused`.
        """
        decision, plant = submission.decision, self._plant
        known = self._operations.get(decision.id)
        if known is not None:
            if not submission.dry_run:
                known = self._operations[decision.id] = replace(known, submissions=known.submissions + 1)
            return known
        of, task = self._checked(submission)
        before = self._observe(of, task.names)
        operation = Operation(
            id=decision.id,
            workload=decision.workload,
            status="running",
            detail="dry run: nothing happens",
            submitted_ns=plant.now_ns,
            before=before,
            expected=task.expected(before),
            observed=before,
        )
        if submission.dry_run:
            return operation
        self._supersede(of, decision.id)
        task.begin()
        self._tasks[decision.id] = of, task
        self._operations[decision.id] = replace(operation, effects=1)
        self._look(decision.id)
        return self._operations[decision.id]

    def advance(self) -> None:
        """Advance each running operation; called after a tick has begun."""
        for name in list(self._tasks):
            self._look(name)

    def _look(self, name: str) -> None:
        (of, task), operation = self._tasks[name], self._operations[name]
        ended = not self._is_present(of)
        progress = Progress("failed", f"{operation.workload} has ended") if ended else task.advance()
        if progress.status != "running":
            del self._tasks[name]
        if operation.status == "running":
            self._operations[name] = self._observed(operation, of, task.names, progress.status, progress.detail)

    def _supersede(self, subject: Subject, by: str) -> None:
        for name, (of, task) in list(self._tasks.items()):
            older = self._operations[name]
            if of == subject and older.status == "running":
                if not task.supersede():
                    del self._tasks[name]
                detail = f"superseded by {by}; it was at: {older.detail}"
                self._operations[name] = self._observed(older, of, task.names, "superseded", detail)

    def _observed(
        self, operation: Operation, of: Subject, names: tuple[str, ...], status: OperationStatus, detail: str
    ) -> Operation:
        ended_ns = None if status == "running" else max(self._plant.clock_ns, operation.submitted_ns)
        observed = self._observe(of, names)
        return replace(operation, status=status, detail=detail, observed=observed, ended_ns=ended_ns)

    def _observe(self, of: Subject, names: tuple[str, ...]) -> SubjectState:
        plant = self._plant
        if isinstance(of, int):
            return plant.observe(of, names)
        if pool := pool_of(of):
            return plant.machines.observe(pool)
        return plant.observe_node(plant.node(node_of(of))) if self._is_present(of) else SubjectState()

    def _is_present(self, of: Subject) -> bool:
        if isinstance(of, int):
            return not self._plant.specs[of].removed
        return bool(pool_of(of)) or self._plant.is_present(node_of(of))

    def _checked(self, submission: Submission) -> tuple[Subject, Task]:
        decision, plant = submission.decision, self._plant
        if decision.cell != plant.config.cell:
            raise Refused("unknown_target", f"this is cell {plant.config.cell}, not {decision.cell!r}")
        if isinstance(decision, Check):
            try:
                return decision.workload, CheckTask(plant, decision)
            except Refused:
                raise
            except RecordError as error:
                raise Refused("unknown_target", str(error)) from error
        try:
            of, version = self._subject(decision.workload)
        except RecordError as error:
            raise Refused("unknown_target", str(error)) from error
        if submission.version and submission.version != version:
            detail = f"{decision.workload} has version {version}, not {submission.version}; look again and decide again"
            raise Refused("conflict", detail)
        try:
            if isinstance(of, str):
                return of, PoolTask(plant, pool_of(of), decision)
            return of, _task(plant, of, decision)
        except Refused:
            raise
        except RecordError as error:
            raise Refused("invalid", str(error)) from error

    def _subject(self, name: str) -> tuple[Subject, str]:
        """Index of a workload, or the name of a pool, and its version; raises :class:`RecordError`."""
        plant, pool = self._plant, pool_of(name)
        if pool:
            plant.machines.pool(pool)
            return name, str(plant.machines.versions[pool])
        w = plant.workload(name)
        return w, str(plant.versions[w])


def _task(plant: Plant, w: int, decision: Scale | Migrate | Preempt) -> Task:
    if isinstance(decision, Migrate):
        return MigrateTask(plant, w, decision)
    if isinstance(decision, Preempt):
        return PreemptTask(plant, w, decision)
    return ScaleTask(plant, w, decision)
