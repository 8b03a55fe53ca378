"""How much of a decision is let through."""

from flyball_actuators.guard.limits import blast_room
from flyball_actuators.guard.policies import room_of
from flyball_actuators.guard.state import Context


def granted_by(context: Context) -> int:
    """Replicas that stop because of a decision that is let through: of new resources as many as there is room for.

    The room is the smallest that ``actuator.blast_radius`` and the limits of the policies leave.
    """
    takes = context.takes
    if not context.decision.in_batches:
        return takes
    return max(1, min(takes, room(context)))


def room(context: Context) -> int:
    """Replicas that all limits together still let be taken away, 0 or more."""
    return max(0, min((blast_room(context), *room_of(context))))
