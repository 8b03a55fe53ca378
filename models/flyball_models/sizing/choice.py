"""Chooses the machines, or shares of GPUs, that serve a need at least cost: GPU types, MIG profiles, spot, on-demand.

An integer programme, solved exactly by HiGHS (branch and cut; Huangfu and Hall, Math. Prog. Comp. 10, 2018). With n_k
replicas of option k, whose work is w_k, of which h_k are held, s_k are started and r_k let go:

    minimise    sum n_k c_k + (s_k + r_k) c_k cold_start_k / pay_back        c_k: price and priced carbon of an hour
    such that   n_k = h_k + s_k - r_k,  least_k <= n_k <= most_k
                sum n_k w_k >= need                                     now
                sum n_k w_k without spot pool p >= survive * need       after the loss of any one spot pool
                sum_S P(S) max(0, need - work without S) <= (1 - attainment) * need

The last sum goes over all sets S of spot pools: P(S) is the probability that exactly these are being replaced at a
moment, where each pool is lost as a whole and independently of the others with probability 1 - (1 - loss_per_hour) **
(lead time / 1 h). The sum is the expected energy not served of power systems, whose units fail in the same way
(Billinton and Allan, "Reliability Evaluation of Power Systems", 2nd ed., 1996), with replicas as units: spare replicas
elsewhere count, so on-demand covers only the loss of spot within the lead time that the objective does not allow.
Spreading over independent pools makes it cheap (SkyServe's SpotHedge, EuroSys 2025). The old and the new replica are
both paid for during a move: this is the cost of moving, spread over `pay_back_s`, the assumed life of a choice.
"""

import math
from collections.abc import Sequence
from importlib import import_module
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MOST_POOLS = 6
"""Maximum number of spot pools, as each doubles their sets; of more, those with the cheapest work are kept."""

TOLERANCE = 1e-9
NODES = 2_000
"""Maximum nodes of the search, after which the best mix so far is used; ten offers take some tens."""


class Option(NamedTuple):
    """One way to run a replica.

    `work_per_s` is what a replica sustains within its objective, `pool` names the machines that are reclaimed together
    (empty: not spot), `loss_per_hour` the probability of that, `cold_start_s` the time until another replica stands in.
    Between `least` and `most` replicas are available, `held` of which run already.
    """

    name: str
    work_per_s: float
    usd_per_hour: float
    power_w: float = 0.0
    pool: str = ""
    loss_per_hour: float = 0.0
    cold_start_s: float = 60.0
    most: int = 10_000
    least: int = 0
    held: int = 0
    carbon_g_per_kwh: float = 0.0

    @property
    def carbon_g_per_hour(self) -> float:
        """Grams of carbon that a replica emits in an hour."""
        return self.power_w / 1000.0 * self.carbon_g_per_kwh

    @property
    def lost(self) -> float:
        """Probability of loss within the time that a replacement takes."""
        if not self.pool:
            return 0.0
        return 1.0 - math.pow(1.0 - min(self.loss_per_hour, 1.0), self.cold_start_s / 3600.0)


class Need(NamedTuple):
    """Work to serve, the share that may be unserved, and the share served after the loss of a spot pool.

    The replicas number `least_replicas` to `most_replicas`.
    """

    work_per_s: float
    attainment: float = 0.99
    survive: float = 0.99
    least_replicas: int = 1
    most_replicas: int = 1_000_000


class Price(NamedTuple):
    """Price of carbon, and the assumed life of a choice (infinite: moving costs nothing)."""

    usd_per_carbon_kg: float = 0.0
    pay_back_s: float = math.inf


class Mix(NamedTuple):
    """Replicas of each option, and their cost, carbon and work.

    `objective` is the minimised value: USD per hour with carbon at its price, and `moving` the part of it that the
    change costs. `lost` is the expected share of the need that is unserved because spot is lost.
    """

    replicas: tuple[int, ...]
    usd_per_hour: float
    carbon_g_per_hour: float
    work_per_s: float
    objective: float
    moving: float
    lost: float


def choose(options: Sequence[Option], need: Need, price: Price | None = None) -> Mix | None:
    """Return the mix of least cost, ``None`` if there is none: too few machines, or all in one spot pool.

    An option with an unknown, negative or infinite number is left out.
    """
    price = price or Price()
    usable = _few_pools([i for i, o in enumerate(options) if _is_sound(o)], options)
    if not usable or not 0 <= need.work_per_s < math.inf:
        return None
    found = [options[i] for i in usable]
    k = len(found)
    work = np.array([o.work_per_s for o in found])
    grams = np.array([o.carbon_g_per_hour for o in found])
    dollars = np.array([o.usd_per_hour for o in found])
    held = np.array([o.held for o in found], np.float64)
    least, most = (np.array([getattr(o, name) for o in found], np.float64) for name in ("least", "most"))
    cost = dollars + grams / 1000.0 * price.usd_per_carbon_kg
    moving = cost * [o.cold_start_s / price.pay_back_s for o in found]
    pools = {p: max(o.lost for o in found if o.pool == p) for p in sorted({o.pool for o in found if o.pool})}
    scale = max(float(work.max()), 1e-300)  # rows of a like size, whatever the unit of work
    share, needed = work / scale, need.work_per_s / scale
    alive = [np.array([o.pool != p for o in found]) for p in pools]
    chances, kept = _scenarios(found, pools)
    # Columns, all whole numbers: replicas [k], and started replicas [m] of held options; of others, all are started.
    again = np.flatnonzero(held)
    m = len(again)
    starts = np.zeros((m, k + m))
    starts[np.arange(m), again], starts[:, k:] = 1.0, -np.eye(m)
    costs = np.concatenate([cost + np.where(held > 0, -moving, moving), 2.0 * moving[again]])
    bounds = np.concatenate([least, np.zeros(m)]), np.concatenate([most, np.maximum(most - held, 0.0)[again]])
    counted = [(share, needed, np.inf), (np.ones(k), need.least_replicas, need.most_replicas)]
    counted += [(share * out, need.survive * needed, np.inf) for out in alive]
    allowed = (1.0 - need.attainment) * needed
    counted.append(_cut(chances * (kept < 1.0).any(axis=1), kept, share, needed, allowed))
    while True:
        rows = np.hstack([np.array([row for row, _, _ in counted]), np.zeros((len(counted), m))])
        low, high = np.array([[lo, hi] for _, lo, hi in counted]).T
        x = _solved(
            costs,
            *bounds,
            np.vstack([rows, starts]),
            np.concatenate([low, np.full(m, -np.inf)]),
            np.concatenate([high, held[again]]),
        )
        if x is None:
            return None
        counts = np.rint(x[:k])
        short = needed - kept @ (share * counts)
        if chances @ np.maximum(short, 0.0) <= allowed + TOLERANCE * needed:
            break
        counted.append(_cut(chances * (short > 0.0), kept, share, needed, allowed))
    replicas = [0] * len(options)
    for i, count in zip(usable, counts.tolist(), strict=True):
        replicas[i] = int(count)
    moved = float(np.abs(counts - held) @ moving)
    return Mix(
        tuple(replicas),
        float(counts @ dollars),
        float(counts @ grams),
        float(counts @ work),
        float(counts @ cost) + moved,
        moved,
        float(chances @ np.maximum(short, 0.0)) / needed if needed > 0 else 0.0,
    )


def _cut(chances: Floats, kept: Floats, share: Floats, needed: float, allowed: float) -> tuple[Floats, float, float]:
    """Constraint row: the expected unserved work of some sets [N] of lost pools stays within the limit.

    Unserved work is convex in the replicas, and never less than this sum: such rows are added until the limit holds.
    """
    return (chances @ kept) * share, float(chances.sum() * needed - allowed), np.inf


def _scenarios(found: Sequence[Option], pools: dict[str, float]) -> tuple[Floats, Floats]:
    """Probability of each set of lost pools [N], and which options remain then, 0 or 1 [N, K]."""
    chances: list[float] = []
    kept: list[list[float]] = []
    for lost in product((False, True), repeat=len(pools)):
        gone = {p for p, is_lost in zip(pools, lost, strict=True) if is_lost}
        chances.append(math.prod(q if p in gone else 1.0 - q for p, q in pools.items()))
        kept.append([0.0 if o.pool in gone else 1.0 for o in found])
    return np.array(chances), np.array(kept)


def _few_pools(usable: list[int], options: Sequence[Option]) -> list[int]:
    """Leave out the spot pools with the dearest work, except those in use."""
    rank: dict[str, tuple[bool, float, str]] = {}
    for i in usable:
        o = options[i]
        if o.pool:
            key = (not o.held, o.usd_per_hour / o.work_per_s, o.pool)
            rank[o.pool] = min(rank.get(o.pool, key), key)
    kept = sorted(rank, key=lambda pool: rank[pool])[:MOST_POOLS]
    return [i for i in usable if not options[i].pool or options[i].pool in kept]


def load_solver() -> None:
    """Import the solver, so that the first choice does not have to."""
    import_module("scipy.optimize")


def _solved(cost: Floats, least: Floats, most: Floats, rows: Floats, low: Floats, high: Floats) -> Floats | None:
    """Whole numbers x of least `cost` with least <= x <= most and low <= rows x <= high; ``None`` if none is found."""
    # Imported here: it takes long, and only the choice of machines needs it.
    from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]

    found: Any = milp(
        cost,
        integrality=np.ones(len(cost)),
        bounds=Bounds(least, most),  # pyright: ignore[reportArgumentType]
        constraints=LinearConstraint(rows, low, high),  # pyright: ignore[reportArgumentType]
        options={"mip_rel_gap": 0.0, "node_limit": NODES},
    )
    if found.x is None:
        return None
    x: Floats = np.asarray(found.x, np.float64)
    return x


def _is_sound(option: Option) -> bool:
    numbers = (option.work_per_s, option.usd_per_hour, option.power_w, option.loss_per_hour, option.cold_start_s)
    sound = all(0 <= x < math.inf for x in (*numbers, option.carbon_g_per_kwh))
    return sound and option.work_per_s > 0 and option.most > 0 and option.most >= option.least
