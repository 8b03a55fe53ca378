"""How often spot machines are lost: a feed's rate, corrected by the losses observed here."""

import math

import msgspec

PRIOR_H = 4.0
"""Hours of own spot machines that weigh as much as the feed's rate."""
MEMORY_H = 72.0
"""Time constant of own losses: zones change from week to week."""
NS_PER_H = 3.6e12
FadingSums = tuple[float, float, int]
"""Fading sums: shares of the held machines that were lost; hours in which any were held; and their time, ns."""


class Losses(msgspec.Struct):
    """Loss rates of a cell's spot offers.

    Losses are a Poisson process, whose rate has a Gamma prior with the feed's rate as mean and the weight of
    ``PRIOR_H``. A feed reports the mean of a market, or that a zone has less capacity than before; the share of our
    machines that is lost in an hour shows only in our own losses.
    """

    seen: dict[str, FadingSums] = {}

    def saw(self, offer: str, now_ns: int, period_ns: int, lost: float) -> None:
        """Count a tick that ends now and began with held machines, and the share of them that was lost."""
        before, hours, at_ns = self.seen.get(offer, (0.0, 0.0, now_ns))
        fade = math.exp(-max(0, now_ns - at_ns) / NS_PER_H / MEMORY_H)
        self.seen[offer] = before * fade + lost, hours * fade + period_ns / NS_PER_H, now_ns

    def per_hour(self, offer: str, prior: float) -> float:
        """Return the probability of loss in an hour; ``prior``, below 1, is the feed's."""
        lost, hours, _ = self.seen.get(offer, (0.0, 0.0, 0))
        return -math.expm1((math.log1p(-prior) * PRIOR_H - lost) / (PRIOR_H + hours)) if prior < 1.0 else prior
