"""Configuration of workload metrics: pages of replicas and gateways, training lines and logs."""

from collections.abc import Mapping
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from flyball_contracts.config.base import Count, NotNegative, Section

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
PageUrl = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(https?|unix)://[^@#\s]+$",
        description="a URL without user, like http://127.0.0.1:8000/metrics or unix:///run/rank.sock:/metrics",
    ),
]
HealthUrl = Annotated[
    str, msgspec.Meta(pattern=r"^(|/[^?#\s]*|https?://[^@?#\s]+)$", description="a path like /health, or a whole URL")
]
Address = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(|udp://[^/\s]+:[0-9]+|unix:///\S+)$", description="udp://HOST:PORT or unix:///PATH, or nothing"
    ),
]
Rows = tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
ServerName = Literal["vllm", "triton", "tgi", "sglang", "generic"]
GatewayKind = Literal["envoy", "inference_extension", "keda_http", "keda_queue", "generic"]
PageKind = Literal[
    "vllm", "triton", "tgi", "sglang", "generic", "envoy", "inference_extension", "keda_http", "keda_queue"
]


class Series(Section, frozen=True, kw_only=True):
    """Meaning of the series of a page.

    Each field holds alternatives, of which the first on the page counts: one selector ``name{label="value"}`` or
    several joined by `` + ``. The selected series are summed over all labels. Arrivals are counted by ``arrived``;
    without it they are the requests that ``ended`` plus the growth of ``active`` and ``queued``. ``latency``,
    ``first_token`` (time to the first token) and ``output_token`` (time from one token to the next) are histograms or
    summaries, in seconds unless their name ends in ``_ms`` or ``_us``. ``kv_cache`` is the share of the cache of keys
    and values in use, the mean over its series. ``ready`` is 0 while the server cannot serve.
    """

    arrived: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    active: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    tokens_in: tuple[str, ...] = ()
    tokens_out: tuple[str, ...] = ()
    latency: tuple[str, ...] = ()
    first_token: tuple[str, ...] = ()
    output_token: tuple[str, ...] = ()
    kv_cache: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()


class TargetSettings(Section, frozen=True, kw_only=True):
    """A page of metrics: of one replica on this node, or of a gateway in front of several workloads.

    ``url`` is that of the page, ``unix:///socket:/path`` for one on a Unix socket. ``series`` is for ``generic`` alone.
    A bearer token is read from ``token_file`` at each scrape. ``ca_file`` holds the authorities to trust, empty: the
    system's.

    A replica belongs to ``workload``; without a name it has the node's. ``health`` is a path on the same server or a
    complete URL; empty: the server's known path, else a readable page is a sign of health. Work is counted in requests
    or, with ``token_weights``, in tokens, those of a prompt and of an answer with a weight each: that is the unit of
    ``capacity_per_replica``. ``match`` keeps the series with these label values, and those without these labels; a page
    without any series with a label, or with its value, is an error. ``devices`` are the indexes of its GPUs, if no
    other source has them.

    A gateway, router or interceptor has ``workloads``, by the values of the label ``label`` (empty: the known label of
    ``server``); an empty value is the whole page. Series without the label belong to the workload if there is only one,
    and to none of several; a page without the label is an error. Only one agent may query a gateway. The pages of
    several replicas of a gateway, each with a name in ``replica``, are added up. Its ``series`` are ``arrived`` (else
    arrivals are the requests that ``ended`` plus the growth of those held), ``queued`` at the gateway, and ``active``,
    without a response yet.
    """

    workload: Annotated[str, msgspec.Meta(max_length=253)] = ""
    workloads: Mapping[str, Name] = {}
    label: str = ""
    replica: str = ""
    url: PageUrl
    server: PageKind = "generic"
    health: HealthUrl = ""
    token_weights: tuple[NotNegative, NotNegative] | None = None
    match: Mapping[str, str] = {}
    series: Series | None = None
    devices: Rows = ()
    token_file: str = ""
    ca_file: str = ""

    def __post_init__(self) -> None:
        """Reject a target that is neither a replica nor a gateway."""
        for key, url in (("url", self.url), ("health", self.health)):
            if not _is_possible(url):
                raise ValueError(f"{key}: {url} has no host, or a port that cannot be; write http://HOST:PORT/PATH")
        if bool(self.workload) == bool(self.workloads):
            raise ValueError("give the workload of a replica, or the workloads of a gateway")
        if self.workload:
            if self.server not in get_args(ServerName) or self.label or "?" in self.url:
                raise ValueError(f"{self.server} with a label or a query is a gateway; give its workloads")
            return
        if self.server not in get_args(GatewayKind) or self.url.startswith("unix"):
            raise ValueError(f"{self.server} at {self.url} is no gateway; give the workload of the replica")
        if self.health or self.token_weights or self.match or self.devices:
            raise ValueError("health, token_weights, match and devices are for replicas; a gateway has none of them")


def _is_possible(url: str) -> bool:
    """Whether an HTTP URL has a host and, if it names one, a possible port; a path has neither."""
    try:
        parts = urlsplit(url)
        return not parts.scheme.startswith("http") or (bool(parts.hostname) and parts.port != 0)
    except ValueError:
        return False


class LogSettings(Section, frozen=True, kw_only=True):
    """The log of one replica of a training job.

    ``pattern`` is a regular expression that is searched in each line; its named groups may be ``step``, ``loss``,
    ``step_time_s``, ``throughput`` and ``progress``. ``steps`` is the total number of steps, for a log without
    progress.
    """

    workload: Name
    replica: str = ""
    path: Name
    pattern: Name
    steps: Count | None = None
    devices: Rows = ()


class WorkloadsConfig(Section, frozen=True, kw_only=True):
    """Metrics of replicas' work.

    Pages of replicas are read every five seconds, those of gateways each second. Training scripts send lines to
    ``listen``, ``udp://host:port`` or ``unix:///path`` (empty: no listener); a report by line or log is valid for five
    minutes.

    ``discover`` finds replicas on this node: pods by their annotations, through the API server, which requires that the
    agent runs in a pod whose service account may ``list`` pods; Slurm jobs by variables of their environment, which are
    read from the files that infra/slurm/task-prolog writes, and from the processes themselves where the agent may.
    """

    targets: tuple[TargetSettings, ...] = ()
    logs: tuple[LogSettings, ...] = ()
    listen: Address = ""
    discover: tuple[Literal["kubernetes", "slurm"], ...] = ()
