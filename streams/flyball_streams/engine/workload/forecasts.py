"""What is forecast of workloads, as records; all of a tick at once, for the slicing is most of the work."""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from flyball_contracts.config import ForecastConfig
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Forecast, Tick
from flyball_streams.engine.workload.forecaster import View
from flyball_streams.engine.workload.sizer import forecast_id

SHOWN_HORIZONS = 12


class Forecasts:
    """Makes the records of one cell."""

    def __init__(self, cell: str, config: ForecastConfig) -> None:
        self.cell = cell
        self.config = config
        horizons = config.horizon_ticks
        self._ahead = sorted({round(h) for h in np.linspace(1, horizons, min(SHOWN_HORIZONS, horizons)).tolist()})

    def records(self, tick: Tick, views: Mapping[str, View]) -> Iterator[Forecast]:
        """Records of the views of one tick, by workload, in their order."""
        if not views:
            return
        made, slots = next(iter(views.values())).made, np.array([view.slot for view in views.values()])
        rows = np.array(self._ahead) - 1
        quantiles = np.expm1(made.logs[:, rows[:, None], slots]).transpose(2, 1, 0).tolist()
        coverage = made.coverage[:, slots].T
        covered = coverage.tolist()
        shares = made.shares[:, slots].T.tolist()
        horizon_s = tuple(h * tick.period_ns / NS_PER_S for h in self._ahead)
        for i, (name, view) in enumerate(views.items()):
            yield Forecast(
                id=forecast_id(self.cell, name, tick.index),
                subject=name,
                cell=self.cell,
                time_ns=tick.end_ns,
                observed=view.observed,
                levels=self.config.levels,
                horizon_s=horizon_s,
                quantiles=tuple(map(tuple, quantiles[i])),
                coverage=tuple(covered[i]) if math.isfinite(sum(covered[i])) else (),
                trusted=view.trusted,
                model=f"{self.config.model}+conformal",
                experts=dict(zip(made.experts, shares[i], strict=True)),
            )
