"""How often spot machines are lost: a feed's rate, corrected by the losses observed here."""

import math
from collections.abc import Mapping

from flyball_contracts.records import Tick

PRIOR_H = 4.0
"""Hours of own spot machines that weigh as much as a feed's rate."""
MEMORY_H = 72.0
"""Own losses fade with this time constant: zones change from week to week."""
NS_PER_H = 3.6e12
Seen = tuple[float, float, int]
"""Shares lost of what workloads held, summed; hours that workloads held any, summed; both fading; until when, ns."""


class Losses:
    """Loss rates of a cell's spot offers.

    Losses come as a Poisson process, whose rate has a Gamma prior with the feed's rate as mean and the weight of
    ``TOLD_H``. A feed knows the mean of a market, or that a zone has less room than before; which share of what is held
    here goes in an hour only its own machines tell.
    """

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}

    def saw(self, offer: str, tick: Tick, lost: float) -> None:
        """Count a tick at whose start some was held, and the share of it that was lost."""
        before, hours, at_ns = self.seen.get(offer, (0.0, 0.0, tick.end_ns))
        fade = math.exp(-max(0, tick.end_ns - at_ns) / NS_PER_H / MEMORY_H)
        self.seen[offer] = before * fade + lost, hours * fade + tick.period_ns / NS_PER_H, tick.end_ns

    def per_hour(self, offer: str, prior: float) -> float:
        """Return the probability of loss in an hour; ``prior``, below 1, is the feed's."""
        lost, hours, _ = self.seen.get(offer, (0.0, 0.0, 0))
        return -math.expm1((math.log1p(-prior) * PRIOR_H - lost) / (PRIOR_H + hours)) if prior < 1.0 else prior

    def state(self) -> dict[str, Seen]:
        """State for a snapshot."""
        return dict(self.seen)

    def load(self, state: Mapping[str, Seen]) -> None:
        """Take on the state of a snapshot."""
        self.seen = {offer: (lost, hours, at_ns) for offer, (lost, hours, at_ns) in state.items()}
