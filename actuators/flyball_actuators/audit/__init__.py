"""The record of what an actuator received, judged, did and saw: append-only, chained, and anchored in the outcomes."""

from flyball_actuators.audit.entries import AnyEntry as AnyEntry
from flyball_actuators.audit.reader import (
    Anchor as Anchor,
    Broken as Broken,
    Checked as Checked,
    anchor_of as anchor_of,
    entries_about as entries_about,
    verified as verified,
)
from flyball_actuators.audit.trail import Trail as Trail
