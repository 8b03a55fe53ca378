"""Configuration of every part; unknown keys are refused, units are in the names."""

import difflib
from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.address import wrong_address
from flyball_contracts.config.attribution import AttributionConfig
from flyball_contracts.config.base import (
    Count as Count,
    NotNegative as NotNegative,
    Period as Period,
    Port as Port,
    Positive as Positive,
    Ratio as Ratio,
    Section as Section,
)
from flyball_contracts.config.choice import ChoiceConfig
from flyball_contracts.config.cloud import CloudConfig
from flyball_contracts.config.export import ExportConfig
from flyball_contracts.config.feeds import FeedsConfig
from flyball_contracts.config.gateway import GatewaySettings
from flyball_contracts.config.keys import DecisionKey
from flyball_contracts.config.nvml import GpuConfig
from flyball_contracts.config.policies import GuardPolicy
from flyball_contracts.config.pools import PoolConfig
from flyball_contracts.config.rightsizing import RightsizingConfig
from flyball_contracts.config.workload import WorkloadsConfig
from flyball_contracts.topics import TOPICS


class KafkaConfig(Section, frozen=True):
    """Where the broker is; ``client`` holds further librdkafka settings (TLS, SASL).

    With an empty ``bootstrap`` the agent feeds only what ``agent.export`` names; all else needs a broker.
    """

    bootstrap: str = "127.0.0.1:9092"
    client: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    partitions: dict[str, Count] = msgspec.field(default_factory=dict[str, Count])

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a wrong address, and for a topic that is not Flyball's."""
        if (wrong := wrong_address(self.bootstrap)) is not None:
            raise ValueError(f"bootstrap: {wrong!r} is not a broker address; give HOST:PORT, several with commas")
        for topic in self.partitions:
            if topic not in TOPICS:
                near = difflib.get_close_matches(topic, TOPICS, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"topics: {', '.join(TOPICS)}"
                raise ValueError(f"partitions: {topic!r} is not a topic of Flyball; {hint}")


class AgentConfig(Section, frozen=True):
    """The node agent; an empty ``node`` means what ``FLYBALL_NODE`` says, else the host's name.

    An empty ``region``, ``provider``, ``instance_type`` or ``capacity_type`` is what the cloud's metadata says.

    ``root`` is where ``/proc`` and ``/sys`` are looked for, for agents in containers. What Kafka does not take
    waits on disk, in at most ``spool_bytes`` of files in ``spool_dir`` (empty: in ``state_dir``); 0: in memory only.
    """

    node: str = ""
    cell: str = "default"
    region: str = ""
    zone: str = ""
    provider: str = ""
    instance_type: str = ""
    capacity_type: Literal["", "owned", "reserved", "on_demand", "spot"] = ""
    price_usd_per_hour: NotNegative | None = None
    period_s: Period = 1.0
    inventory_period_s: Period = 30.0
    host: bool = True
    nvml: bool = True
    gpu: GpuConfig = GpuConfig()
    kmsg: bool = True
    root: str = "/"
    state_dir: str = ""
    queue_bytes: Count = 16 * 1024 * 1024
    spool_dir: str = ""
    spool_bytes: Annotated[int, msgspec.Meta(ge=0)] = 64 * 1024 * 1024
    cloud: CloudConfig = CloudConfig()
    export: ExportConfig = ExportConfig()
    workloads: WorkloadsConfig = WorkloadsConfig()
    attribution: AttributionConfig = AttributionConfig()
    gateways: tuple[GatewaySettings, ...] = ()


class ForecastConfig(Section, frozen=True):
    """Point forecasts with conformal quantiles; rates are per tick.

    ``damped`` is exponential smoothing on log1p by the three rates. ``ensemble`` weighs it and others online by what
    each was worth; with ``season_ticks`` (a day, in ticks) also those that know a season, over seven of them, which
    takes 130 bytes for each tick of it and workload.

    ``history`` is the path of a recording: forecasts of its workloads start from what it shows, where no snapshot
    knows better; "" is a start from nothing.

    Trust is judged by the coverage ``lead_ticks`` ahead. A forecast is made at each tick, and published at every
    ``publish_every_ticks``-th and whenever a proposal is based on it.
    """

    model: Literal["damped", "ensemble"] = "damped"
    season_ticks: Annotated[int, msgspec.Meta(ge=0)] = 0
    level_rate: Ratio = 0.3
    trend_rate: Ratio = 0.05
    damping: Ratio = 0.9
    horizon_ticks: Count = 60
    lead_ticks: Count = 10
    publish_every_ticks: Count = 10
    conformal_rate: NotNegative = 0.05
    levels: tuple[Ratio, ...] = (0.05, 0.25, 0.5, 0.75, 0.95)
    trust_tolerance: Ratio = 0.15
    trust_after_ticks: Count = 60
    history: str = ""

    def __post_init__(self) -> None:
        """Refuse a season that is not longer than what is forecast."""
        if self.model == "ensemble" and 0 < self.season_ticks <= self.horizon_ticks + 1:
            raise ValueError(
                f"season_ticks is {self.season_ticks}; pass more than horizon_ticks + 1 = {self.horizon_ticks + 1}, "
                "or 0 for no season"
            )


class HealthConfig(Section, frozen=True):
    """When a device counts as anomalous, straggling or failing.

    ``false_incidents_per_1000_gpu_days`` is how many incidents the statistical detectors may raise on clean devices.
    Of the nodes of a cell at most the share ``quarantine_share`` is cordoned at once, but always two.
    """

    false_incidents_per_1000_gpu_days: Annotated[float, msgspec.Meta(ge=0.001, le=10_000)] = 1.0
    quarantine_share: Ratio = 0.1
    peer_z: Positive = 4.0
    peer_ticks: Count = 6
    peer_of_ticks: Count = 10


class SizingConfig(Section, frozen=True):
    """How demand becomes target replicas; evaluated every five seconds, and at once where requests wait and none runs.

    ``slo_headroom`` provides for the recent level of work plus z times its spread. z follows the share of work that
    was served in time: towards the attainment of the workload's objective or, where it has none, towards the share at
    which late work, at ``late_cost`` times the cost of idle capacity, is worth no more of it, within ``delay_s``. z
    moves by ``headroom_rate`` in a minute in which all work was late. The largest need of the last
    ``stabilization_window_s`` (at most half an hour) counts. A trusted forecast may raise it to its quantile
    ``forecast_level``, by a quarter at most; z takes back what is always too high. ``lead_time_headroom`` does the same
    with a spread half of which is that of the need about the level one cold start earlier, and keeps for two minutes
    what present work needed. ``forecast_band`` keeps the replicas between two quantiles of the forecast, ``level`` and
    ``down_level``.

    ``shadow_selection`` runs 17 policies of fixed caution on the same demand, each with a simulated fleet. The one acts
    that would have cost least lately, in replica seconds and late work at a price. Costs are forgotten with a time
    constant of ``memory_s``. The price follows the share that may be late: its logarithm moves by ``price_rate`` in a
    minute in which all the usual work was late. Forecasts are not used. It needs the ``backtest`` extra.

    z is part of a snapshot. A worker that starts without one begins with the z of a usual tail. z rises as fast as work
    is late; it falls by no more than ``headroom_rate`` times the share that may be late in a minute, which at 99 % is
    0.3 a day.

    The target is never more than ``growth`` times what is ready, or four more. After ``scale_to_zero_after_s`` without
    any work a workload of ``min_replicas`` 0 is scaled to zero; 0 means never, because then something other than its
    replicas (a gateway) must report new demand.

    A workload is scaled at most once in ``cooldown_s``, and in the opposite direction only ``reversal_cooldown_s``
    after its last decision. A change of at most ``tolerance`` of its replicas is not decided, and one decision takes
    away at most ``max_scale_in`` of them.

    ``capacity`` and ``cold_start`` say where a replica's capacity and time to ready come from: the specification, or
    measurements, which start from it and move away only on evidence: for capacity after three windows at saturation,
    and no further than threefold.
    """

    policy: Literal["slo_headroom", "lead_time_headroom", "forecast_band", "shadow_selection"] = "slo_headroom"
    late_cost: NotNegative = 99.0
    delay_s: NotNegative = 5.0
    headroom_rate: NotNegative = 0.02
    stabilization_window_s: NotNegative = 600.0
    memory_s: Positive = 1_209_600.0
    price_rate: NotNegative = 0.003
    forecast_level: Ratio = 0.5
    level: Ratio = 0.95
    down_level: Ratio = 0.75
    growth: NotNegative = 4.0
    scale_to_zero_after_s: NotNegative = 0.0
    reversal_cooldown_s: NotNegative = 120.0
    cooldown_s: NotNegative = 15.0
    tolerance: Ratio = 0.1
    max_scale_in: Ratio = 0.25
    capacity: Literal["spec", "measured"] = "measured"
    cold_start: Literal["spec", "measured"] = "measured"


class TimingConfig(Section, frozen=True):
    """Carbon timing of deferrable jobs: they are planned in slots of ``slot_s`` up to their deadlines."""

    slot_s: Positive = 900.0


class WorkerConfig(Section, frozen=True):
    """The stream worker.

    ``lateness_ticks`` is how far behind the others a node may be before its tick closes without it. A lane that is
    behind only has a backlog, and a sum without it would look like a drop of demand: it is waited for
    ``lane_lateness_ticks``.
    ``max_ahead_ticks`` is how far ahead of them a message may be before it is refused. ``table_age_s`` is how old a
    specification, curve or outcome must be at the end of a tick to count in it, and a tick old at least: those that are
    younger may be on their way still. ``signing_key`` is the PEM file
    of the private key with which decisions are signed, empty for none.
    """

    app: str = "flyball"
    lateness_ticks: Count = 5
    lane_lateness_ticks: Count = 60
    max_ahead_ticks: Count = 120
    table_age_s: Positive = 1.0
    decision_ttl_s: Positive = 120.0
    profile_every_ticks: Count = 60
    snapshot_every_s: Positive = 30.0
    watchdog_s: Positive = 60.0
    signing_key: str = ""
    forecast: ForecastConfig = ForecastConfig()
    health: HealthConfig = HealthConfig()
    sizing: SizingConfig = SizingConfig()
    rightsizing: RightsizingConfig = RightsizingConfig()
    choice: ChoiceConfig = ChoiceConfig()
    timing: TimingConfig = TimingConfig()


class RateLimit(Section, frozen=True):
    """At most ``actions`` in any ``window_s`` seconds."""

    actions: Count = 6
    window_s: Positive = 600.0


class BlastRadius(Section, frozen=True):
    """Most replicas of a cell that may be taken away in any ``window_s`` seconds.

    The larger of ``share`` of the replicas that the cell is known to run and ``replicas``, but never more than
    ``most``, whatever inventories claim. Moves off failing devices are counted apart, with as much room again; so are
    dry runs.
    """

    window_s: Positive = 600.0
    share: Ratio = 0.3
    replicas: Count = 4
    most: Count = 200


class ScalerConfig(Section, frozen=True):
    """Where autoscalers ask how many replicas to run, each a HOST:PORT; empty: not there.

    ``metrics`` is the external metrics API, for HorizontalPodAutoscalers, over TLS with ``certificate`` and ``key``; it
    answers the cluster's API server alone. ``keda`` is an external scaler of KEDA over gRPC: over TLS where there is a
    certificate, and for clients of ``client_ca`` alone where that is named. All are PEM files.
    """

    metrics: str = ""
    keda: str = ""
    certificate: str = ""
    key: str = ""
    client_ca: str = ""


class PlatformConfig(Section, frozen=True):
    """Who carries out the decisions of some cells; the first entry with a matching pattern in ``cells`` counts.

    ``inventory`` plans on the inventories that agents publish and can change nothing. ``simulated`` is the simulated
    fleet behind ``url``. ``kubernetes`` commands the controllers in ``namespaces`` of the cluster that ``context`` of
    ``kubeconfig`` names (empty: its current one; without a file, the cluster of the actuator's own pod). ``slurm``
    commands the jobs in ``partitions`` of the cluster whose slurm.conf is ``conf`` (empty: the machine's own).
    ``autoscaler`` tells the autoscalers in ``namespaces``, which ask at ``scaler``, and writes nothing. ``webhook`` is
    a server of your own behind ``url``, which is shown the bearer token in the variable ``token_env``. ``docker``
    commands the labelled containers of the engine behind the Unix socket ``url`` (empty: the usual one). An answer is
    waited for ``timeout_s``, and what is under way is looked at every ``poll_s``.

    ``aws``, ``gcp`` and ``azure`` buy and return the machines of ``pools`` for one cell, with what the cloud's own
    library finds of credentials; all other decisions of that cell go to another entry. ``region`` is that of aws,
    ``account`` the project of gcp or the subscription of azure, ``url`` an endpoint instead of the public one. All
    pools of the entry together may cost ``budget_usd_per_hour``; null: not said, which live does not take.
    """

    cells: tuple[str, ...] = ("*",)
    driver: Literal[
        "inventory", "simulated", "kubernetes", "slurm", "autoscaler", "webhook", "docker", "aws", "gcp", "azure"
    ] = "inventory"
    url: str = ""
    token_env: str = ""
    kubeconfig: str = ""
    context: str = ""
    namespaces: tuple[str, ...] = ()
    conf: str = ""
    partitions: tuple[str, ...] = ()
    scaler: ScalerConfig = ScalerConfig()
    region: str = ""
    account: str = ""
    pools: tuple[PoolConfig, ...] = ()
    budget_usd_per_hour: NotNegative | None = None
    timeout_s: Positive = 5.0
    poll_s: Positive = 0.5

    def __post_init__(self) -> None:
        """Refuse pools of no certain cell."""
        if self.pools and (len(self.cells) != 1 or any(sign in self.cells[0] for sign in "*?[")):
            raise ValueError("cells: pools belong to one cell; name that cell alone, without a pattern")


class ActuatorConfig(Section, frozen=True):
    """The actuator service; nothing is carried out but in mode ``live``.

    In dry run, cells that no entry of ``platforms`` names are planned on the inventories; live, their decisions are
    refused. ``allow`` are glob patterns of workloads that may be acted on; null: all, but not live. A pool is
    covered only by a pattern that begins with ``pool:``. ``kill_switch`` is
    a file: while it exists, everything is refused. ``clock`` is ``event`` only for replays, where now is the newest
    time in the records. Unless all ``platforms`` are simulated, mode ``live`` takes an ``allow``, a ``kill_switch`` and
    clock ``wall``. A decision older than ``max_age_s`` is refused, however late it says that it expires. ``policies``
    are rules for some decisions only; each of those that match must agree. Where there are ``keys``, a decision must be
    signed by one that may. ``audit`` is the file that records all that was told, judged, done and seen; empty: none.
    """

    mode: Literal["off", "dry_run", "live"] = "dry_run"
    platforms: tuple[PlatformConfig, ...] = ()
    group: str = "flyball-actuator"
    allow: tuple[str, ...] | None = None
    kill_switch: str = ""
    ledger: str = ""
    audit: str = ""
    clock: Literal["wall", "event"] = "wall"
    max_age_s: Positive = 900.0
    per_target: RateLimit = RateLimit()
    per_cell: RateLimit = RateLimit(actions=60)
    blast_radius: BlastRadius = BlastRadius()
    policies: tuple[GuardPolicy, ...] = ()
    keys: tuple[DecisionKey, ...] = ()

    def __post_init__(self) -> None:
        """Refuse two policies of one name."""
        names = [policy.name for policy in self.policies]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"policies: {twice!r} is there twice; refusals name a policy, so each needs its own name")
        pools = [pool.name for entry in self.platforms for pool in entry.pools]
        twin = next((name for name in pools if pools.count(name) > 1), None)
        if twin is not None:
            raise ValueError(
                f"platforms: pool {twin!r} is there twice; decisions name a pool, so each needs its own name"
            )


class ControllerConfig(Section, frozen=True):
    """What is seen of one Kubernetes cluster; ``cell`` is the name of that cluster in records.

    ``kubeconfig`` and ``context`` are as in ``actuator.platforms``: empty means the cluster of its own pod.
    Nodes and pods are those of the whole cluster; objects and policies are read in ``namespaces``, empty: in all.
    Changes are taken together for ``period_s``, and the API server's answer is waited for ``timeout_s``.
    """

    cell: str = "default"
    kubeconfig: str = ""
    context: str = ""
    namespaces: tuple[str, ...] = ()
    period_s: Period = 1.0
    timeout_s: Positive = 10.0


class DashboardConfig(Section, frozen=True):
    """The live page; ``names`` are further host names that browsers may call it by.

    The token is read from the environment variable ``token_env``; a ``host`` that is not loopback needs one.
    """

    host: str = "127.0.0.1"
    port: Port = 8080
    names: tuple[str, ...] = ()
    token_env: str = "FLYBALL_DASHBOARD_TOKEN"


class InfluxConfig(Section, frozen=True):
    """A server with the InfluxDB v2 write API; the token is read from the environment variable named."""

    url: str = ""
    org: str = "flyball"
    bucket: str = "flyball"
    token_env: str = "INFLUX_TOKEN"


class Config(Section, frozen=True):
    """The whole file; every section may be left out."""

    kafka: KafkaConfig = KafkaConfig()
    agent: AgentConfig = AgentConfig()
    feeds: FeedsConfig = FeedsConfig()
    worker: WorkerConfig = WorkerConfig()
    actuator: ActuatorConfig = ActuatorConfig()
    controller: ControllerConfig = ControllerConfig()
    dashboard: DashboardConfig = DashboardConfig()
    influx: InfluxConfig = InfluxConfig()

    def __post_init__(self) -> None:
        """Refuse decisions that would be too old before they expire."""
        lives_s, oldest_s = self.worker.decision_ttl_s, self.actuator.max_age_s
        if lives_s >= oldest_s:
            raise ValueError(
                f"worker.decision_ttl_s is {lives_s:g} and actuator.max_age_s is {oldest_s:g}; decisions must expire "
                "before they are too old: lower the one or raise the other"
            )
