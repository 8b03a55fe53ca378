"""Explanation of a choice: its offers, its cost compared with the best single offer, and the risk of spot."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flyball_contracts.config import Offer
from flyball_contracts.records import Evidence, Portion, WorkloadSpec
from flyball_models.capacity import gpus
from flyball_models.sizing.choice import Mix, Option
from flyball_streams.engine.cell.machines.quotes import Quote
from flyball_streams.engine.offers import part_of


class Priced(NamedTuple):
    """An offer with its quote, as an option of the choice."""

    offer: Offer
    quote: Quote
    option: Option


class Alone(NamedTuple):
    """Cost of one offer that is not spot, if it served all work."""

    replicas: int
    priced: Priced

    @property
    def usd_per_hour(self) -> float:
        """Total cost."""
        return self.replicas * self.priced.option.usd_per_hour


def alone(options: Sequence[Priced], work: float, most_replicas: int) -> Alone | None:
    """Return the cheapest non-spot offer that can serve all the work, ``None`` if there is none."""
    found: list[Alone] = []
    for priced in options:
        n = max(1, math.ceil(work / priced.option.work_per_s - 1e-9))
        if not priced.option.pool and n <= min(priced.option.most, most_replicas):
            found.append(Alone(n, priced))
    return min(found, key=lambda a: (a.usd_per_hour, a.priced.offer.name), default=None)


def portions(
    spec: WorkloadSpec, options: Sequence[Priced], counts: Mapping[str, int], before: Mapping[str, int]
) -> tuple[Portion, ...]:
    """Replicas on each offer, including those that drop to zero."""
    return tuple(
        Portion(
            offer=name,
            replicas=counts[name],
            replicas_before=before.get(name, 0),
            market=priced.offer.market,
            gpu_model=priced.offer.gpu_model,
            gpu_profile=priced.offer.gpu_profile,
            gpus=spec.gpus_per_replica,
            instance_type=priced.offer.instance_type,
            zone=priced.offer.zone,
            usd_per_hour=_known(priced.quote.usd_per_hour, part_of(spec, priced.offer).machines),
            carbon_g_per_hour=priced.option.carbon_g_per_hour if _has_carbon(priced) else None,
            power_w=priced.option.power_w or None,
        )
        for priced in options
        for name in (priced.offer.name,)
        if counts.get(name) or before.get(name)
    )


def explained(
    options: Sequence[Priced], counts: Mapping[str, int], mix: Mix, rival: Alone | None
) -> tuple[str, tuple[Evidence, ...]]:
    """Part of a sentence about a choice, and its evidence."""
    used = [p for p in options if counts.get(p.offer.name)]
    grams = all(_has_carbon(p) for p in used)
    runs = " and ".join(f"{counts[p.offer.name]} {_kind(p.offer)}" for p in used) or "nothing that is on offer"
    parts = [f"{runs} cost {_price(mix.usd_per_hour, mix.carbon_g_per_hour if grams else None)}"]
    if rival is not None:
        carbon = rival.replicas * rival.priced.option.carbon_g_per_hour if _has_carbon(rival.priced) else None
        parts.append(
            f"{rival.replicas} {_kind(rival.priced.offer)} alone would cost {_price(rival.usd_per_hour, carbon)}"
        )
    spot = [p for p in used if p.option.pool]
    if spot:
        risk, pool = max((p.option.lost, p.option.pool) for p in spot)
        most = sum(counts[p.offer.name] for p in spot if p.option.pool == pool)
        lead_s = max(p.option.cold_start_s for p in spot if p.option.pool == pool)
        parts.append(
            f"spot may lose {most} of them at once, with {_percent(risk)} in the {lead_s / 60.0:.2g} min that others "
            f"take, and {_percent(mix.lost)} of the work is late for it"
        )
    evidence = [
        Evidence(
            name="choice.cost",
            value=mix.usd_per_hour,
            expected=None if rival is None else rival.usd_per_hour,
            unit="USD/h",
        ),
        Evidence(name="choice.lost", value=mix.lost),
    ]
    if spot:
        rate, quoted_rate = max((p.option.loss_per_hour, p.quote.loss_per_hour or 0.0) for p in spot)
        evidence.append(Evidence(name="choice.loss_rate", value=rate, expected=quoted_rate, unit="1/h"))
    if grams:
        evidence.append(Evidence(name="choice.carbon", value=mix.carbon_g_per_hour, unit="g/h"))
    quoted = {e: None for p in options for e in p.quote.evidence}
    return "; ".join(parts), (*evidence, *quoted)


def without_room(options: Sequence[Priced], counts: Mapping[str, int]) -> str:
    """Part of a sentence about cheaper offers without room; empty if there are none."""
    used = [p for p in options if counts.get(p.offer.name, 0) > p.option.held]
    dearest = max((_usd_per_work(p) for p in used), default=0.0)
    full = [p for p in options if counts.get(p.offer.name, 0) >= p.option.most and _usd_per_work(p) < dearest]
    if not full:
        return ""
    names = " and ".join(_kind(p.offer) for p in full)
    return f"{names} would cost less and {'has' if len(full) == 1 else 'have'} no more room"


def _usd_per_work(priced: Priced) -> float:
    return priced.option.usd_per_hour / priced.option.work_per_s


def _kind(offer: Offer) -> str:
    chip = gpus.find(offer.gpu_model)
    gpu = chip.name.upper() if chip is not None else offer.gpu_model
    part = f"{offer.gpu_profile} of {gpu}" if offer.gpu_profile else gpu
    return f"{offer.market.replace('_', '-')} {part}" + (f" in {offer.zone}" if offer.zone else "")


def _has_carbon(priced: Priced) -> bool:
    return priced.quote.carbon_g_per_kwh is not None and priced.offer.power_w > 0


def _known(value: float | None, times: float) -> float | None:
    return None if value is None else value * times


def _price(usd: float, grams: float | None) -> str:
    return f"{usd:.3g} USD/h" + ("" if grams is None else f" and {grams / 1000.0:.2g} kgCO2e/h")


def _percent(share: float) -> str:
    return f"{100.0 * share:.2g} %"
