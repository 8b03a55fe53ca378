"""How much of a decision is let through."""

from flyball_actuators.guard.limits import blast_room
from flyball_actuators.guard.policies import room_of
from flyball_actuators.guard.state import Context


def granted_by(context: Context) -> int:
    """Replicas that stop because of a decision that is let through.

    New resources may come to a part of the replicas: to as many as there is room for, but at least one. The room is the
    smallest that ``actuator.blast_radius`` and the limits of the policies leave.
    """
    takes = context.takes
    if not context.decision.in_batches:
        return takes
    return max(1, min(takes, room(context)))


def room(context: Context) -> int:
    """Replicas that may still be taken away under all limits together, 0 or more."""
    return max(0, min((blast_room(context), *room_of(context))))
