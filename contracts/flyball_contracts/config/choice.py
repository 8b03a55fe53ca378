"""Configuration of the choice among what can be bought: GPU types, parts of GPUs, on-demand, spot and reserved."""

from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.base import Count, NotNegative, Positive, Ratio, Section

OfferName = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Profile = Annotated[
    str, msgspec.Meta(pattern=r"^([0-9]+g\.[0-9]+gb)?$", description="a MIG profile like 1g.10gb, or nothing")
]
Risk = Annotated[float, msgspec.Meta(ge=0, lt=1)]


class Offer(Section, frozen=True, kw_only=True):
    """One kind of machine that may be used, in one market and place.

    ``gpu_model`` is the name that the inventories have for it; with ``gpu_profile`` each machine has ``gpus`` instances
    of that profile, else as many whole GPUs. A replica pays for its part of a machine. What runs on a node counts as
    this offer where model, profile and market are its own, and ``instance_type`` and ``zone`` too where they are
    named; ``zone`` may also be the node's availability zone. ``reserved`` stands for owned machines as well.

    ``signals`` is the zone under which the feeds publish ``spot_price`` (of a machine) and ``spot_risk``, empty:
    that of ``zone``; for spot they go before ``price_usd_per_hour`` and ``loss_per_hour``, which count while the
    feeds have nothing. Carbon is that of ``zone``, empty: the workload's. Spot of one GPU type in one zone counts
    as reclaimed together. ``power_w`` is a machine's. ``at_most`` machines are to be had in a cell, one is there
    ``start_s`` after it was requested. Of ``reserved`` ones those that are there are all; an offer with the
    ``name`` of a pool of the cell has those that are there and those that the pool may buy. ``speed`` is the work
    of a replica relative to the other offers that say so, for workloads whose architecture is not known. Only the
    ``cells`` named may use it; none: all.
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
        """Refuse an offer without any source of a price."""
        has_signals = self.market == "spot" and (self.signals or self.zone)
        if self.price_usd_per_hour is None and not has_signals:
            raise ValueError(
                f"offer {self.name!r} has no price; give price_usd_per_hour"
                + (", or signals, the zone of its spot_price" if self.market == "spot" else "")
            )


class ChoiceConfig(Section, frozen=True):
    """Which machines serve an inference workload, by cost and carbon; without ``offers`` nothing is chosen.

    ``advise`` only says so, on the topic of insights and the dashboard; ``act`` also decides, by a ``Scale`` with a
    ``mix``, and then sizes by it: give it a driver that heeds the mix.

    A workload is chosen for anew at most once in ten minutes, and moved only for a saving of a tenth of what it costs;
    in between it only gets more, or less, of what there is. Moving is paid back in an hour. An offer that did not
    deliver, or lost what it had delivered, gives no more for half an hour. Spot is bounded by the objective of the
    workload; beside that ``survive`` of the work must still be served after the loss of any one spot pool. A kilogram
    of carbon costs ``usd_per_carbon_kg``.
    """

    mode: Literal["off", "advise", "act"] = "advise"
    offers: tuple[Offer, ...] = ()
    survive: Ratio = 0.0
    usd_per_carbon_kg: NotNegative = 0.0

    def __post_init__(self) -> None:
        """Refuse two offers of one name."""
        names = [offer.name for offer in self.offers]
        twins = sorted({name for name in names if names.count(name) > 1})
        if twins:
            raise ValueError(f"two offers are named {twins[0]!r}; give each a name of its own")
