"""Policies that apply to some decisions: protection, time windows, limits, quotas and approval by a person."""

from flyball_actuators.guard.policies.approval import unapproved as unapproved
from flyball_actuators.guard.policies.limits import over_limit as over_limit, room_of as room_of
from flyball_actuators.guard.policies.matching import matching as matching
from flyball_actuators.guard.policies.protection import protected as protected
from flyball_actuators.guard.policies.quota import over_quota as over_quota
from flyball_actuators.guard.policies.windows import out_of_hours as out_of_hours
