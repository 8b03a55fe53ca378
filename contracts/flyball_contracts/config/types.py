"""Configuration of all parts; unknown keys are errors, units are in the names."""

import re
from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.attribution import AttributionConfig
from flyball_contracts.config.base import Count, Driver, NotNegative, Partitions, Period, Port, Positive, Ratio, Section
from flyball_contracts.config.check import CheckConfig
from flyball_contracts.config.choice import ChoiceConfig
from flyball_contracts.config.export import ExportConfig
from flyball_contracts.config.feeds import AnyFeed
from flyball_contracts.config.policies import DecisionKey, GuardPolicy
from flyball_contracts.config.pools import PoolConfig, PoolsConfig, check_distinct
from flyball_contracts.config.workload import WorkloadsConfig
from flyball_contracts.security.secret import inline_secret
from flyball_contracts.topics import TOPICS

MAX_AGE_S = 900.0
"""A decision older than this is refused, whatever its expiry."""
HORIZON_TICKS = 60
"""How far ahead the workers forecast; a season must be longer."""
_ADDRESS = re.compile(r"^(\[[0-9a-fA-F:.%]+\]|[^\s:/,\[\]]+):(\d{1,5})$")
_MOST_PORT = 65535


class RightsizingConfig(Section, frozen=True):
    """Requests of one replica: CPU, memory, and the share of a GPU.

    ``advise`` publishes a proposal, which the dashboard shows; ``act`` also decides. The rule weighs the cost of
    requesting too much against that of too little. Each workload is evaluated once an hour, from a day after it was
    first seen.
    """

    mode: Literal["off", "advise", "act"] = "advise"


def wrong_address(bootstrap: str) -> str | None:
    """Return the first part of ``bootstrap`` that is not HOST:PORT; ``None`` if all are valid or it is empty."""
    for part in bootstrap.split(",") if bootstrap else ():
        found = _ADDRESS.match(part.strip())
        if found is None or not 0 < int(found[2]) <= _MOST_PORT:
            return part.strip()
    return None


class KafkaConfig(Section, frozen=True):
    """The broker; ``client`` holds further librdkafka settings (TLS, SASL), with each secret in a file: ``file:/PATH``.

    With an empty ``bootstrap`` the agent feeds only the outputs of ``agent.export``; everything else needs a broker.
    """

    bootstrap: str = "127.0.0.1:9092"
    client: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    partitions: dict[str, Partitions] = msgspec.field(default_factory=dict[str, Partitions])

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for an invalid address, a secret, and a topic that is not Flyball's."""
        if (wrong := wrong_address(self.bootstrap)) is not None:
            raise ValueError(f"bootstrap: {wrong!r} is not a broker address; give HOST:PORT, several with commas")
        if name := inline_secret(self.client):
            raise ValueError(
                f"client: {name} stands here for all who may read this; put it into a file of its own, and write "
                f"{name}: file:/PATH"
            )
        for topic in self.partitions:
            if topic not in TOPICS:
                import difflib

                near = difflib.get_close_matches(topic, TOPICS, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"topics: {', '.join(TOPICS)}"
                raise ValueError(f"partitions: {topic!r} is not a topic of Flyball; {hint}")


class AgentConfig(Section, frozen=True):
    """The node agent; an empty ``node`` means the variable ``FLYBALL_NODE``, else the host's name.

    An empty ``region``, ``instance_type`` or ``capacity_type`` comes from the cloud's metadata, which is requested if
    ``provider`` is aws, gcp or azure, or is empty and the firmware (DMI) names one of these. ``rack`` and ``leaf`` (the
    switch of the GPUs' network) are names in the cell. Collectors that are ``disabled`` do not run. ``root`` is the
    parent of ``/proc`` and ``/sys``, for agents in containers. Messages that Kafka does not accept wait on disk, in at
    most ``spool_bytes`` of files in ``state_dir``; 0: in memory only.
    """

    node: str = ""
    cell: str = "default"
    region: str = ""
    zone: str = ""
    rack: str = ""
    leaf: str = ""
    provider: str = ""
    instance_type: str = ""
    capacity_type: Literal["", "owned", "reserved", "on_demand", "spot"] = ""
    price_usd_per_hour: NotNegative | None = None
    period_s: Period = 1.0
    disabled: tuple[Literal["host", "nvml", "kmsg", "attribution"], ...] = ()
    root: str = "/"
    state_dir: str = ""
    spool_bytes: Annotated[int, msgspec.Meta(ge=0)] = 64 * 1024 * 1024
    export: ExportConfig = ExportConfig()
    workloads: WorkloadsConfig = WorkloadsConfig()
    attribution: AttributionConfig = AttributionConfig()


class ForecastConfig(Section, frozen=True):
    """Point forecasts with conformal quantiles.

    ``damped`` is exponential smoothing on log1p. ``ensemble`` weights it and others online by their recent errors; with
    ``season_ticks`` (a day, in ticks) it includes seasonal models over seven days, which take 130 bytes per tick of the
    season and workload. ``history`` is the path of a recording: forecasts of its workloads start from it, unless a
    snapshot has newer state; "" starts without data.
    """

    model: Literal["damped", "ensemble"] = "damped"
    season_ticks: Annotated[int, msgspec.Meta(ge=0)] = 0
    history: str = ""

    def __post_init__(self) -> None:
        """Reject a season that is not longer than the forecast."""
        ahead = getattr(self, "horizon_ticks", HORIZON_TICKS)
        if self.model == "ensemble" and 0 < self.season_ticks <= ahead + 1:
            raise ValueError(f"season_ticks is {self.season_ticks}; pass more than {ahead + 1}, or 0 for no season")


class HealthConfig(Section, frozen=True):
    """When a device counts as anomalous.

    ``false_incidents_per_1000_gpu_days`` is how many incidents the statistical detectors may raise on clean devices.
    At most the share ``quarantine_share`` of a cell's nodes is cordoned at once; one node always may be, and two in a
    cell of six or more.
    """

    false_incidents_per_1000_gpu_days: Annotated[float, msgspec.Meta(ge=0.001, le=10_000)] = 1.0
    quarantine_share: Ratio = 0.1


class SizingConfig(Section, frozen=True):
    """How demand becomes target replicas; evaluated every five seconds, and at once where requests wait and none runs.

    ``slo_headroom`` provides capacity for the recent level of work plus z times its spread. z follows the share of work
    that was served in time: towards the attainment of the workload's objective or, without one, towards the share
    within five seconds at which late work, at 99 times the cost of idle capacity, does not justify more capacity. The
    largest need of the last ``stabilization_window_s`` (at most half an hour) counts. A trusted forecast may raise it
    to its median, by a quarter at most; z falls if this is always too high. ``lead_time_headroom`` does the same with a
    spread that comes half from the need's deviation from the level one cold start earlier, and holds the need of
    present work for two minutes. ``forecast_band`` keeps the replicas between the quantiles 0.75 and 0.95 of the
    forecast.

    ``shadow_selection`` runs 17 policies of fixed caution on the same demand, each with a simulated fleet. The policy
    with the least cost over the last two weeks acts; the cost is replica seconds and late work at a price. The price
    follows the share that may be late. Forecasts are not used. It needs the ``backtest`` extra.

    z is part of a snapshot. A worker without a snapshot starts with the z of a typical tail. z rises as fast as work is
    late; it falls by at most 0.02 times the allowed late share per minute, which at 99 % is 0.3 a day.

    The target is never more than four times the ready replicas, or four more. After ``scale_to_zero_after_s`` without
    any work a workload of ``min_replicas`` 0 is scaled to zero; 0 means never, because then something other than its
    replicas (a gateway) must report new demand.

    A workload is scaled at most once in fifteen seconds, and in the opposite direction only ``reversal_cooldown_s``
    after its last decision. A change of at most a tenth of its replicas is not decided, and one decision removes at
    most ``max_scale_in`` of them.

    Capacity and time to ready are measured. They start from the specification and change only on evidence: capacity
    after three windows at saturation, and by a factor of three at most.
    """

    policy: Literal["slo_headroom", "lead_time_headroom", "forecast_band", "shadow_selection"] = "slo_headroom"
    stabilization_window_s: NotNegative = 600.0
    scale_to_zero_after_s: NotNegative = 0.0
    reversal_cooldown_s: NotNegative = 120.0
    max_scale_in: Ratio = 0.25


class WorkerConfig(Section, frozen=True):
    """The stream worker.

    A specification, curve or outcome counts in a tick if, at the end of the tick, it is at least ``table_age_s`` old,
    and at least one tick: younger ones may still be in transit. A target gets at most one decision in
    ``decision_interval_s``, unless a device fails or nothing of it runs. ``signing_key`` is the PEM file of the private
    key with which decisions are signed, empty for none.
    """

    app: str = "flyball"
    table_age_s: Positive = 1.0
    decision_interval_s: NotNegative = 60.0
    snapshot_every_s: Positive = 30.0
    signing_key: str = ""
    forecast: ForecastConfig = ForecastConfig()
    health: HealthConfig = HealthConfig()
    sizing: SizingConfig = SizingConfig()
    rightsizing: RightsizingConfig = RightsizingConfig()
    choice: ChoiceConfig = ChoiceConfig()
    pools: PoolsConfig = PoolsConfig()


class RateLimit(Section, frozen=True):
    """At most ``actions`` in any ten minutes."""

    actions: Count = 6


class BlastRadius(Section, frozen=True):
    """Most replicas of a cell that may be taken away in any ten minutes.

    The limit is the larger of ``replicas`` and ``share`` of the cell's known replicas, but never more than ``most``,
    whatever inventories claim. Moves off failing devices count separately, with the same limit; so do dry runs.
    """

    share: Ratio = 0.3
    replicas: Count = 4
    most: Count = 200


class ScalerConfig(Section, frozen=True):
    """Addresses at which autoscalers query the number of replicas, each a HOST:PORT; empty: not served.

    ``metrics`` is the external metrics API, for HorizontalPodAutoscalers, over TLS with ``certificate``, whose key is a
    file beside it that ends in .key; it answers only the cluster's API server. ``keda`` is an external scaler of KEDA
    over gRPC: over TLS with a certificate, and only for clients of ``client_ca`` if that is given. All are PEM files.
    """

    metrics: str = ""
    keda: str = ""
    certificate: str = ""
    client_ca: str = ""


class PlatformConfig(Section, frozen=True):
    """The platform that carries out the decisions of some cells.

    The first entry with a matching pattern in ``cells`` counts.

    ``inventory`` plans on the inventories that agents publish and cannot change anything. ``simulated`` is the
    simulated fleet behind ``url``, and machines of its ``pools``. ``kubernetes`` changes the controllers in
    ``namespaces`` of the current cluster of ``kubeconfig`` (empty: the cluster of the actuator's own pod). ``slurm``
    changes the jobs in ``partitions`` of the cluster with the slurm.conf ``conf`` (empty: the machine's own), and turns
    nodes in ``pools`` on and off. ``autoscaler`` answers the autoscalers in ``namespaces``, which query ``scaler``, and
    writes nothing. ``kueue`` starts and stops the jobs in ``namespaces`` through Kueue, and answers AdmissionCheck
    ``flyball``. With glob patterns in ``workloads``, all other workloads of the cells go to the next entry. ``webhook``
    is a server of your own behind ``url``, which gets the bearer token in the variable ``token_env``. ``docker``
    changes the labelled containers of the engine behind the Unix socket ``url`` (empty: the default one). A call times
    out after ``timeout_s``, and operations are polled every ``poll_s``. ``check`` is the check that ``kubernetes`` and
    ``slurm`` run on a node before it takes work again. ``aws``, ``gcp`` and ``azure`` buy and return the machines of
    ``pools`` for one cell, with the default credentials of the cloud's library; all other decisions of that cell go to
    another entry. ``region`` is that of aws, ``account`` the project of gcp or the subscription of azure, ``url`` an
    endpoint instead of the public one. All pools of the entry together may cost ``budget_usd_per_hour``; null: no
    budget, which mode live rejects. ``karpenter`` sets the limits of the NodePools in ``pools``, and protects pods in
    ``namespaces`` from Karpenter's disruption while they must not be moved.
    """

    cells: tuple[str, ...] = ("*",)
    driver: Driver = "inventory"
    workloads: tuple[str, ...] = ("*",)
    url: str = ""
    token_env: str = ""
    kubeconfig: str = ""
    namespaces: tuple[str, ...] = ()
    conf: str = ""
    partitions: tuple[str, ...] = ()
    scaler: ScalerConfig = ScalerConfig()
    check: CheckConfig = CheckConfig()
    region: str = ""
    account: str = ""
    pools: tuple[PoolConfig, ...] = ()
    budget_usd_per_hour: NotNegative | None = None
    timeout_s: Positive = 5.0
    poll_s: Positive = 0.5

    def __post_init__(self) -> None:
        """Reject pools without a definite cell."""
        if self.pools and (len(self.cells) != 1 or any(sign in self.cells[0] for sign in "*?[")):
            raise ValueError("cells: pools belong to one cell; name that cell alone, without a pattern")


class ActuatorConfig(Section, frozen=True):
    """The actuator service; only mode ``live`` carries anything out.

    In dry run, cells without an entry in ``platforms`` are planned on the inventories; live, their decisions are
    refused. ``allow`` are glob patterns of workloads that may be acted on; null: all, but not live. A pool needs a
    pattern that begins with ``pool:``. ``kill_switch`` is a file: while it exists, everything is refused. ``clock`` is
    ``event`` only for replays, where now is the newest time in the records. Unless all ``platforms`` are simulated,
    mode ``live`` requires ``allow``, ``kill_switch`` and clock ``wall``. A decision older than :data:`MAX_AGE_S` is
    refused. ``policies`` are rules for some decisions only; each matching one must agree. With ``keys``, a decision
    must be signed by an authorized one. ``audit`` is the file that records every decision received, check, call and
    observation; empty: none.
    """

    mode: Literal["off", "dry_run", "live"] = "dry_run"
    platforms: tuple[PlatformConfig, ...] = ()
    group: str = "flyball-actuator"
    allow: tuple[str, ...] | None = None
    kill_switch: str = ""
    ledger: str = ""
    audit: str = ""
    clock: Literal["wall", "event"] = "wall"
    per_target: RateLimit = RateLimit()
    per_cell: RateLimit = RateLimit(actions=60)
    blast_radius: BlastRadius = BlastRadius()
    policies: tuple[GuardPolicy, ...] = ()
    keys: tuple[DecisionKey, ...] = ()

    def __post_init__(self) -> None:
        """Reject two policies or pools with one name, and pools whose machines cannot be told apart."""
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
        by_cell: dict[str, list[PoolConfig]] = {}
        for entry in self.platforms:
            if entry.pools:
                by_cell.setdefault(entry.cells[0], []).extend(entry.pools)
        for found in by_cell.values():
            check_distinct(found)


class ControllerConfig(Section, frozen=True):
    """The controller of one Kubernetes cluster; ``cell`` is the name of that cluster in records.

    ``kubeconfig`` is as in ``actuator.platforms``: empty means the cluster of its own pod. It reads nodes and pods of
    the whole cluster; objects and policies in ``namespaces``, empty: in all.
    """

    cell: str = "default"
    kubeconfig: str = ""
    namespaces: tuple[str, ...] = ()


class DashboardConfig(Section, frozen=True):
    """The live page; ``names`` are additional host names under which browsers may open it.

    The token is read from the environment variable FLYBALL_DASHBOARD_TOKEN; a ``host`` that is not loopback needs one.
    With a ``certificate``, a PEM file whose key is a file beside it that ends in .key, it is served over TLS.
    The environment variable FORWARDED_ALLOW_IPS names proxies, as addresses or networks, whose X-Forwarded-Proto is
    trusted to show that browsers use TLS; without it, only proxies on this machine are trusted.
    """

    host: str = "127.0.0.1"
    port: Port = 8080
    names: tuple[str, ...] = ()
    certificate: str = ""


class InfluxConfig(Section, frozen=True):
    """A server with the InfluxDB v2 write API; the token is read from the environment variable INFLUX_TOKEN."""

    url: str = ""
    org: str = "flyball"
    bucket: str = "flyball"


class Config(Section, frozen=True):
    """The whole file; every section is optional. ``feeds`` has one for each zone and kind of curve."""

    kafka: KafkaConfig = KafkaConfig()
    agent: AgentConfig = AgentConfig()
    feeds: tuple[AnyFeed, ...] = ()
    worker: WorkerConfig = WorkerConfig()
    actuator: ActuatorConfig = ActuatorConfig()
    controller: ControllerConfig = ControllerConfig()
    dashboard: DashboardConfig = DashboardConfig()
    influx: InfluxConfig = InfluxConfig()
