"""Specification of a workload: its objective, and what its owner allows."""

from typing import Annotated, Literal

import msgspec

from flyball_contracts.records.base import Part, Record, TimeNs

WorkloadKind = Literal["inference", "training", "notebook", "batch"]
PositiveFloat = Annotated[float, msgspec.Meta(gt=0, le=1e18)]
PositiveInt = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Replicas = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
PositiveSeconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Priority = Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)]


class Objective(Part, frozen=True, kw_only=True):
    """Service-level objective: ``attainment`` of the requests wait less than ``delay_s``.

    ``token_s``, if given, bounds the mean time from one token of an answer to the next, ``first_token_s`` the mean time
    to the first token.
    """

    delay_s: PositiveSeconds
    attainment: Share = 0.99
    token_s: PositiveSeconds | None = None
    first_token_s: PositiveSeconds | None = None


class Architecture(Part, frozen=True, kw_only=True):
    """The transformer that an inference workload serves, for a first estimate of a replica's capacity.

    ``active_parameters`` are those that one token uses (``None``: all, a dense model); with ``experts`` above 1 the
    others belong to experts. ``weight_bytes`` and ``cache_bytes`` are per number, ``most_at_once`` is the engine's
    largest batch, and ``prompt_tokens`` and ``answer_tokens`` are those of a mean request.
    """

    parameters: PositiveFloat
    layers: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_size: PositiveInt
    active_parameters: PositiveFloat | None = None
    experts: PositiveInt = 1
    weight_bytes: PositiveFloat = 2.0
    cache_bytes: PositiveFloat = 2.0
    most_at_once: PositiveInt = 256
    prompt_tokens: PositiveFloat = 1000.0
    answer_tokens: PositiveFloat = 200.0


class WorkloadSpec(Record, frozen=True, kw_only=True):
    """One workload, as its owner declares it; compacted by workload.

    ``capacity_per_replica`` is the sustainable work of one replica, in the work unit of its telemetry per second (0:
    unknown); ``cold_start_s`` is the time from a decision to a ready replica. Sizing uses both, and estimates from
    ``model``, until it has measured them. A deferrable job has a ``deadline_ns`` and
    ``duration_s``, the running time that it needs in all. ``checkpoint_s`` is what a pause costs. Once a workload has
    hung for ``restart_hung_after_s`` and nothing shows why, it may be stopped and started again (``None``: never).
    Higher ``priority`` wins.
    """

    workload: str
    cell: str
    time_ns: TimeNs
    kind: WorkloadKind
    tenant: str = "default"
    priority: Priority = 0
    gang_size: PositiveInt = 1
    gpus_per_replica: Amount = 1.0
    gpu_models: tuple[str, ...] = ()
    min_replicas: Replicas = 0
    max_replicas: Replicas = 1
    capacity_per_replica: Amount = 0.0
    target_utilization: Share = 0.8
    cold_start_s: Seconds = 60.0
    objective: Objective | None = None
    interruptible: bool = False
    checkpoint_s: Seconds = 0.0
    restart_hung_after_s: PositiveSeconds | None = None
    deadline_ns: TimeNs | None = None
    duration_s: PositiveSeconds | None = None
    power_w_per_replica: Amount | None = None
    model: Architecture | None = None
    removed: bool = False

    @property
    def is_gang(self) -> bool:
        """Whether its replicas stop together: those of training, and of gangs of more than one."""
        return self.kind == "training" or self.gang_size > 1
