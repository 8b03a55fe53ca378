"""Configuration of the simulated fleet; all times are seconds since the start of the fleet's event time."""

from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.base import Count, NotNegative, Positive, Ratio, Section
from flyball_contracts.records import Architecture

Sku = Literal["h100", "a100"]
Index = Annotated[int, msgspec.Meta(ge=0)]
Hour = Annotated[float, msgspec.Meta(ge=0, lt=24)]
Name = Annotated[str, msgspec.Meta(min_length=1, pattern=r"^[A-Za-z0-9._-]+$")]


class GridZone(Section, frozen=True, kw_only=True):
    """A grid zone; ``hour_at_start`` is its local hour when the fleet starts.

    ``carbon_g_per_kwh`` and ``price_usd_per_kwh`` are the means of its curves, ``solar_share`` the depth of the noon
    dip.
    """

    name: Name
    hour_at_start: Hour = 12.0
    carbon_g_per_kwh: Positive = 300.0
    price_usd_per_kwh: Positive = 0.12
    solar_share: Ratio = 0.5


class NodePool(Section, frozen=True, kw_only=True):
    """Equal nodes; node ``i`` is called ``NAME-00i``.

    If ``max_nodes`` is more than ``nodes``, the others are bought when a replica finds no room, and arrive
    ``provision_s`` later. One that has been empty for ``return_after_s`` is returned. In a ``managed`` pool, this rule
    holds only for the baseline without Flyball: otherwise decisions about ``pool:NAME`` buy and return machines. By
    node number, each of the racks ``NAME-rack-01``, ``NAME-rack-02`` and so on has ``nodes_per_rack`` nodes, and each
    of the switches ``NAME-leaf-01`` and so on connects ``racks_per_leaf`` racks. 0 nodes per rack: racks are unknown.
    """

    name: Name
    sku: Sku
    nodes: Count
    zone: Name
    gpus_per_node: Annotated[int, msgspec.Meta(ge=1, le=16)] = 8
    region: str = ""
    instance_type: str = ""
    max_nodes: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    provision_s: NotNegative = 120.0
    return_after_s: NotNegative = 600.0
    managed: bool = False
    capacity_type: Literal["owned", "reserved", "on_demand", "spot"] = "on_demand"
    price_usd_per_hour: NotNegative | None = None
    ambient_cel: float = 24.0
    nodes_per_rack: Index = 8
    racks_per_leaf: Index = 4


class FleetWorkload(Section, frozen=True, kw_only=True):
    """Common fields of the fleet's workloads; ``replicas`` run at the start, in ``pools``, the first preferred.

    A replica that is ordered to stop accepts no more work and holds its GPUs for ``stop_s``.
    """

    name: Name
    pools: tuple[Name, ...]
    replicas: Index
    gpus_per_replica: Count = 1
    tenant: str = "default"
    priority: int = 0
    cold_start_s: NotNegative = 30.0
    stop_s: NotNegative = 5.0


class Training(FleetWorkload, frozen=True, kw_only=True):
    """A gang: all replicas or none, in step; it writes a checkpoint at regular intervals."""

    step_s: Positive = 0.9
    checkpoint_every_s: Positive = 300.0
    checkpoint_s: NotNegative = 8.0


class Burst(Section, frozen=True, kw_only=True):
    """Load that rises to ``factor`` times the usual, stays there, and falls at the same rate."""

    from_s: NotNegative
    rise_s: NotNegative = 10.0
    hold_s: NotNegative = 120.0
    factor: Positive = 3.0


class Service(FleetWorkload, frozen=True, kw_only=True):
    """An inference service: a daily season, a slow wave, planned and random bursts, noise.

    ``base_load`` is the load at the start relative to the capacity of the initial replicas; work is counted in tokens.
    The season varies by ``daily_share`` about its mean and peaks at ``daily_peak_s``. With ``arrivals``, a series of
    work per second in steps of ``arrivals_step_s``, demand is that series alone, repeated from its end. ``model``
    describes the served transformer; the simulation uses ``capacity_tokens_per_s`` alone.
    """

    min_replicas: Count = 1
    max_replicas: Count
    capacity_tokens_per_s: Positive = 2_000.0
    tokens_per_request: Positive = 400.0
    service_s: Positive = 1.2
    delay_s: Positive = 2.0
    attainment: Ratio = 0.99
    base_load: Positive = 0.55
    daily_share: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.0
    daily_peak_s: NotNegative = 28_800.0
    arrivals: tuple[NotNegative, ...] = ()
    arrivals_step_s: Positive = 60.0
    wave_share: Ratio = 0.15
    wave_period_s: Positive = 900.0
    noise_share: Ratio = 0.04
    random_bursts_per_hour: NotNegative = 4.0
    bursts: tuple[Burst, ...] = ()
    model: Architecture | None = None


class Notebooks(FleetWorkload, frozen=True, kw_only=True):
    """Notebooks: each runs cells an eighth of the time and idles in between."""


class Batch(FleetWorkload, frozen=True, kw_only=True):
    """A job that needs ``duration_s`` with ``nominal_replicas``; with a deadline it is deferrable.

    A ``gang`` runs with all of them or not at all. It writes a checkpoint at regular intervals, and before an ordered
    stop.
    """

    nominal_replicas: Count
    duration_s: Positive
    deadline_s: Positive | None = None
    checkpoint_every_s: Positive = 600.0
    checkpoint_s: NotNegative = 10.0
    gang: bool = False


class FailingGpu(Section, frozen=True, kw_only=True):
    """The first GPU of replica ``replica`` (by the initial placement) has errors from ``from_s`` and fails later.

    It fails with ``xid``; one caused by the program, such as 13 or 31, is an event only: the GPU stays healthy.
    """

    workload: Name
    replica: Index
    from_s: NotNegative
    dies_after_s: NotNegative = 8.0
    xid: int = 48


class StragglingGpu(Section, frozen=True, kw_only=True):
    """The first GPU of replica ``replica`` (by the initial placement) overheats and clocks down to ``clock_ratio``.

    It recovers ``lasts_s`` after ``from_s``.
    """

    workload: Name
    replica: Index
    from_s: NotNegative
    lasts_s: Positive = 7_200.0
    clock_ratio: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.55


class FailingLink(Section, frozen=True, kw_only=True):
    """NVLink ``link`` of the first GPU of replica ``replica`` (by the initial placement) is faulty.

    ``link`` null: the PCIe link of that GPU.

    It has errors from ``from_s`` on, and work on the GPU is slower. Half a minute later it fails, with XID 74 or a
    fatal PCIe error, and ``lasts_s`` after ``from_s`` it is repaired.
    """

    workload: Name
    replica: Index
    from_s: NotNegative
    link: Annotated[int, msgspec.Meta(ge=0, le=17)] | None = None
    lasts_s: Positive = 600.0


class RackFault(Section, frozen=True, kw_only=True):
    """A rack loses one of its power feeds: the power brake halves the clocks of its GPUs.

    If ``dark_after_s`` is given, it loses the other one that much later: its nodes are off and silent. It has power
    again ``lasts_s`` after ``from_s``; nodes that were off boot then.
    """

    rack: Name
    from_s: NotNegative
    dark_after_s: NotNegative | None = None
    lasts_s: Positive = 600.0


class LeafFault(Section, frozen=True, kw_only=True):
    """A leaf switch is down for ``lasts_s``.

    Its nodes run on but are unreachable: gangs with members on them and elsewhere stall, services there answer no
    requests, and the agents' messages arrive late, when the switch is back.
    """

    leaf: Name
    from_s: NotNegative
    lasts_s: Positive = 600.0


class Reclaim(Section, frozen=True, kw_only=True):
    """The cloud reclaims a spot machine: its agent reports it at ``from_s``, and ``notice_s`` later it is gone.

    Replicas on it stop at once and lose their work since the last checkpoint. The machine is unavailable for
    ``lasts_s``; then it is back, or can be bought again if its pool buys machines.
    """

    node: Name
    from_s: NotNegative
    notice_s: NotNegative = 120.0
    lasts_s: Positive = 3600.0


class FleetConfig(Section, frozen=True, kw_only=True):
    """The simulated fleet; the default has the size of a laptop's and many events in its first minute.

    An operation without room is given up after ``room_wait_s``. A replica on a dead GPU is restarted elsewhere after
    ``pod_timeout_s``, and a gang that waits for one continues without it, from its last checkpoint, after
    ``collective_timeout_s``.
    """

    cell: Name = "fleet"
    seed: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 1
    tick_s: Positive = 1.0
    room_wait_s: Positive = 300.0
    pod_timeout_s: Positive = 300.0
    collective_timeout_s: Positive = 600.0
    zones: tuple[GridZone, ...] = (
        GridZone(
            name="US-CAL-CISO", hour_at_start=10.0, carbon_g_per_kwh=250.0, price_usd_per_kwh=0.11, solar_share=0.6
        ),
        GridZone(name="DE", hour_at_start=19.0, carbon_g_per_kwh=380.0, price_usd_per_kwh=0.16, solar_share=0.45),
    )
    pools: tuple[NodePool, ...] = (
        NodePool(
            name="gpu-a", sku="h100", nodes=12, zone="US-CAL-CISO", region="us-west", instance_type="sim.h100.8",
            price_usd_per_hour=31.2,
        ),
        NodePool(
            name="gpu-b", sku="a100", nodes=8, zone="DE", region="eu-central", instance_type="sim.a100.8",
            price_usd_per_hour=14.7,
        ),
        NodePool(
            name="gpu-c", sku="a100", nodes=4, zone="DE", region="eu-central", instance_type="sim.a100.8",
            capacity_type="spot", price_usd_per_hour=6.1, ambient_cel=26.0,
        ),
    )  # fmt: skip
    trainings: tuple[Training, ...] = (
        Training(
            name="llm-pretrain", pools=("gpu-a",), replicas=8, gpus_per_replica=4, tenant="research", priority=80,
            checkpoint_s=12.0,
        ),
        Training(
            name="vision-train", pools=("gpu-b",), replicas=8, gpus_per_replica=4, tenant="research", priority=70,
            step_s=0.4, checkpoint_every_s=180.0, checkpoint_s=5.0,
        ),
        Training(
            name="rank-train", pools=("gpu-b",), replicas=4, gpus_per_replica=4, tenant="ads", priority=60,
            step_s=0.25, checkpoint_every_s=240.0, checkpoint_s=6.0,
        ),
    )  # fmt: skip
    services: tuple[Service, ...] = (
        Service(
            name="chat-api", pools=("gpu-a",), replicas=12, max_replicas=40, min_replicas=4, tenant="product",
            priority=100, base_load=0.6, random_bursts_per_hour=2.0, daily_share=0.4,
            bursts=(Burst(from_s=20.0, rise_s=15.0, hold_s=120.0, factor=3.6),),
            model=Architecture(
                parameters=32e9, layers=64, heads=40, kv_heads=8, head_size=128, most_at_once=32, prompt_tokens=260.0,
                answer_tokens=140.0,
            ),
        ),
        Service(
            name="embed-api", pools=("gpu-a",), replicas=6, max_replicas=12, min_replicas=2, tenant="search",
            priority=90, capacity_tokens_per_s=20_000.0, tokens_per_request=600.0, service_s=0.15, delay_s=0.5,
            daily_share=0.3, daily_peak_s=21_600.0,
            model=Architecture(
                parameters=7e9, layers=32, heads=32, kv_heads=8, head_size=128, prompt_tokens=599.0, answer_tokens=1.0
            ),
        ),
        Service(
            name="rerank-api", pools=("gpu-a",), replicas=4, max_replicas=8, tenant="search", priority=90,
            capacity_tokens_per_s=12_000.0, tokens_per_request=900.0, service_s=0.3, delay_s=0.8,
            daily_share=0.3, daily_peak_s=21_600.0,
            model=Architecture(
                parameters=14e9, layers=40, heads=40, kv_heads=8, head_size=128, prompt_tokens=899.0, answer_tokens=1.0
            ),
        ),
        Service(
            name="speech-api", pools=("gpu-b", "gpu-c"), replicas=8, max_replicas=14, min_replicas=2, tenant="product",
            priority=85, capacity_tokens_per_s=1_500.0, tokens_per_request=250.0, service_s=0.8, wave_period_s=1_500.0,
            daily_share=0.35, daily_peak_s=61_200.0,
            model=Architecture(
                parameters=13e9, layers=40, heads=40, kv_heads=40, head_size=128, most_at_once=16, prompt_tokens=162.0,
                answer_tokens=88.0,
            ),
        ),
    )  # fmt: skip
    notebooks: tuple[Notebooks, ...] = (
        Notebooks(name="code-notebooks", pools=("gpu-a",), replicas=8, tenant="research", priority=10),
        Notebooks(name="data-notebooks", pools=("gpu-c", "gpu-b"), replicas=8, tenant="analytics", priority=10),
    )
    batches: tuple[Batch, ...] = (
        Batch(
            name="synth-data", pools=("gpu-a",), replicas=24, nominal_replicas=24, tenant="research", priority=20,
            duration_s=36_000.0,
        ),
        Batch(
            name="protein-fold", pools=("gpu-c", "gpu-b"), replicas=16, nominal_replicas=16, tenant="science",
            priority=30, duration_s=10_800.0, deadline_s=79_200.0, gang=True,
        ),
        Batch(
            name="asr-batch", pools=("gpu-c", "gpu-b"), replicas=8, nominal_replicas=8, tenant="product", priority=25,
            duration_s=21_600.0,
        ),
        Batch(
            name="video-index", pools=("gpu-c", "gpu-b"), replicas=0, nominal_replicas=8, tenant="search", priority=15,
            duration_s=7_200.0, deadline_s=82_800.0, gang=True,
        ),
    )  # fmt: skip
    failing: tuple[FailingGpu, ...] = (
        FailingGpu(workload="vision-train", replica=3, from_s=20.0),
        FailingGpu(workload="rank-train", replica=1, from_s=15_000.0, dies_after_s=120.0, xid=95),
        FailingGpu(workload="llm-pretrain", replica=2, from_s=50_000.0, dies_after_s=120.0, xid=79),
    )
    links: tuple[FailingLink, ...] = ()
    rack_faults: tuple[RackFault, ...] = ()
    leaf_faults: tuple[LeafFault, ...] = ()
    reclaims: tuple[Reclaim, ...] = ()
    straggling: tuple[StragglingGpu, ...] = (StragglingGpu(workload="llm-pretrain", replica=5, from_s=15.0),)
