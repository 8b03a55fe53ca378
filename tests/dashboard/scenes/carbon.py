"""The carbon of the scene: curves of the zones, and the jobs planned by them."""

import numpy as np
from tests.dashboard.scenes.fleet import CELL, NOW

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Plan, Record, Signal


def signals() -> list[Record]:
    made: list[Record] = []
    start = NOW - NOW % (3600 * NS_PER_S) - 4 * 3600 * NS_PER_S
    shapes = {"SE-SE3": (34, 9, 15), "DE": (360, 150, 13), "US-CAL-CISO": (245, 110, 20)}
    for zone, (mean, swing, noon) in shapes.items():
        hours = [13 - 4 + h for h in range(32)]
        curve = tuple(
            float(max(12.0, mean - swing * np.cos(2 * np.pi * (h - noon) / 24) + 0.1 * swing * np.sin(h * 2.1)))
            for h in hours
        )
        made.append(
            Signal(zone=zone, kind="carbon_intensity", published_ns=start, start_ns=start, step_s=3600.0, p50=curve)
        )
    return made


def plans() -> list[Record]:
    made: list[Record] = []
    start = NOW - NOW % (900 * NS_PER_S)
    runs = {
        "genome-fold": ("DE", [3 <= i < 5 or 68 <= i < 88 for i in range(96)], 0.38, 20),
        "nightly-embed": ("US-CAL-CISO", [18 <= i < 34 for i in range(96)], 0.46, 14),
        "risk-sim": ("SE-SE3", [0 <= i < 8 or 80 <= i < 88 for i in range(96)], 0.12, 24),
    }
    for name, (zone, run, saving, hours) in runs.items():
        made.append(
            Plan(
                id=record_id("Plan", name),
                subject=name,
                cell=CELL,
                zone=zone,
                time_ns=NOW,
                start_ns=start,
                step_s=900.0,
                run=tuple(run),
                cost=tuple(200.0 for _ in run),
                saving=saving,
                feasible=True,
                deadline_ns=NOW + hours * 3600 * NS_PER_S,
            )
        )
    return made
