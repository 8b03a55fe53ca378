"""Current cost, carbon and loss rate of a machine of an offer, from signals and the configuration."""

from typing import NamedTuple

from flyball_contracts.codec import BINDINGS
from flyball_contracts.config import Offer
from flyball_contracts.records import Evidence, Pool, Signal, WorkloadSpec
from flyball_contracts.records.signals import SignalKind
from flyball_streams.engine.fleet_index import FleetIndex

UNITS: dict[SignalKind, str] = {"spot_price": "USD/h", "spot_risk": "1/h", "carbon_intensity": "g/kWh"}


class Quote(NamedTuple):
    """Current cost and loss rate of a machine of an offer, and their evidence; ``None``: unknown.

    ``carbon_g_per_kwh`` is ``None`` without a signal.
    """

    usd_per_hour: float | None
    loss_per_hour: float | None
    carbon_g_per_kwh: float | None
    evidence: tuple[Evidence, ...]


def quote(directory: FleetIndex, cell: str, offer: Offer, spec: WorkloadSpec, now_ns: int) -> Quote:
    """Current quote of an offer; an offer without a price of its own has that of the pool with its name."""
    evidence: list[Evidence] = []

    def latest(kind: SignalKind, zone: str) -> float | None:
        signal = directory.signals.get((zone, kind)) if zone else None
        value = signal.at(now_ns) if signal is not None and signal.published_ns <= now_ns else None
        if signal is None or value is None:
            return None
        evidence.append(Evidence(name=kind, value=value, unit=UNITS[kind], record=signal_id(signal)))
        return value

    usd, loss = offer.price_usd_per_hour, None
    if offer.market == "spot":
        zone = offer.signals or offer.zone
        price, risk = latest("spot_price", zone), latest("spot_risk", zone)
        usd, loss = usd if price is None else price, offer.loss_per_hour if risk is None else risk
    if usd is None and (pool := pool_of(directory, cell, offer)) is not None:
        usd = pool.price_usd_per_hour
    carbon = latest("carbon_intensity", offer.zone or directory.zone_of(spec.workload, cell))
    return Quote(usd, loss if offer.market == "spot" else 0.0, carbon, tuple(evidence))


def pool_of(directory: FleetIndex, cell: str, offer: Offer) -> Pool | None:
    """The cell's pool with the name of an offer: its machines are bought from there."""
    pool = directory.pools.get(offer.name)
    return pool if pool is not None and pool.cell == cell else None


def signal_id(signal: Signal) -> str:
    """Record id of a signal."""
    return BINDINGS[Signal].identity(signal)
