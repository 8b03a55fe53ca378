"""A demand with everything that all policies share, so that it is computed once."""

from flyball_streams.backtest.demands.demand import Demand, requirement
from flyball_streams.backtest.kernel import Bounds, Floats, Flow, flow_of
from flyball_streams.backtest.policies.bounds import Engine


class PreparedDemand:
    """A demand and the values derived from it alone. ``engine`` is an engine and the index of this demand in it."""

    def __init__(self, demand: Demand, engine: tuple[Engine, int] | None = None) -> None:
        self.demand = demand
        self.flow: Flow = flow_of(demand.work, demand.requests)
        self._engine = engine
        self._needs: dict[tuple[int, float], Floats] = {}

    def need(self, delay_s: int, quantile: float = 0.9) -> Floats:
        """Replicas that each minute needs; see :func:`requirement`."""
        key = delay_s, quantile
        if key not in self._needs:
            self._needs[key] = requirement(self.demand, delay_s, quantile)
        return self._needs[key]

    def forecast(self, cold_start_s: float, level: int) -> Bounds:
        """Bounds by the engine's forecaster; `level` is an index into :data:`bounds.LEVELS`."""
        if self._engine is None or cold_start_s not in self._engine[0].upper:
            self._engine = Engine([self.demand], (cold_start_s,)), 0
        engine, place = self._engine
        return engine.bounds(place, cold_start_s, level)


def prepare(demands: list[Demand], cold_starts_s: tuple[float, ...], *, forecasts: bool) -> list[PreparedDemand]:
    """Prepare demands of one length. One pass makes all forecasts, at little more than the cost of one."""
    engine = Engine(demands, cold_starts_s) if forecasts else None
    return [PreparedDemand(demand, None if engine is None else (engine, i)) for i, demand in enumerate(demands)]
