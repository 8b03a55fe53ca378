"""Configuration of machine choice: GPU types, MIG profiles, on-demand, spot and reserved machines."""

from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.base import Count, NotNegative, Positive, Ratio, Section

OfferName = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Profile = Annotated[
    str, msgspec.Meta(pattern=r"^([0-9]+g\.[0-9]+gb)?$", description="a MIG profile like 1g.10gb, or nothing")
]
Risk = Annotated[float, msgspec.Meta(ge=0, lt=1)]


class Offer(Section, frozen=True, kw_only=True):
    """One kind of machine, in one market and place, that may be used.

    ``gpu_model`` is its name in the inventories; with ``gpu_profile`` each machine has ``gpus`` instances of that
    profile, else as many whole GPUs. A replica pays for its share of a machine. A node counts as this offer if model,
    profile and market are equal, and also ``instance_type`` and ``zone`` if they are given; ``zone`` may also be the
    node's availability zone. ``reserved`` includes owned machines. ``signals`` is the zone under which the feeds
    publish ``spot_price`` (of a machine) and ``spot_risk``; empty: that of ``zone``. For spot they take precedence over
    ``price_usd_per_hour`` and ``loss_per_hour``, which are used while the feeds have no value. Carbon is that of
    ``zone``; empty: the workload's. Spot machines of one GPU type in one zone count as reclaimed together. ``power_w``
    is the power of a machine. A cell may have ``at_most`` machines; one starts within ``start_s``. A ``reserved`` offer
    is limited to existing machines. An offer that is named as a pool of the cell is limited to existing machines and
    those that the pool may still buy. ``speed`` is the work of a replica relative to other offers with a ``speed``, for
    workloads whose architecture is not known. Only the named ``cells`` may use it; none named: all.
    """

    name: OfferName
    gpu_model: OfferName
    gpu_profile: Profile = ""
    gpus: Count = 1
    market: Literal["on_demand", "spot", "reserved"] = "on_demand"
    instance_type: str = ""
    zone: str = ""
    signals: str = ""
    price_usd_per_hour: NotNegative | None = None
    loss_per_hour: Risk | None = None
    power_w: NotNegative = 0.0
    at_most: Count = 1_000
    start_s: NotNegative = 300.0
    speed: Positive | None = None
    cells: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Reject an offer without any source of a price."""
        has_signals = self.market == "spot" and (self.signals or self.zone)
        if self.price_usd_per_hour is None and not has_signals:
            raise ValueError(
                f"offer {self.name!r} has no price; give price_usd_per_hour"
                + (", or signals, the zone of its spot_price" if self.market == "spot" else "")
            )


class ChoiceConfig(Section, frozen=True):
    """Which machines serve an inference workload, by cost and carbon; without ``offers`` nothing is chosen.

    ``advise`` publishes choices as insights and on the dashboard; ``act`` also decides, by a ``Scale`` with a ``mix``,
    and then sizes by it: its driver must support the mix. A new choice for a workload is made at most once in ten
    minutes, and moves replicas only if it saves a tenth of their cost; in between, replicas are only added to or
    removed from the offers in use. Moving must pay back within an hour. An offer that did not deliver, or lost
    delivered machines, is not used for half an hour. The workload's objective limits spot; in addition, the share
    ``survive`` of the work must still be served after the loss of any one spot pool. A kilogram of carbon costs
    ``usd_per_carbon_kg``.
    """

    mode: Literal["off", "advise", "act"] = "advise"
    offers: tuple[Offer, ...] = ()
    survive: Ratio = 0.0
    usd_per_carbon_kg: NotNegative = 0.0

    def __post_init__(self) -> None:
        """Reject two offers with one name."""
        names = [offer.name for offer in self.offers]
        twins = sorted({name for name in names if names.count(name) > 1})
        if twins:
            raise ValueError(f"two offers are named {twins[0]!r}; give each a name of its own")
