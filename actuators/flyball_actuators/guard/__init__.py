"""The guard decides whether a decision may be carried out now; pure: no clock, no file, no network."""

from flyball_actuators.guard.guard import CHECKS as CHECKS, Guard as Guard, passed as passed
from flyball_actuators.guard.limits import UNSEEN_S as UNSEEN_S, longest_s as longest_s
from flyball_actuators.guard.money import pool_in as pool_in
from flyball_actuators.guard.scope import (
    Signature as Signature,
    of_other_tenant as of_other_tenant,
    out_of_scope as out_of_scope,
)
from flyball_actuators.guard.state import (
    Check as Check,
    Context as Context,
    Gpu as Gpu,
    Grant as Grant,
    GuardState as GuardState,
    NodeInfo as NodeInfo,
    Placed as Placed,
    Verdict as Verdict,
    World as World,
    declared_of as declared_of,
    urgency_of as urgency_of,
)
from flyball_actuators.guard.sums import (
    UNDECLARED as UNDECLARED,
    Spot as Spot,
    Sums as Sums,
    spots_of as spots_of,
)
