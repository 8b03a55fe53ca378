"""What a machine of a pool costs: its price now and, where carbon has one, its carbon."""

from typing import NamedTuple

from flyball_contracts.records import Evidence, Pool, WorkloadSpec
from flyball_streams.engine.cell.cycle import Cycle
from flyball_streams.engine.cell.machines.quotes import quote
from flyball_streams.engine.offers import offers_of

G_PER_KG, W_PER_KW = 1000.0, 1000.0


class Price(NamedTuple):
    """USD that a machine costs in an hour, its carbon in it, and the carbon in g/h where that is known."""

    usd_per_hour: float
    carbon_g_per_hour: float | None
    power_w: float | None
    evidence: tuple[Evidence, ...]


def price_of(cycle: Cycle, pool: Pool, spec: WorkloadSpec) -> Price:
    """What a machine costs that is bought for a workload.

    An offer of the configuration (``worker.choice.offers``) that has the name of the pool tells the spot price now and
    the power, as it does for the choice of machines. Without one, it is the price of the pool.
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
