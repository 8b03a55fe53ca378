"""Grants: the decisions that were let through, which the limits count."""

from flyball_actuators.guard.grants.grant import Grant as Grant
from flyball_actuators.guard.grants.index import GrantIndex as GrantIndex
from flyball_actuators.guard.grants.recent import RecentGrants as RecentGrants
