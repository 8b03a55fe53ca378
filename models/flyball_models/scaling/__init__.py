"""Autoscaling policies as pure step functions: Flyball's, and re-implementations of others for comparison."""

from flyball_models.scaling.base import (
    STATE as STATE,
    Observation as Observation,
    Policy as Policy,
    fresh as fresh,
)
from flyball_models.scaling.table import KINDS as KINDS, chosen as chosen, desired as desired, number as number
