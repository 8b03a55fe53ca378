"""Autoscaling policies as pure step functions: ours, and re-implementations of those it is compared with."""

from flyball_models.scaling.base import (
    KNOBS as KNOBS,
    STATE as STATE,
    Observation as Observation,
    Policy as Policy,
    fresh as fresh,
)
from flyball_models.scaling.table import KINDS as KINDS, chosen as chosen, desired as desired, number as number
