"""Configuration of workload metrics: pages of replicas and gateways, training lines and logs."""

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

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
    """Which series of a page mean what.

    Each holds alternatives, of which the first that the page has counts: one selector ``name{label="value"}`` or
    several joined by `` + ``. What one selects is summed over all labels. Requests that came in are counted by
    ``arrived``; without it they are those that ``ended`` and what ``active`` and ``queued`` grew by. ``latency``,
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
    A bearer token is read anew from ``token_file`` at each scrape. ``ca_file`` holds the authorities to trust, empty:
    the system's.

    A replica is of ``workload``; without a name it is called as the node is. ``health`` is a path on the same server or
    a whole URL; empty: what the server is known to have, else a page is a sign of health. Work is counted in requests
    or, with ``token_weights``, in tokens, those of a prompt and of an answer with a weight each: that is the unit of
    ``capacity_per_replica``. ``match`` keeps the series whose labels are so, where they have these labels; a page on
    which no series has one of them, or none the value, cannot be read. ``devices`` are the indexes of its GPUs, where
    nobody else knows.

    A gateway, router or interceptor has ``workloads``, by the values of the label ``label``; an empty one is the label
    that ``server`` is known to have, an empty value stands for the whole page. Series without the label belong to the
    workload where there is only one, and to none of several; a page that has the label nowhere is an error. Only one
    agent may ask a gateway. The pages of several replicas of a gateway, each with a name in ``replica``, are added up.
    Of ``series`` it has ``arrived`` (else requests that came in are those that ``ended`` and what is held grew by),
    ``queued``, held back at the gateway, and ``active``, without an answer yet.
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
        """Refuse what is neither the page of a replica nor that of a gateway."""
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


class WorkloadsConfig(Section, frozen=True, kw_only=True):
    """What replicas report about their work.

    Pages of replicas are read every five seconds, those of gateways each second. Training scripts send lines to
    ``listen``, ``udp://host:port`` or ``unix:///path`` (empty: nowhere); what was reported by line or log is true for
    five minutes.

    ``discover`` finds replicas on this node: pods by their annotations, through the API server, for which the agent is
    a pod itself whose service account may ``list`` pods; Slurm jobs by variables of their environment, which are read
    from the files that infra/slurm/task-prolog writes, and from the processes themselves where the agent may.
    """

    targets: tuple[TargetSettings, ...] = ()
    logs: tuple[LogSettings, ...] = ()
    listen: Address = ""
    discover: tuple[Literal["kubernetes", "slurm"], ...] = ()
