"""The event-driven engine in place of the fluid one, for demand that is short enough to tune with it."""

from collections.abc import Sequence

from flyball_streams.backtest.demands.demand import Demand
from flyball_streams.backtest.events.requests import Source
from flyball_streams.backtest.events.run import service_for, simulate
from flyball_streams.backtest.policies.groups import Setting
from flyball_streams.backtest.policies.prepared import PreparedDemand
from flyball_streams.backtest.run import Run, Scenario
from flyball_streams.backtest.sweep import Engine

MOST_REQUESTS = 3_000_000
"""More requests would take hours to tune with."""


def single_requests(demands: Sequence[Demand], source: Source) -> Engine:
    """Return an engine that simulates every request of the demands, which are in the order of their seeds.

    Raises ``ValueError`` for demand of more than :data:`MOST_REQUESTS`.
    """
    count = sum(float(demand.requests.sum()) for demand in demands)
    if count > MOST_REQUESTS:
        raise ValueError(
            f"{demands[0].name}: {count:,.0f} requests are too many to tune with one by one; tune with the fluid "
            "engine and let single requests confirm it (engine 'both')"
        )
    requests = [source(demand, [(0, len(demand.work))], seed)[0] for seed, demand in enumerate(demands)]
    service = service_for(requests[0])

    def engine(
        seed: int,
        shared: PreparedDemand,
        setting: Setting,
        world: Scenario,
        *,
        record: bool = False,
        delays_from_s: int = 0,
    ) -> Run:
        return simulate(
            shared.demand,
            requests[seed],
            setting.policy,
            world,
            setting.bounds,
            service=service,
            record=record,
            delays_from_s=delays_from_s,
        ).run

    return engine
