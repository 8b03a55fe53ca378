"""The guard says whether a decision may be carried out now; pure: no clock, no file, no network."""

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
