"""Forecast records; all of a tick at once, as slicing is most of the work."""

import math
from collections.abc import Iterator, Mapping
from itertools import repeat

import numpy as np

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Forecast, Tick
from flyball_streams.engine.parameters import ForecastParameters
from flyball_streams.engine.rows import rows
from flyball_streams.engine.workload.forecast.forecaster import View
from flyball_streams.engine.workload.sizing.sizer import forecast_id

SHOWN_HORIZONS = 12


class Forecasts:
    """Makes the records of one cell."""

    def __init__(self, cell: str, config: ForecastParameters) -> None:
        self.cell = cell
        self.config = config
        horizons = config.horizon_ticks
        self._ahead = sorted({round(h) for h in np.linspace(1, horizons, min(SHOWN_HORIZONS, horizons)).tolist()})

    def records(self, tick: Tick, views: Mapping[str, View]) -> Iterator[Forecast]:
        """Records of the views of one tick, by workload, in their order."""
        if not views:
            return
        made, slots = next(iter(views.values())).made, np.array([view.slot for view in views.values()])
        ahead = np.array(self._ahead)[:, None] - 1
        quantiles: list[list[list[float]]] = np.expm1(made.logs[:, ahead, slots]).transpose(2, 1, 0).tolist()
        covered = made.coverage[:, slots].T.tolist()
        shares = made.shares[:, slots].T.tolist()
        yield from rows(
            Forecast,
            id=[forecast_id(self.cell, name, tick.index) for name in views],
            subject=views,
            cell=repeat(self.cell),
            time_ns=repeat(tick.end_ns),
            observed=[view.observed for view in views.values()],
            levels=repeat(self.config.levels),
            horizon_s=repeat(tuple(h * tick.period_ns / NS_PER_S for h in self._ahead)),
            quantiles=[tuple(map(tuple, of)) for of in quantiles],
            coverage=[tuple(of) if math.isfinite(sum(of)) else () for of in covered],
            trusted=made.trusted[slots].tolist(),
            model=repeat(f"{self.config.model}+conformal"),
            experts=[dict(zip(made.experts, of, strict=True)) for of in shares],
        )
