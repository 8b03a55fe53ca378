"""A part of the machines that serve a workload."""

from collections.abc import Iterable
from typing import Literal

from flyball_contracts.records.base import Part


class Portion(Part, frozen=True, kw_only=True):
    """How many replicas run on one of the offers of the configuration, and how many did before.

    ``replicas`` 0 releases all of them. Each replica holds ``gpus`` GPUs or, with ``gpu_profile``, instances of it;
    cost, carbon and power are per replica, ``None``: unknown. ``instance_type`` and ``zone`` are empty if the offer
    leaves them open.
    """

    offer: str
    replicas: int
    replicas_before: int = 0
    market: Literal["on_demand", "spot", "reserved"] = "on_demand"
    gpu_model: str = ""
    gpu_profile: str = ""
    gpus: float = 1.0
    instance_type: str = ""
    zone: str = ""
    usd_per_hour: float | None = None
    carbon_g_per_hour: float | None = None
    power_w: float | None = None


def allocation(mix: Iterable[Portion]) -> str:
    """Replicas by offer, with the previous number where it changes, in a few words."""
    return ", ".join(
        f"{part.replicas} on {part.offer}"
        if part.replicas == part.replicas_before
        else f"{part.replicas_before} → {part.replicas} on {part.offer}"
        for part in mix
    )
