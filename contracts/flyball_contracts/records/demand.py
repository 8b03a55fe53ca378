"""Demand of workloads in a tick."""

from typing import Literal

import msgspec

from flyball_contracts.records.base import Part, Record, TableOffsets, Tick


class Usage(Part, frozen=True, kw_only=True):
    """Usage of a replica since the last report: the maximum over the replicas; ``None``: unknown.

    ``cpu`` is in cores on average, ``memory_bytes`` is the working set; both come with their limits. Of a GPU or MIG
    instance, ``gpu_share`` is the mean share of its compute in use and ``gpu_memory_bytes`` its memory in use. ``oom``
    counts out-of-memory kills of all replicas.
    """

    cpu: float | None = None
    cpu_limit: float | None = None
    memory_bytes: float | None = None
    memory_limit_bytes: float | None = None
    gpu_share: float | None = None
    gpu_memory_bytes: float | None = None
    oom: float | None = None


class Member(Part, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU of a gang: where it is, its SM clock in Hz, temperature in degrees Celsius and power in W."""

    device: str
    node: str
    replica: str
    clock_hz: float
    temperature_cel: float | None = None
    power_w: float | None = None


class Clocks(Part, frozen=True, kw_only=True):
    """SM clocks of a gang's members of one GPU model that one node lane sees; other lanes see the rest.

    ``clocks_hz`` are their quantiles in ascending order, each clock where there are few; ``slowest`` are the slowest
    members.
    """

    members: int
    clocks_hz: tuple[float, ...]
    slowest: tuple[Member, ...]
    model: str = ""


class Features(Part, frozen=True, kw_only=True):
    """Features of a workload's telemetry, the mean over ``devices`` GPUs that were seen for ``seen_s``.

    ``values`` are in the order of ``flyball_models.profile.course.FEATURES``, ``None`` where unknown. ``step_s`` is the
    time of an iteration.
    """

    devices: int
    seen_s: float
    values: tuple[float | None, ...]
    step_s: float | None = None


class Latencies(Part, frozen=True, kw_only=True, omit_defaults=True):
    """How soon replicas of a workload on one GPU model answered in a minute, on the nodes that one node lane sees.

    One entry for each replica: its name and node; in ``latency_s`` the geometric mean of the times that it reported,
    of a request or, where ``per`` says so, of an output token, ``None`` where no request ended; in ``requests`` the
    mean number of those in service or waiting, ``None`` where that is not known.
    """

    replicas: tuple[str, ...]
    nodes: tuple[str, ...]
    latency_s: tuple[float | None, ...]
    requests: tuple[float | None, ...]
    model: str = ""
    per: Literal["request", "output_token"] = "request"


class Demand(Part, frozen=True, omit_defaults=True):
    """Demand of one workload in one tick, summed over its nodes; what is not known is left out.

    ``work_rate`` is in the work unit of the spec per second, and ``None`` where no replica reported it.
    ``utilization_sum`` is over ``devices`` devices. ``latency_s`` is the mean of the requests that ended, ``tokens_*``
    are prompt and generated tokens per second, ``failed`` counts requests that failed. ``usage`` and ``features`` are
    sent once a minute, as are ``latencies``, one for each model. ``clocks`` are of gangs that train and span node
    lanes, one for each model from each of them. ``first_token_s`` is the mean time to the first token of an answer,
    ``first_token_p99_s`` its 99th percentile at the worst replica, and ``output_token_s`` the mean time from one token
    to the next. ``kv_cache`` is the share of the cache of keys and values that is in use, and ``step_s`` the time of a
    training step, both means of the replicas.
    """

    workload: str
    replicas: int
    ready: int
    devices: int
    work_rate: float | None = None
    request_rate: float | None = None
    queued: float | None = None
    active: float | None = None
    utilization_sum: float | None = None
    power_w: float | None = None
    progress: float | None = None
    tokens_in_rate: float | None = None
    tokens_out_rate: float | None = None
    latency_s: float | None = None
    failed: float | None = None
    usage: Usage | None = None
    clocks: tuple[Clocks, ...] = ()
    features: Features | None = None
    first_token_s: float | None = None
    first_token_p99_s: float | None = None
    output_token_s: float | None = None
    kv_cache: float | None = None
    step_s: float | None = None
    latencies: tuple[Latencies, ...] = ()


class Arrivals(Part, frozen=True, kw_only=True):
    """What gateways in front of a workload saw of it in one tick, whether or not it had a replica.

    They see each request before a replica does: ``request_rate`` stands in for the replicas' sum and is not added to
    it, while ``queued``, which no replica has yet, is added to theirs. ``active`` requests have no answer yet,
    including those at replicas; where ``queued`` is not known, the active requests that no replica has wait at the
    gateway.
    """

    workload: str
    request_rate: float | None = None
    queued: float | None = None
    active: float | None = None


class DemandTick(Record, frozen=True, kw_only=True):
    """Demand that one node lane saw in one tick of one cell, for the workloads of one partition of this topic.

    A reader adds up the ``source``s. A lane publishes each tick to each partition, even without demand: the last of its
    ``parts`` says that the lane is done with the tick. ``arrivals`` are those at gateways, of the same workloads or of
    others. ``table_offsets`` are the table offsets that the lane had read: its readers use no later record for the
    tick. Older lanes do not publish them: then all records that the reader knows count.
    """

    cell: str
    source: str
    tick: Tick
    partition: int
    demands: tuple[Demand, ...] = ()
    part: int = 0
    parts: int = 1
    arrivals: tuple[Arrivals, ...] = ()
    table_offsets: TableOffsets = msgspec.field(default_factory=TableOffsets)
