"""The audit trail of an actuator: append-only, a hash chain, anchored in the published outcomes."""

from flyball_actuators.audit.entries import AnyEntry as AnyEntry, Stage as Stage
from flyball_actuators.audit.reader import (
    Absent as Absent,
    Anchor as Anchor,
    Broken as Broken,
    Checked as Checked,
    absent as absent,
    anchor_of as anchor_of,
    entries_about as entries_about,
    verified as verified,
)
from flyball_actuators.audit.trail import Trail as Trail
