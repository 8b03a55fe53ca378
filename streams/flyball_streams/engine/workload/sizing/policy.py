"""The interface of a sizing policy: its input per tick, and the needs that it returns."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.sizing.slo_headroom import Rule, Terms
from flyball_streams.engine.parameters import ForecastParameters, SizingParameters
from flyball_streams.engine.workload.forecast.forecaster import Forecaster, nearest
from flyball_streams.engine.workload.sizing.columns import Columns, Floats, Ints, Observed

DRAIN_S = 60.0


class Basis(NamedTuple):
    """Needs of J workloads, [J] each: replicas (NaN: unknown), and ``base``, an index into :data:`BASES`.

    ``load`` is the work per replica, ``work`` the needed work, ``ahead`` the forecast at its quantile ``level``, NaN if
    it is not trusted, and ``lead_s`` how far ahead.
    """

    replicas: Floats
    base: Ints
    load: Floats
    work: Floats
    ahead: Floats
    level: Floats
    lead_s: Floats


BASES = ("start", "headroom", "forecast", "present")
"""Basis of a need: present demand while history is short; level and spread; the forecast; or present work and backlog.
"""
FORECAST, PRESENT = 2, 3


class Leader(NamedTuple):
    """The leading one of the policies ``tried`` in the shadow since second ``since_s``, and its lead.

    It would have been billed ``hours`` replica-hours and been ``late`` for a share of the work, each second of which
    counts as ``price`` replica seconds; ``after`` is the next best and is ``dearer`` by a share.
    """

    leader: str
    tried: int
    since_s: float
    hours: float
    late: float
    price: float
    after: str
    dearer: float


class PolicyInput(NamedTuple):
    """One tick of J workloads that ends at second ``t_s``, with their state in ``columns`` at ``rows``.

    ``now`` is the observation, ``backlog`` the waiting work in replica seconds (NaN: unknown) and ``usual`` the target
    utilisation, float64 [J]. Their forecasts are in ``slots`` of the forecaster and may be ``trusted``; a replica
    ordered now is ready in ``lead`` ticks of ``period_s``. ``terms`` [N] are the objectives.
    """

    t_s: float
    period_s: float
    columns: Columns
    terms: Terms
    rows: Ints
    seen: Observed
    now: Floats
    backlog: Floats
    usual: Floats
    lead: Ints
    slots: Ints
    trusted: NDArray[np.bool_]
    forecaster: Forecaster
    forecast: ForecastParameters
    sizing: SizingParameters

    @property
    def lead_s(self) -> Floats:
        """Seconds until a replica ordered now is ready, at most the horizon of the forecast [J]."""
        return (self.lead * self.period_s).astype(np.float64)

    @property
    def last(self) -> Ints:
        """The last tick ahead that counts: the end of the hold after the lead time [J]."""
        hold = int(np.ceil(self.sizing.reversal_cooldown_s / self.period_s))
        return np.minimum(self.lead + hold, self.forecast.horizon_ticks)

    def ahead(self, level: float, first: Ints) -> Floats:
        """Maximum of trusted forecasts from tick `first` on, at the quantile nearest to `level` [J]."""
        most = self.forecaster.most(self.slots, nearest(self.forecast.levels, level), first, self.last)
        return np.where(self.trusted, most, np.nan)


class Policy(NamedTuple):
    """``need`` returns the needs of workloads; ``rule`` updates the history that explanations use.

    A policy may keep ``floats`` of its own state per workload; ``led`` reads the leader from it.
    """

    need: Callable[[PolicyInput], Basis]
    rule: Rule
    floats: int = 0
    led: Callable[[Floats], Leader | None] | None = None
