"""Which machines, or parts of GPUs, serve a need at least cost: GPU types, MIG profiles, spot and on-demand.

An integer programme, solved exactly by HiGHS (branch and cut; Huangfu and Hall, Math. Prog. Comp. 10, 2018). With n_k
replicas of option k, whose work is w_k:

    minimise    sum n_k (price_k + power_k / 1000 * carbon * carbon_price)
    such that   sum n_k w_k >= need                                     now
                sum n_k w_k without spot pool p >= survive * need       after the loss of any one spot pool
                sum n_k w_k loss_k cold_start_k / 3600 <= (1 - attainment) * need    mean work lost while replaced

Spreading over pools that fail apart is what buys safety (SkyServe's SpotHedge, EuroSys 2025): spot in two pools
survives the loss of one at less than the price of on-demand.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]

Floats = NDArray[np.float64]


class Option(NamedTuple):
    """One way to run a replica.

    `work_per_s` is what a replica sustains within its objective, `pool` names what is reclaimed together (empty: not
    spot), `loss_per_hour` the probability of that, and `most` the replicas to be had.
    """

    name: str
    work_per_s: float
    usd_per_hour: float
    power_w: float = 0.0
    pool: str = ""
    loss_per_hour: float = 0.0
    cold_start_s: float = 60.0
    most: int = 10_000


class Need(NamedTuple):
    """Work to serve, the share of requests that may not suffer, and the share served after the loss of a spot pool."""

    work_per_s: float
    attainment: float = 0.99
    survive: float = 0.99
    least_replicas: int = 1


class Mix(NamedTuple):
    """Replicas of each option, and what they cost, emit, serve, and serve when the worst spot pool is lost."""

    replicas: tuple[int, ...]
    usd_per_hour: float
    carbon_g_per_hour: float
    work_per_s: float
    worst_work_per_s: float


def choose(
    options: Sequence[Option], need: Need, carbon_g_per_kwh: float = 0.0, usd_per_carbon_kg: float = 0.0
) -> Mix | None:
    """Return the mix of least cost, ``None`` where no mix will do: not enough to be had, or all of it in one spot pool.

    An option with an unknown, negative or infinite number is left out.
    """
    usable = [i for i, o in enumerate(options) if _is_sound(o)]
    if not usable or not 0 <= need.work_per_s < math.inf:
        return None
    found = [options[i] for i in usable]
    work = np.array([o.work_per_s for o in found])
    grams = np.array([o.power_w / 1000.0 * carbon_g_per_kwh for o in found])
    price = np.array([o.usd_per_hour for o in found])
    pools = sorted({o.pool for o in found if o.pool})
    outside = [np.array([o.pool != pool for o in found]) for pool in pools]
    lost = work * [o.loss_per_hour * o.cold_start_s / 3600.0 for o in found]
    scale = max(float(work.max()), 1e-300)  # rows of a like size, whatever the unit of work
    rows = [work, np.full(len(found), scale), *(work * out for out in outside), -lost]
    least = [
        need.work_per_s,
        need.least_replicas * scale,
        *(need.survive * need.work_per_s for _ in pools),
        (need.attainment - 1.0) * need.work_per_s,
    ]
    counts = _solved(
        price + grams / 1000.0 * usd_per_carbon_kg,
        np.array([o.most for o in found], np.float64),
        np.array(rows) / scale,
        np.array(least) / scale,
    )
    if counts is None:
        return None
    replicas = [0] * len(options)
    for i, n in zip(usable, counts.tolist(), strict=True):
        replicas[i] = int(n)
    total = float(counts @ work)
    return Mix(
        tuple(replicas),
        float(counts @ price),
        float(counts @ grams),
        total,
        min((float(counts @ (work * out)) for out in outside), default=total),
    )


def _solved(cost: Floats, most: Floats, rows: Floats, least: Floats) -> Floats | None:
    """Whole numbers in 0..`most` [K] of least `cost` [K] with `rows` [R, K] of them at least `least` [R]."""
    found: Any = milp(
        cost,
        integrality=np.ones(len(cost)),
        bounds=Bounds(0, most),  # pyright: ignore[reportArgumentType]
        constraints=LinearConstraint(rows, least, np.inf),  # pyright: ignore[reportArgumentType]
        options={"mip_rel_gap": 0.0},
    )
    if found.x is None:
        return None
    x: Floats = np.asarray(found.x, np.float64)
    return np.rint(x)


def _is_sound(option: Option) -> bool:
    numbers = (option.work_per_s, option.usd_per_hour, option.power_w, option.loss_per_hour, option.cold_start_s)
    return all(0 <= x < math.inf for x in numbers) and option.work_per_s > 0 and option.most > 0
