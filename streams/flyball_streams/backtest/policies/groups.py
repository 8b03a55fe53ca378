"""Policy groups and the settings to try, never more than :data:`BUDGET` of each."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from flyball_models.scaling import (
    Policy,
    band,
    dynamo,
    headroom,
    hpa,
    kpa,
    lead_time_headroom,
    shadow_selection,
    static,
)
from flyball_streams.backtest.kernel import Bounds
from flyball_streams.backtest.policies import bounds as ahead
from flyball_streams.backtest.policies.prepared import PreparedDemand
from flyball_streams.backtest.run import NO_BOUNDS
from flyball_streams.engine.parameters import SizingParameters
from flyball_streams.engine.workload.forecast.forecaster import nearest

BUDGET = 40
LEVEL_MINUTES = (5, 12)
HOLD_MINUTES = 10
ETAS = (0.02, 0.05)
MEMORY_MINUTES = 20_160
PRICE_ETA = 0.003


class Conditions(NamedTuple):
    """Conditions of a tuning: a demand, its cold start and delay limit; ``thin`` divides the budget for quick runs."""

    known: PreparedDemand
    cold_start_s: float
    delay_s: int
    thin: int = 1


class Setting(NamedTuple):
    """One policy with its parameters and bounds."""

    policy: Policy
    bounds: Bounds = NO_BOUNDS


class PolicyGroup(NamedTuple):
    """Settings of one kind of policy.

    ``by_delay``: the settings depend on the delay limit; ``ours``: the policy is one of Flyball's; ``forecasts``: the
    policy uses the engine's forecasts. ``about`` describes what sets the number of replicas.
    ``settings`` returns all settings for given conditions; the same index means the same parameters in all conditions.
    """

    key: str
    title: str
    about: str
    settings: Callable[[Conditions], list[Setting]]
    by_delay: bool = False
    ours: bool = False
    forecasts: bool = False


def _one_knob(make: Callable[[float], Policy], low: float, high: float) -> Callable[[Conditions], list[Setting]]:
    def settings(conditions: Conditions) -> list[Setting]:
        return [Setting(make(float(x))) for x in np.geomspace(low, high, BUDGET // conditions.thin)]

    return settings


def _static(conditions: Conditions) -> list[Setting]:
    mean = float(conditions.known.demand.work.mean())
    return [Setting(static.policy(round(mean * x))) for x in np.geomspace(1.1, 10.0, BUDGET // conditions.thin)]


def _schedule(conditions: Conditions) -> list[Setting]:
    bounds = ahead.schedule(conditions.known.need(conditions.delay_s), conditions.cold_start_s)
    factors = np.geomspace(0.5, 4.0, BUDGET // conditions.thin)
    return [Setting(band.follow("schedule", float(m)), bounds) for m in factors]


def _oracle(conditions: Conditions) -> list[Setting]:
    found: list[Setting] = []
    for quantile, hold in ((0.9, 2), (1.0, 10)):
        bounds = ahead.oracle(conditions.known.need(conditions.delay_s, quantile), conditions.cold_start_s, hold)
        for m in np.linspace(0.5, 1.45, BUDGET // (2 * conditions.thin)):
            found.append(Setting(band.oracle(float(m), f" q={quantile:g} hold={hold}min"), bounds))
    return found


def _forecast_band(conditions: Conditions) -> list[Setting]:
    sizing = SizingParameters()
    found: list[Setting] = []
    for level, tau in enumerate(ahead.LEVELS):
        bounds = conditions.known.forecast(conditions.cold_start_s, level)
        for target in np.linspace(0.45, 1.05, 5)[:: conditions.thin]:
            policy = band.engine(
                float(target),
                sizing.tolerance,
                sizing.max_scale_in,
                sizing.reversal_cooldown_s,
                conditions.cold_start_s,
                f" tau={tau:g}",
            )
            found.append(Setting(policy, bounds))
    return found


def _headroom(conditions: Conditions) -> list[Setting]:
    return [
        Setting(headroom.policy(float(z), level, HOLD_MINUTES, conditions.cold_start_s, conditions.delay_s))
        for level in LEVEL_MINUTES
        for z in np.geomspace(0.4, 10.0, BUDGET // (2 * conditions.thin))
    ]


def _bounds(conditions: Conditions) -> Bounds:
    """Bounds of the forecast, as the worker limits it."""
    return conditions.known.forecast(conditions.cold_start_s, nearest(ahead.LEVELS, SizingParameters().forecast_level))


def _limits() -> headroom.Limits:
    """Limits of the sizer and the arbiter."""
    sizing = SizingParameters()
    return headroom.Limits(
        sizing.tolerance, sizing.max_scale_in, sizing.growth, sizing.cooldown_s, sizing.reversal_cooldown_s
    )


def _slo_headroom(conditions: Conditions) -> list[Setting]:
    """The worker's default policy: a forecast may raise the replicas; the limits of sizer and arbiter apply."""
    bounds, hold = _bounds(conditions), round(SizingParameters().stabilization_window_s / 60)
    return [
        Setting(
            headroom.tracking(
                1 - float(late), eta, LEVEL_MINUTES[0], hold, conditions.cold_start_s, conditions.delay_s, _limits()
            ),
            bounds,
        )
        for eta in ETAS
        for late in np.geomspace(0.15, 0.00001, BUDGET // (2 * conditions.thin))
    ]


def _lead_time_headroom(conditions: Conditions) -> list[Setting]:
    """The worker's policy of this name; see :func:`_slo_headroom`."""
    bounds, hold = _bounds(conditions), round(SizingParameters().stabilization_window_s / 60)
    level, cold_start_s, delay_s = LEVEL_MINUTES[0], conditions.cold_start_s, conditions.delay_s
    return [
        Setting(
            lead_time_headroom.policy(1 - float(late), eta, level, hold, cold_start_s, delay_s, _limits()),
            bounds,
        )
        for eta in ETAS
        for late in np.geomspace(0.15, 0.00001, BUDGET // (2 * conditions.thin))
    ]


def _shadow_selection(conditions: Conditions) -> list[Setting]:
    """Half the budget: one setting takes as long as ten others, because each of its members simulates a fleet."""
    return [
        Setting(
            shadow_selection.policy(
                1 - float(late),
                conditions.cold_start_s,
                conditions.delay_s,
                MEMORY_MINUTES,
                shadow_selection.MARGIN,
                PRICE_ETA,
            )
        )
        for late in np.geomspace(0.15, 0.00001, BUDGET // (2 * conditions.thin))
    ]


POLICY_GROUPS = {
    group.key: group
    for group in (
        PolicyGroup("static", "static", "one number of replicas for all the time", _static),
        PolicyGroup(
            "hpa",
            "HPA on utilisation",
            "Kubernetes autoscaler: replicas follow their mean utilisation",
            _one_knob(hpa.policy, 0.2, 0.98),
        ),
        PolicyGroup(
            "hpa_load",
            "HPA on arriving work",
            "the same, on the work that arrives, whether or not it can be served",
            _one_knob(hpa.load, 0.2, 0.98),
        ),
        PolicyGroup(
            "hpa_queue",
            "HPA on queue",
            "the same, on requests that wait for each replica",
            _one_knob(hpa.queue, 0.02, 20.0),
        ),
        PolicyGroup(
            "keda",
            "KEDA-like",
            "arriving work and its queue over what a replica is set to take, scale to the larger",
            _one_knob(hpa.keda, 0.22, 1.6),
        ),
        PolicyGroup(
            "kpa", "KPA", "Knative autoscaler: requests in flight, with a panic window", _one_knob(kpa.policy, 0.2, 1.1)
        ),
        PolicyGroup(
            "kpa_held",
            "KPA + 600 s hold",
            "the same, and nothing goes for 600 s after the last peak",
            _one_knob(kpa.policy_held, 0.3, 2.0),
        ),
        PolicyGroup(
            "dynamo",
            "Dynamo-like",
            "a planner that forecasts the next interval and provides for it",
            _one_knob(dynamo.policy, 0.2, 1.0),
        ),
        PolicyGroup("schedule", "schedule", "the same hour of the days before", _schedule, by_delay=True),
        PolicyGroup(
            "slo_headroom",
            "Flyball SLO headroom",
            "the level of five minutes and as many spreads as the objective has needed, raised by a forecast",
            _slo_headroom,
            by_delay=True,
            ours=True,
            forecasts=True,
        ),
        PolicyGroup(
            "headroom",
            "Flyball fixed headroom",
            "the level of five minutes and a fixed multiple of its spread",
            _headroom,
            by_delay=True,
            ours=True,
        ),
        PolicyGroup(
            "lead_time_headroom",
            "Flyball lead-time headroom",
            "the same, with the spread over one cold start",
            _lead_time_headroom,
            by_delay=True,
            ours=True,
            forecasts=True,
        ),
        PolicyGroup(
            "shadow_selection",
            "Flyball shadow selection",
            "many policies run in the shadow; the one that would have cost least acts",
            _shadow_selection,
            by_delay=True,
            ours=True,
        ),
        PolicyGroup(
            "forecast_band",
            "Flyball forecast band",
            "a quantile of the forecast at the cold start",
            _forecast_band,
            ours=True,
            forecasts=True,
        ),
        PolicyGroup(
            "oracle", "oracle-A", "knows the demand of the next cold start; no real policy can", _oracle, by_delay=True
        ),
    )
}
OURS = "slo_headroom"
BASELINES = ("hpa", "hpa_load", "hpa_queue", "keda", "kpa", "kpa_held", "dynamo", "static", "schedule")
