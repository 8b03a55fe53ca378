"""May this decision be carried out now? Pure: no clock, no file, no network."""

from flyball_actuators.guard.guard import CHECKS as CHECKS, Guard as Guard
from flyball_actuators.guard.state import (
    Case as Case,
    Check as Check,
    Grant as Grant,
    GuardState as GuardState,
    NodeInfo as NodeInfo,
    Verdict as Verdict,
    World as World,
)
