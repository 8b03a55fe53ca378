"""Parameters of the engine: the worker's configuration, and constants that only tests and benchmarks vary.

Each class adds constants to a section of the configuration. Their values are the best in the benchmarks, or those that
the rest of the engine assumes; comments name the compromises.
"""

from math import ceil
from typing import Literal

from flyball_contracts.config import (
    HORIZON_TICKS,
    ChoiceConfig,
    ForecastConfig,
    HealthConfig,
    Offer,
    PoolsConfig,
    RightsizingConfig,
    SizingConfig,
    WorkerConfig,
)
from flyball_contracts.config.constants import with_constants
from flyball_contracts.ids import NS_PER_S


class ForecastParameters(ForecastConfig, frozen=True):
    """Forecasts; rates are per tick, 0 to 1, and were chosen by ``bench/forecast.py``."""

    # Damped exponential smoothing on log1p.
    level_rate: float = 0.3
    trend_rate: float = 0.05
    damping: float = 0.9
    # A minute ahead at ticks of a second: longer than most cold starts, short enough to be judged while it matters.
    horizon_ticks: int = HORIZON_TICKS
    # Coverage is judged at this distance.
    lead_ticks: int = 10
    # A forecast is made at each tick, and published once in so many ticks and whenever a proposal is based on it.
    publish_every_ticks: int = 10
    # How fast the conformal quantiles follow their errors.
    conformal_rate: float = 0.05
    levels: tuple[float, ...] = (0.05, 0.25, 0.5, 0.75, 0.95)
    # A forecast is trusted while its coverage is this near to its level, once it has seen so many ticks.
    trust_tolerance: float = 0.15
    trust_after_ticks: int = 60


class SizingParameters(SizingConfig, frozen=True):
    """How demand becomes replicas; chosen by ``bench/headroom.py`` and the backtests."""

    # A change of at most this share of the replicas is not decided.
    tolerance: float = 0.1
    # For workloads without an objective: the wait beyond which work is late, and what late work costs in idle capacity.
    delay_s: float = 5.0
    late_cost: float = 99.0
    # What is estimated from telemetry; estimates start from the owner's values and leave them only on evidence.
    measured: tuple[Literal["capacity", "cold_start"], ...] = ("capacity", "cold_start")
    # How far the headroom moves in a minute in which all work was late, in spreads: z adapts slowly and steadily.
    headroom_rate: float = 0.02
    # shadow_selection: how long the cost of a policy counts, and how far the logarithm of the price of late work moves
    # in a minute in which all the usual work was late.
    memory_s: float = 1_209_600.0
    price_rate: float = 0.003
    # Quantile of a trusted forecast up to which the need is raised.
    forecast_level: float = 0.5
    # forecast_band: quantile that is provided for, and the one below which capacity is taken away.
    level: float = 0.95
    down_level: float = 0.75
    # A target gets a decision a minute; before a decision that may come sooner, replicas need this long to show an
    # effect.
    cooldown_s: float = 15.0
    # At most this many times the ready replicas are requested, or four more; 0: no bound.
    growth: float = 4.0


class RightsizingParameters(RightsizingConfig, frozen=True):
    """Resource requests of a replica; the times suit a day of usage."""

    # How often the requests of a workload are checked, and how long its usage must have been measured before.
    every_s: float = 3_600.0
    after_s: float = 86_400.0


class ChoiceParameters(ChoiceConfig, frozen=True):
    """Which machines serve a workload; chosen by ``bench/choice.py``."""

    # Machines of a workload are chosen at most this often, and changed only to save at least this share of its cost.
    every_s: float = 600.0
    least_saving: float = 0.1
    # An offer that did not deliver, or lost machines, is not used for this long.
    retry_s: float = 1_800.0

    @property
    def usable(self) -> tuple[Offer, ...]:
        """The offers to choose from: none in mode ``off``."""
        return () if self.mode == "off" else self.offers


class PoolsParameters(PoolsConfig, frozen=True):
    """When machines are bought and returned."""

    # Work must have lacked room for this long: a machine takes minutes to start and is billed from then on, and most of
    # the lacking room becomes free, or is made by preemption, sooner.
    buy_after_s: float = 60.0


class HealthParameters(HealthConfig, frozen=True):
    """When a device counts as anomalous, and what follows."""

    # A cordoned and empty node is checked after this time without new symptoms: longer than most bursts of errors, and
    # shorter than its incident lasts.
    check_after_s: float = 300.0


class Parameters(WorkerConfig, frozen=True):
    """The worker's configuration with the constants of all parts of the engine."""

    # How far behind the others a node may be before its tick closes without it.
    lateness_ticks: int = 5
    # A lane that is behind has a backlog, and a sum without it would look like a drop of demand: ticks wait longer for
    # it than for a node.
    lane_lateness_s: float = 60.0
    # How far ahead of the others a message may be before it is rejected.
    max_ahead_ticks: int = 120
    # A decision must not be carried out later than this after its tick: well below the age at which the actuator
    # refuses any (MAX_AGE_S), and longer than a worker or an actuator needs to restart.
    decision_ttl_s: float = 120.0
    # How often profiles, and with them capacities, are made again.
    profile_every_ticks: int = 60
    # Jobs that can be put off are planned in slots of this length, which most grids' curves have.
    slot_s: float = 900.0
    forecast: ForecastParameters = ForecastParameters()
    sizing: SizingParameters = SizingParameters()
    rightsizing: RightsizingParameters = RightsizingParameters()
    choice: ChoiceParameters = ChoiceParameters()
    health: HealthParameters = HealthParameters()
    pools: PoolsParameters = PoolsParameters()

    def lane_lateness_ticks(self, period_ns: int) -> int:
        """How far a lane may be behind the others, in ticks: at least one more than it may have to wait for a node."""
        return max(ceil(self.lane_lateness_s * NS_PER_S / period_ns), self.lateness_ticks + 1)


def parameters(config: WorkerConfig) -> Parameters:
    """Return ``config`` with the constants; unchanged if it has them already."""
    return with_constants(Parameters, config)
