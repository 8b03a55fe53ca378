"""The cost of a pool's machine: its current price and, if carbon has a price, its carbon."""

from typing import NamedTuple

from flyball_contracts.records import Evidence, Pool, WorkloadSpec
from flyball_streams.engine.cell.cycle import Cycle
from flyball_streams.engine.cell.machines.quotes import quote
from flyball_streams.engine.offers import offers_of

G_PER_KG, W_PER_KW = 1000.0, 1000.0


class Price(NamedTuple):
    """Cost of a machine in USD per hour, carbon included, and its carbon in g/h if known."""

    usd_per_hour: float
    carbon_g_per_hour: float | None
    power_w: float | None
    evidence: tuple[Evidence, ...]


def price_of(cycle: Cycle, pool: Pool, spec: WorkloadSpec) -> Price:
    """Price of a machine bought for a workload.

    An offer in the configuration (``worker.choice.offers``) with the name of the pool gives the current spot price and
    the power. Without one, the price of the pool counts.
    """
    offer = offers_of(cycle.cell, cycle.config.choice.offers).get(pool.pool)
    if offer is None:
        return Price(pool.price_usd_per_hour, None, None, ())
    quoted = quote(cycle.directory, cycle.cell, offer, spec, cycle.now_ns)
    usd = pool.price_usd_per_hour if quoted.usd_per_hour is None else quoted.usd_per_hour
    power_w = offer.power_w or None
    if power_w is None or quoted.carbon_g_per_kwh is None:
        return Price(usd, None, power_w, quoted.evidence)
    carbon_g = power_w / W_PER_KW * quoted.carbon_g_per_kwh
    usd += carbon_g / G_PER_KG * cycle.config.choice.usd_per_carbon_kg
    return Price(usd, carbon_g, power_w, quoted.evidence)
