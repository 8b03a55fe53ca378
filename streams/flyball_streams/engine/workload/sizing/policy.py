"""What a policy of the sizer is: what it is shown of a tick, and what it says that workloads need."""

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
    """What J workloads need, [J] each: replicas (NaN: unknown), and what that follows from, by place in :data:`BASES`.

    ``load`` is the work that a replica is given, ``work`` what is needed, ``ahead`` what the forecast sees at its
    quantile ``level``, NaN where it is not trusted, and ``lead_s`` how far ahead.
    """

    replicas: Floats
    base: Ints
    load: Floats
    work: Floats
    ahead: Floats
    level: Floats
    lead_s: Floats


BASES = ("start", "headroom", "forecast", "present")
"""Demand while little is known of the workload; level and spread; the forecast; or what is there and waits."""
FORECAST, PRESENT = 2, 3


class Leader(NamedTuple):
    """Which of the policies ``tried`` in the shadow since second ``since_s`` leads, and by how much.

    It would have been billed ``hours`` replica-hours and been ``late`` for a share of the work, each second of which
    counts as ``price`` replica seconds; ``after`` comes next and is ``dearer`` by a share.
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
    """One tick of J workloads that ends at second ``t_s``, with what is remembered of them in ``columns`` at ``rows``.

    ``now`` is what was observed, ``backlog`` what waits in replica seconds (NaN: unknown) and ``usual`` the target
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
        """Seconds until a replica ordered now is ready, as far as there is a forecast [J]."""
        return (self.lead * self.period_s).astype(np.float64)

    @property
    def last(self) -> Ints:
        """The last tick ahead that counts: the hold after the lead time [J]."""
        hold = int(np.ceil(self.sizing.reversal_cooldown_s / self.period_s))
        return np.minimum(self.lead + hold, self.forecast.horizon_ticks)

    def ahead(self, level: float, first: Ints) -> Floats:
        """The most that trusted forecasts see from the tick `first` on, at the quantile nearest to `level` [J]."""
        most = self.forecaster.most(self.slots, nearest(self.forecast.levels, level), first, self.last)
        return np.where(self.trusted, most, np.nan)


class Policy(NamedTuple):
    """``need`` says what workloads need; ``rule`` is how their record is kept, by which it is explained.

    A policy may have ``floats`` of its own memory per workload; ``led`` tells from those who leads.
    """

    need: Callable[[PolicyInput], Basis]
    rule: Rule
    floats: int = 0
    led: Callable[[Floats], Leader | None] | None = None
