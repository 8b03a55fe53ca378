"""Parameters of actuator and controller: their configuration, and constants that only tests vary.

Each class adds constants to a section of the configuration.
"""

from flyball_contracts.config import (
    MAX_AGE_S,
    ActuatorConfig,
    BlastRadius,
    ControllerConfig,
    RateLimit,
)

WINDOW_S = 600.0
"""Window of the general limits: longer than a rollout, short enough for an operator to watch."""


class RateParameters(RateLimit, frozen=True):
    """At most ``actions`` in any ``window_s`` seconds."""

    window_s: float = WINDOW_S


class BlastRadiusParameters(BlastRadius, frozen=True):
    """Most replicas of a cell that may be taken away in any ``window_s`` seconds."""

    window_s: float = WINDOW_S


class ActuatorParameters(ActuatorConfig, frozen=True):
    """The actuator's configuration with the constants of its guard."""

    max_age_s: float = MAX_AGE_S
    per_target: RateParameters = RateParameters()
    per_cell: RateParameters = RateParameters(actions=60)
    blast_radius: BlastRadiusParameters = BlastRadiusParameters()


class ControllerParameters(ControllerConfig, frozen=True):
    """The controller's configuration: it collects changes for ``period_s`` and waits ``timeout_s`` for an answer."""

    period_s: float = 1.0
    timeout_s: float = 10.0
