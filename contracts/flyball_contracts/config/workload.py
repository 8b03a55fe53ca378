"""Configuration of what replicas tell of their work: metrics pages, training lines and logs."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.base import SERVER, VARIABLE, Count, NotNegative, Positive, Section

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
PageUrl = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(https?|unix)://[^@?#\s]+$",
        description="a URL without user and query, like http://127.0.0.1:8000/metrics or unix:///run/rank.sock:/metrics",
    ),
]
HealthUrl = Annotated[
    str, msgspec.Meta(pattern=r"^(|/[^?#\s]*|https?://[^@?#\s]+)$", description="a path like /health, or a whole URL")
]
Variable = Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$", description=VARIABLE)]
Address = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(|udp://[^/\s]+:[0-9]+|unix:///\S+)$", description="udp://HOST:PORT or unix:///PATH, or nothing"
    ),
]
Label = Annotated[
    str, msgspec.Meta(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$", description="the name of a label, or nothing")
]
Rows = tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
ServerName = Literal["vllm", "triton", "tgi", "sglang", "generic"]


class Series(Section, frozen=True, kw_only=True):
    """Which series of a page mean what.

    Each holds alternatives, of which the first that the page has counts: one selector ``name{label="value"}`` or
    several joined by `` + ``. What one selects is summed over all labels but ``copies``, over which the largest is
    taken. Requests that came in are counted by ``arrived``; without it they are those that ``ended`` and what
    ``active`` and ``queued`` grew by. ``latency`` names histograms or summaries, whose unit is ``latency_unit_s``;
    where there are none, ``latency_sum`` and ``latency_count`` are counters of the same. ``first_token`` (time to the
    first token) and ``output_token`` (time from one token to the next) are histograms or summaries, too, in seconds
    unless their name ends in ``_ms`` or ``_us``. ``kv_cache`` is the share of the cache of keys and values in use, the
    mean over its series. ``ready`` is 0 while the server cannot serve. A page whose series have several values of the
    label ``model`` is read only where ``match`` names one of them.
    """

    arrived: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    active: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    tokens_in: tuple[str, ...] = ()
    tokens_out: tuple[str, ...] = ()
    latency: tuple[str, ...] = ()
    latency_sum: tuple[str, ...] = ()
    latency_count: tuple[str, ...] = ()
    latency_unit_s: Positive = 1.0
    first_token: tuple[str, ...] = ()
    output_token: tuple[str, ...] = ()
    kv_cache: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    model: Label = ""


class Work(Section, frozen=True, kw_only=True):
    """The unit of ``work.rate``, that of ``capacity_per_replica``: requests, or tokens with a weight for each kind."""

    unit: Literal["requests", "tokens"] = "requests"
    input_weight: NotNegative = 1.0
    output_weight: NotNegative = 1.0


class TargetSettings(Section, frozen=True, kw_only=True):
    """One replica on this node that has a page of metrics; an empty ``replica`` is named after the node.

    ``url`` is that of the page, ``unix:///socket:/path`` for one on a Unix socket. ``health`` is a path on the same
    server or a whole URL; empty: what the server is known to have, else a page is a sign of health. ``match`` keeps
    the series whose labels are so, where they have these labels; a page on which no series has one of them, or none
    the value, cannot be read. ``series`` is for ``generic`` alone. A bearer
    token is read anew from ``token_file`` at each scrape, or once from the variable ``token_env``. ``ca_file`` holds
    the authorities to trust, empty: the system's. ``devices`` are the indexes of its GPUs, where nobody else knows.
    """

    workload: Name
    replica: str = ""
    url: PageUrl
    server: ServerName = "generic"
    health: HealthUrl = ""
    work: Work = Work()
    match: Mapping[str, str] = {}
    series: Series | None = None
    devices: Rows = ()
    token_file: str = ""
    token_env: Variable = ""
    ca_file: str = ""


class LogSettings(Section, frozen=True, kw_only=True):
    """The log of one replica of a training job.

    ``pattern`` is a regular expression that is searched in each line; its named groups may be ``step``, ``loss``,
    ``step_time_s``, ``throughput`` and ``progress``. ``steps`` is how many there are, for a log without progress.
    """

    workload: Name
    replica: str = ""
    path: Name
    pattern: Name
    steps: Count | None = None
    devices: Rows = ()


class KubernetesSettings(Section, frozen=True, kw_only=True):
    """Discovery of this node's pods by their annotations, through the API server.

    ``url`` empty: the server that the pod's environment names. ``node`` is the node's name in Kubernetes; empty: the
    agent's. ``token_file`` and ``ca_file`` are the service account's; it needs ``list`` on pods.
    """

    enabled: bool = False
    url: Annotated[str, msgspec.Meta(pattern=r"^(|https?://[^@?#\s]+)$", description=SERVER)] = ""
    node: str = ""
    period_s: Positive = 30.0
    token_file: str = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    ca_file: str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"


class SlurmSettings(Section, frozen=True, kw_only=True):
    """Discovery of this node's Slurm jobs by variables of their environment.

    They are read from the files that a task prolog writes to ``folder``, in ``agent.root``, and from the processes
    themselves where the agent may.
    """

    enabled: bool = False
    folder: Name = "/run/flyball-jobs"
    period_s: Positive = 10.0


class WorkloadsConfig(Section, frozen=True, kw_only=True):
    """What replicas tell of their work.

    Pages are read every ``period_s``, each within ``timeout_s`` and of at most ``page_bytes``. Training scripts send
    lines to ``listen``, ``udp://host:port`` or ``unix:///path`` (empty: nowhere); what was said by line or log is
    true for ``silent_s``.
    """

    period_s: Positive = 5.0
    timeout_s: Positive = 2.0
    page_bytes: Count = 4 * 1024 * 1024
    targets: tuple[TargetSettings, ...] = ()
    logs: tuple[LogSettings, ...] = ()
    listen: Address = ""
    silent_s: Positive = 300.0
    kubernetes: KubernetesSettings = KubernetesSettings()
    slurm: SlurmSettings = SlurmSettings()
