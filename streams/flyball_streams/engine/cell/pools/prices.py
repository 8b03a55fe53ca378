"""The cost of a pool's machine: its current price and, if carbon has a price, its carbon."""

from collections.abc import Mapping
from typing import NamedTuple

from flyball_contracts.config import Offer
from flyball_contracts.records import Evidence, Pool, WorkloadSpec
from flyball_streams.engine.cell.cycle import Cycle
from flyball_streams.engine.workload.machines.offers import Book

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
    offer = _offers(cycle).get(pool.pool)
    if offer is None:
        return Price(pool.price_usd_per_hour, None, None, ())
    quote = Book(cycle.cell, (offer,), cycle.directory).quote(offer, spec, cycle.now_ns)
    usd = pool.price_usd_per_hour if quote.usd_per_hour is None else quote.usd_per_hour
    power_w = offer.power_w or None
    if power_w is None or quote.carbon_g_per_kwh is None:
        return Price(usd, None, power_w, quote.evidence)
    carbon_g = power_w / W_PER_KW * quote.carbon_g_per_kwh
    usd += carbon_g / G_PER_KG * cycle.config.choice.usd_per_carbon_kg
    return Price(usd, carbon_g, power_w, quote.evidence)


def _offers(cycle: Cycle) -> Mapping[str, Offer]:
    return {o.name: o for o in cycle.config.choice.offers if not o.cells or cycle.cell in o.cells}
