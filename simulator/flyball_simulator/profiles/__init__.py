"""Labelled telemetry of kinds and families of GPU work with varied parameters, to train and evaluate profiles."""

from flyball_simulator.profiles.labels import (
    BOUNDS as BOUNDS,
    FAMILIES as FAMILIES,
    KINDS as KINDS,
    UNSEEN as UNSEEN,
)
from flyball_simulator.profiles.series import Series as Series, generate as generate
