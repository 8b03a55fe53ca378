"""Configuration of what replicas tell of their work: metrics pages, training lines and logs."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.base import Count, NotNegative, Positive, Section

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
Address = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(|udp://[^/\s]+:[0-9]+|unix:///\S+)$", description="udp://HOST:PORT or unix:///PATH, or nothing"
    ),
]
Rows = tuple[Annotated[int, msgspec.Meta(ge=0)], ...]
ServerName = Literal["vllm", "triton", "tgi", "sglang", "generic"]


class Series(Section, frozen=True, kw_only=True):
    """Which series of a page mean what.

    Each holds alternatives, of which the first that the page has counts: one selector ``name{label="value"}`` or
    several joined by `` + ``. What one selects is summed over all labels but ``copies``, over which the largest is
    taken. Requests that came in are counted by ``arrived``; without it they are those that ``ended`` and what
    ``active`` and ``queued`` grew by. ``latency`` names histograms or summaries, whose unit is
    ``latency_unit_s``. ``ready`` is 0 while the server cannot serve.
    """

    arrived: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    active: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    tokens_in: tuple[str, ...] = ()
    tokens_out: tuple[str, ...] = ()
    latency: tuple[str, ...] = ()
    latency_unit_s: Positive = 1.0
    ready: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()


class TargetSettings(Section, frozen=True, kw_only=True):
    """One replica on this node that has a page of metrics; an empty ``replica`` is named after the node.

    ``url`` is that of the page, ``unix:///socket:/path`` for one on a Unix socket. ``health`` is a path on the same
    server or a whole URL; empty: what the server is known to have, else a page is a sign of health. Work is counted in
    requests or, with ``token_weights``, in tokens, those of a prompt and of an answer with a weight each: that is the
    unit of ``capacity_per_replica``. ``match`` keeps
    the series whose labels are so, where they have these labels. ``series`` is for ``generic`` alone. A bearer
    token is read anew from ``token_file`` at each scrape. ``ca_file`` holds
    the authorities to trust, empty: the system's. ``devices`` are the indexes of its GPUs, where nobody else knows.
    """

    workload: Name
    replica: str = ""
    url: PageUrl
    server: ServerName = "generic"
    health: HealthUrl = ""
    token_weights: tuple[NotNegative, NotNegative] | None = None
    match: Mapping[str, str] = {}
    series: Series | None = None
    devices: Rows = ()
    token_file: str = ""
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

    The agent is a pod itself, whose service account needs ``list`` on pods, and is called as the node is.
    """

    enabled: bool = False


class SlurmSettings(Section, frozen=True, kw_only=True):
    """Discovery of this node's Slurm jobs by variables of their environment.

    They are read from the files that infra/slurm/task-prolog writes, and from the processes themselves where the agent
    may.
    """

    enabled: bool = False


class WorkloadsConfig(Section, frozen=True, kw_only=True):
    """What replicas tell of their work.

    Pages are read every ``period_s``. Training scripts send lines to ``listen``, ``udp://host:port`` or
    ``unix:///path`` (empty: nowhere); what was said by line or log is true for five minutes.
    """

    period_s: Positive = 5.0
    targets: tuple[TargetSettings, ...] = ()
    logs: tuple[LogSettings, ...] = ()
    listen: Address = ""
    kubernetes: KubernetesSettings = KubernetesSettings()
    slurm: SlurmSettings = SlurmSettings()
