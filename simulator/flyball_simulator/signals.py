"""Grid signals of the simulated zones: carbon and price curves with a solar dip and an evening peak."""

import math

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.config import FleetConfig, GridZone
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Signal
from flyball_contracts.records.signals import SignalKind

SOURCE = "simulated"
P90 = 1.2816
"""Standard normal quantile."""
Curve = NDArray[np.float64]

STEP_S = 900.0
"""Slot length of the carbon and price curves, as in most grids."""
HORIZON_S = 129_600.0
"""The curves reach 36 h ahead, like the longest day-ahead forecasts."""
EVERY_S = 3_600.0
"""Interval at which the curves are published."""


def make_signals(config: FleetConfig, start_ns: int, now_ns: int) -> list[Signal]:
    """Forecasts of carbon intensity and price for all zones, as published at ``now_ns``."""
    step_ns = round(STEP_S * NS_PER_S)
    first_ns = now_ns // step_ns * step_ns
    count = max(1, math.ceil(HORIZON_S / STEP_S))
    middle_s: Curve = (first_ns - start_ns) / NS_PER_S + (np.arange(count, dtype=np.float64) + 0.5) * STEP_S
    found: list[Signal] = []
    for number, zone in enumerate(config.zones):
        random = np.random.default_rng([config.seed, number, now_ns])
        ahead_h = np.maximum(middle_s - (now_ns - start_ns) / NS_PER_S, 0.0) / 3600.0
        for kind, shape in _shapes(config, number, zone, middle_s):
            spread = 0.015 + 0.012 * np.sqrt(ahead_h)
            # The error of a forecast drifts with the horizon: neighbours err alike.
            drift = np.cumsum(random.standard_normal(count)) * math.sqrt(STEP_S / 3600.0)
            p50 = shape * (1.0 + 0.006 * drift / np.sqrt(1.0 + ahead_h / 12.0))
            digits = 1 if kind == "carbon_intensity" else 4
            found.append(
                Signal(
                    zone=zone.name,
                    kind=kind,
                    published_ns=now_ns,
                    start_ns=first_ns,
                    step_s=STEP_S,
                    p50=_listed(p50, digits),
                    p10=_listed(p50 * (1.0 - P90 * spread), digits),
                    p90=_listed(p50 * (1.0 + P90 * spread), digits),
                    source=SOURCE,
                )
            )
    return found


def carbon_now(config: FleetConfig, t_s: float) -> Curve:
    """True carbon intensity of each zone ``t_s`` seconds after the start, in gCO2e/kWh."""
    at = np.array([t_s])
    return np.array([dict(_shapes(config, i, zone, at))["carbon_intensity"][0] for i, zone in enumerate(config.zones)])


def _shapes(config: FleetConfig, number: int, zone: GridZone, t_s: Curve) -> list[tuple[SignalKind, Curve]]:
    """True curves: a daily shape, plus weather as slow waves with phases from the seed."""
    hour = (zone.hour_at_start + t_s / 3600.0) % 24.0
    phase = np.random.default_rng([config.seed, number]).uniform(0.0, 2.0 * np.pi, 3)
    weather = sum(
        0.03 * np.sin(2.0 * np.pi * t_s / 3600.0 / period + p)
        for period, p in zip((31.0, 13.7, 5.3), phase.tolist(), strict=True)
    )
    sun, evening, morning = _bump(hour, 12.8, 2.9), _bump(hour, 19.8, 2.1), _bump(hour, 7.8, 1.5)
    carbon = zone.carbon_g_per_kwh * (1.05 - zone.solar_share * sun + 0.32 * evening + 0.10 * morning + weather)
    price = zone.price_usd_per_kwh * (0.95 - 0.8 * zone.solar_share * sun + 0.75 * evening + 0.3 * morning + weather)
    return [("carbon_intensity", np.maximum(carbon, 5.0)), ("electricity_price", np.maximum(price, 0.005))]


def _bump(hour: Curve, centre: float, width: float) -> Curve:
    """Bell around an hour of the day."""
    away = (hour - centre + 12.0) % 24.0 - 12.0
    bell: Curve = np.exp(-0.5 * (away / width) ** 2)
    return bell


def _listed(values: Curve, digits: int) -> tuple[float, ...]:
    return tuple(np.maximum(np.round(values, digits), 0.0).tolist())
