"""One run of the event-driven engine; the result has the fluid engine's columns and request-level sums."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flyball_models.scaling import Policy
from flyball_streams.backtest import kernel as fluid
from flyball_streams.backtest.demands.demand import Demand
from flyball_streams.backtest.events import kernel
from flyball_streams.backtest.events.replicas import Service
from flyball_streams.backtest.events.requests import Requests, drawn
from flyball_streams.backtest.kernel import Bounds, Faults, Floats
from flyball_streams.backtest.policies.groups import Setting
from flyball_streams.backtest.policies.prepared import PreparedDemand
from flyball_streams.backtest.run import (
    NO_BOUNDS,
    Run,
    Scenario,
    blank,
    control_of,
    measure_of,
    once_in,
    sums_of,
    world_of,
)
from flyball_streams.backtest.sweep import Engine

WORKING_LOAD = 0.7
RESIDENCE_S = fluid.Plant(0).residence_s
MOST_REQUESTS = 3_000_000
"""With more requests than this, tuning would take hours."""


def single_requests(demands: Sequence[Demand]) -> Engine:
    """Return an engine that simulates every request of the demands, which are in the order of their seeds.

    Raises ``ValueError`` for demand of more than :data:`MOST_REQUESTS`.
    """
    count = sum(float(demand.requests.sum()) for demand in demands)
    if count > MOST_REQUESTS:
        raise ValueError(
            f"{demands[0].name}: {count:,.0f} requests are too many to tune with one by one; tune with the fluid "
            "engine and let single requests confirm it (engine 'both')"
        )
    requests = [drawn(demand, [(0, len(demand.work))], seed)[0] for seed, demand in enumerate(demands)]
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


class Served(NamedTuple):
    """A run, its number of requests, and its sums (columns of ``kernel``)."""

    run: Run
    given: int
    tally: Floats


def service_for(requests: Requests, fixed: float = Service(1).fixed) -> Service:
    """How replicas serve such requests, in the terms of the fluid engine.

    A full batch is so large that the mean request stays in it for the nominal residence time of the fluid engine. One
    unit of concurrency is what a replica holds at :data:`WORKING_LOAD`, divided by that load; so at that load a policy
    observes the same number in both engines.
    """
    first, rest = (float(x.mean()) if len(x) else 1.0 for x in (requests.first_s, requests.rest_s))
    slots = max(1, round(RESIDENCE_S / max(first + rest, 1e-3)))
    reading = WORKING_LOAD * first / (first + rest)
    busy = (WORKING_LOAD - reading) / (1.0 - reading)  # of the time between prompts
    batch = busy * (fixed * slots + 1.0 - fixed)
    if batch > 1.0:
        batch = slots * busy * fixed / (1.0 - busy * (1.0 - fixed))
    return Service(slots, fixed, (batch + reading) / WORKING_LOAD)


def simulate(
    demand: Demand,
    requests: Requests,
    policy: Policy,
    scenario: Scenario,
    bounds: Bounds = NO_BOUNDS,
    *,
    service: Service | None = None,
    from_s: int = 0,
    until_s: int | None = None,
    record: bool = False,
    delays_from_s: int = 0,
) -> Served:
    """Run a policy on single requests from second `from_s` to `until_s`; earlier demand runs in the fluid engine.

    `requests` are those of `demand` in that time. Spans before `from_s` have no meaning. `service` is how a replica
    serves; see :func:`service_for`.
    """
    end = len(demand.work) if until_s is None else min(until_s, len(demand.work))
    run = blank(end, policy, scenario, record=record)
    plant, cold, fails, fresh = world_of(demand, end, scenario)
    tally = np.zeros(kernel.TALLY)
    kernel.simulate(
        kernel.RequestInput(demand.work[:end], requests, service or service_for(requests), from_s),
        plant,
        cold,
        Faults(fails, fresh, once_in(end, scenario.restart_every_s, scenario.seed)),
        control_of(policy),
        bounds,
        measure_of(scenario, delays_from_s),
        sums_of(run),
        tally,
    )
    return Served(run, len(requests.at_s), tally)
