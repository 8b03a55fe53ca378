"""Sets a number of replicas back if new ones did not become ready in time, so that those hold no GPUs.

Replicas that are ready stay; only a start from no replicas is undone as a whole. The number is written under the
version that was read, and only while it is the decision's own. The write has a field manager of its own, by which it is
found again. Annotation ``flyball.dev/rollback: "false"`` of the controller turns it off.
"""

from flyball_actuators.platforms.base import Failed, Rejected
from flyball_actuators.platforms.kubernetes.api import Api
from flyball_actuators.platforms.kubernetes.kinds import Object, annotation_of
from flyball_actuators.platforms.kubernetes.operation import Operation, manager
from flyball_actuators.platforms.kubernetes.pods import managed_by
from flyball_actuators.platforms.kubernetes.replicas.write import set_replicas
from flyball_contracts.records import SubjectState

START_S = 1_800.0
"""New replicas may take this long to be ready; a Deployment's own progress deadline may end it sooner."""
ROLLBACK = "flyball.dev/rollback"
_BACK = "back-"


def can_undo(operation: Operation, obj: Object) -> bool:
    """Whether an operation has added replicas that may be taken away again; a Command of Volcano counts as a retry."""
    added = 0 <= operation.before < operation.replicas
    return added and operation.target.controller.scale_method != "command" and annotation_of(obj, ROLLBACK) != "false"


def undo(api: Api, operation: Operation, obj: Object, why: str, state: SubjectState) -> Failed:
    """Take away replicas that are not ready, if the number is still the decision's; return the result."""
    target, ready = operation.target, state.ready or 0
    back = max(operation.before, min(ready, operation.replicas)) if operation.before else 0
    if back == operation.replicas:
        return Failed(why, state)
    if not managed_by(obj, manager(operation.decision)):
        return Failed(f"{why}; the number is not this decision's any more, and stays", state)
    query = (("fieldManager", _manager(operation)),)
    answer = set_replicas(api, target, obj, back, (), query)
    if isinstance(answer, Rejected):
        return Failed(f"{why}; it was not set back: {answer.detail}", state)
    audit = f" (audit id {answer.audit_id})" if answer.audit_id else ""
    return Failed(f"{why}; it was set back to {back} replicas{audit}", _at(back, state))


def undone(operation: Operation, obj: Object, state: SubjectState) -> Failed | None:
    """The end of an operation that was set back before, by whichever process."""
    if operation.before < 0 or not managed_by(obj, _manager(operation)):
        return None
    why = f"its new replicas did not become ready in time, and it was set back to {state.replicas} replicas"
    return Failed(why, _at(state.replicas or 0, state))


def _manager(operation: Operation) -> str:
    return manager(f"{_BACK}{operation.decision}")


def _at(replicas: int, state: SubjectState) -> SubjectState:
    return SubjectState(replicas=replicas, ready=min(state.ready or 0, replicas), suspended=state.suspended)
