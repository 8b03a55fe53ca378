"""Parameters of the agent: its configuration, and constants that only tests and benchmarks vary.

Each class adds constants to a section of the configuration.
"""

from collections.abc import Mapping

from flyball_contracts.config import (
    AgentConfig,
    AttributionConfig,
    ExportConfig,
    GatewayKind,
    Section,
    Series,
    WorkloadsConfig,
)


class GpuParameters(Section, frozen=True, kw_only=True):
    """The NVML collector."""

    # Details change seldom; a frame of them also comes whenever a GPU stalls or comes back.
    detail_period_s: float = 10.0
    # A GPU that has not answered for this long is reported; its row is empty even earlier.
    stalled_after_s: float = 2.0
    # The driver may be built, or its services started, after the agent.
    retry_period_s: float = 60.0


class CloudParameters(Section, frozen=True, kw_only=True):
    """The cloud's metadata service."""

    # Empty: the cloud's own.
    address: str = ""
    # A notice of interruption comes 30 s (Azure, Google Cloud) to two minutes (AWS) ahead.
    period_s: float = 5.0
    # The service is on the machine's own host, and the agent's end waits for a query under way.
    timeout_s: float = 1.0


class ExportParameters(ExportConfig, frozen=True):
    """Outputs other than Kafka."""

    # The name that OpenTelemetry gives it.
    otlp_headers_env: str = "OTEL_EXPORTER_OTLP_HEADERS"
    otlp_period_s: float = 10.0
    # Requests that wait while the endpoint is unreachable: five minutes of them, then the oldest are dropped.
    otlp_queue: int = 30
    otlp_timeout_s: float = 10.0


class KnownSeries(Series, frozen=True, kw_only=True):
    """The series of a known page.

    Some servers count latencies separately from a histogram. Series that differ only in the labels ``copies`` are
    copies, of which the largest counts. A page whose series have several values of the label ``model`` is read only if
    ``match`` names one of them.
    """

    latency_sum: tuple[str, ...] = ()
    latency_count: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    model: str = ""


class KubernetesParameters(Section, frozen=True, kw_only=True):
    """Discovery of pods: the standard files of every pod, and the polling period."""

    # Empty: the server that the pod's environment names, and the agent's own name for the node.
    url: str = ""
    node: str = ""
    # A list of one node's pods, from the API server's cache: 10,000 nodes make 330 requests a second.
    period_s: float = 30.0
    token_file: str = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    ca_file: str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"


class SlurmParameters(Section, frozen=True, kw_only=True):
    """Discovery of Slurm jobs: the folder to which infra/slurm/task-prolog writes, in ``agent.root``."""

    folder: str = "/run/flyball-jobs"
    period_s: float = 10.0
    # `scontrol`, where it is installed, is called for the state of the node: 10,000 nodes call it 330 times a second.
    node_period_s: float = 30.0
    node_timeout_s: float = 10.0


class WorkloadsParameters(WorkloadsConfig, frozen=True, kw_only=True):
    """Reports of replicas: bounds of time and size for each page, and how long a silent training job counts."""

    period_s: float = 5.0
    timeout_s: float = 2.0
    page_bytes: int = 4 * 1024 * 1024
    silent_s: float = 300.0
    kubernetes: KubernetesParameters = KubernetesParameters()
    slurm: SlurmParameters = SlurmParameters()


class AttributionParameters(AttributionConfig, frozen=True, kw_only=True):
    """Attribution of devices and host."""

    # Devices are divided at each tick; usage is reported once per this period.
    usage_period_s: float = 10.0
    # Where the control groups of pods and jobs are, below that of the host, by the kubelet's and Slurm's own names.
    groups: tuple[str, ...] = ("kubepods*", "kubelet*", "system.slice/*slurmstepd.scope", "slurm*")
    # The kubelet's log folders, which have the names of pods; in ``agent.root``.
    pod_logs: str = "/var/log/pods"


class GatewayParameters(Section, frozen=True, kw_only=True):
    """The page of a gateway, as in :class:`~flyball_contracts.config.TargetSettings`; ``place`` is its location.

    It is queried each second, because queued requests must start a replica at once.
    """

    name: str
    url: str
    kind: GatewayKind = "generic"
    workloads: Mapping[str, str]
    label: str = ""
    series: Series | None = None
    token_file: str = ""
    ca_file: str = ""
    place: str = "agent.workloads.targets[0]"
    period_s: float = 1.0
    timeout_s: float = 2.0
    page_bytes: int = 16 * 1024 * 1024


class AgentParameters(AgentConfig, frozen=True):
    """The agent's configuration with the constants of all its parts."""

    inventory_period_s: float = 30.0
    # Bound of the producer's queue in memory; messages that do not fit wait in the spool.
    queue_bytes: int = 16 * 1024 * 1024
    gpu: GpuParameters = GpuParameters()
    cloud: CloudParameters = CloudParameters()
    export: ExportParameters = ExportParameters()
    workloads: WorkloadsParameters = WorkloadsParameters()
    attribution: AttributionParameters = AttributionParameters()
