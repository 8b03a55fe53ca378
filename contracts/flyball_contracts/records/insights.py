"""Findings of the lanes; ``subject`` is a device, node or workload."""

from typing import Literal

import msgspec

from flyball_contracts.records.base import Evidence, Part, Record, StepS, TimeNs
from flyball_contracts.records.commands.portion import Portion


class Profile(Record, frozen=True):
    """How a device is used, exponentially weighted over recent ticks; ratios lie in 0..1.

    ``memory_bound`` is the share of memory in the limiting resources, ``None`` if the chip does not report it.
    ``swing_s`` is the time scale at which utilization varies most (wavelets over the last 128 ticks), ``period_s`` its
    period, and ``burstiness`` how much its fast part comes in bursts: 1 is noise. ``None`` if the device was seen for
    too short a time, is steady, or has no period. ``bound_by`` is the bottleneck of its work, ``phase`` the current
    phase, ``kind`` and ``family`` the kind of work and the model family by telemetry, each with its probability; empty
    if too little is known. ``family`` is ``unknown`` if it resembles no known one.
    """

    id: str
    subject: str
    cell: str
    node: str
    time_ns: TimeNs
    duty_cycle: float
    utilization: float
    memory_utilization: float | None = None
    memory_bound: float | None = None
    power_w: float | None = None
    idle_s: float = 0.0
    swing_s: float | None = None
    period_s: float | None = None
    burstiness: float | None = None
    workload: str = ""
    bound_by: str = ""
    bound_probability: float | None = None
    phase: str = ""
    kind: str = ""
    kind_probability: float | None = None
    family: str = ""
    family_probability: float | None = None


class Forecast(Record, frozen=True):
    """Demand of one workload at each horizon, as quantiles.

    ``quantiles[h][q]`` is the value at level ``levels[q]`` for ``horizon_s[h]`` seconds after ``time_ns``, in the
    work unit per second. ``coverage[q]`` is the share of past values that lay below level ``q``;
    ``trusted`` is false while that is too far from the level, and then sizing ignores the forecast. ``experts`` are
    the members of an ensemble, with the weight of each at the lead time; empty for other models.
    """

    id: str
    subject: str
    cell: str
    time_ns: TimeNs
    observed: float | None
    levels: tuple[float, ...]
    horizon_s: tuple[float, ...]
    quantiles: tuple[tuple[float, ...], ...]
    coverage: tuple[float, ...]
    trusted: bool
    model: str
    experts: dict[str, float] = msgspec.field(default_factory=dict[str, float])


class Anomaly(Record, frozen=True, kw_only=True):
    """A subject that departs from its own or its peers' behaviour; ``score`` lies in 0..1.

    ``since_ns`` is when it began, if known: later reports with the same time are the same incident.
    ``false_per_1000_gpu_days`` is how often a healthy device is expected to depart this far; the score is 0.5 if that
    equals the budget, and higher if it is less. Rules without such an estimate leave it out.
    """

    id: str
    subject: str
    cell: str
    node: str
    time_ns: TimeNs
    detector: str
    score: float
    evidence: tuple[Evidence, ...] = ()
    workload: str = ""
    since_ns: TimeNs | None = None
    false_per_1000_gpu_days: float | None = None


class Plan(Record, frozen=True, kw_only=True):
    """When a deferrable job runs: slot ``i`` of ``step_s`` seconds from ``start_ns`` has ``run[i]``.

    ``saving`` is the share of carbon that the plan expects to save against running at once, below 0 where it emits more
    for a lower price; ``cost`` is the forecast that was planned on, in gCO2e/kWh, 0 where it is unknown. ``price`` is
    the forecast of the price of power, in USD/kWh, and ``price_saving`` the share of it; empty and 0 without a price
    that was planned on. ``feasible`` is false when the job cannot end by its deadline.
    """

    id: str
    subject: str
    cell: str
    zone: str
    time_ns: TimeNs
    start_ns: TimeNs
    step_s: StepS
    run: tuple[bool, ...]
    cost: tuple[float, ...]
    saving: float
    feasible: bool
    deadline_ns: TimeNs
    price: tuple[float, ...] = ()
    price_saving: float = 0.0


class Method(Part, frozen=True, kw_only=True):
    """One estimate of a capacity: its method, value, relative error, and weight in the combined estimate.

    ``judged`` counts the comparisons with a saturated replica behind the error, recent ones most; without any, the
    error is a prior.
    """

    name: Literal["spec", "static", "historic", "online"]
    work_per_s: float
    relative_error: float
    judged: float
    weight: float


class ColdStart(Part, frozen=True, kw_only=True):
    """Measured time from a replica's appearance to its being ready: 90th percentile over the last ``samples``.

    ``warm``: other replicas were ready when it began. ``p90_s`` is drawn towards the owner's value while samples are
    few.
    """

    gpu_model: str
    zone: str
    warm: bool
    p90_s: float
    samples: int


class Capacity(Record, frozen=True, kw_only=True):
    """Work that one replica of a workload sustains within its objective, in its work unit per second, with sources.

    Sizing uses ``used_work_per_s`` and ``cold_start_s``; ``source`` is where the first comes from; the others are set
    once they are known. ``proven_work_per_s`` is the most work recently served in time, a lower bound.
    ``saturated_windows`` counts the windows in which replicas were at their limit. ``first_token_s``,
    ``output_token_s`` and ``kv_cache`` are those of the last window: the mean times to the first token and from one
    token to the next, and the share of the cache of keys and values in use, which limits a replica from 0.95 on.
    """

    id: str
    subject: str
    cell: str
    time_ns: TimeNs
    used_work_per_s: float
    source: str
    cold_start_s: float
    work_per_s: float | None = None
    relative_error: float | None = None
    proven_work_per_s: float | None = None
    saturated_windows: int = 0
    methods: tuple[Method, ...] = ()
    cold_starts: tuple[ColdStart, ...] = ()
    first_token_s: float | None = None
    output_token_s: float | None = None
    kv_cache: float | None = None


class MachineChoice(Record, frozen=True, kw_only=True):
    """The machines that the cell lane chose for a workload, and why; mode ``advise`` publishes only this.

    ``replicas`` are those of ``mix`` and those on machines of no offer. ``proposal`` is the proposal that they were
    chosen for.
    """

    id: str
    subject: str
    cell: str
    time_ns: TimeNs
    replicas: int
    mix: tuple[Portion, ...]
    reason: str
    evidence: tuple[Evidence, ...] = ()
    proposal: str = ""
