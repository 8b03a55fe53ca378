"""Meaning of the series of each server: one table each."""

from collections.abc import Mapping
from typing import NamedTuple

from flyball_collectors.workload.servers.sglang import SGLANG
from flyball_collectors.workload.servers.tgi import TGI
from flyball_collectors.workload.servers.triton import TRITON
from flyball_collectors.workload.servers.vllm import VLLM
from flyball_contracts.config.workload import Series, ServerName


class Server(NamedTuple):
    """The series of a server, and the path of its health check (empty: none on the page's port)."""

    series: Series
    health: str


SERVERS: Mapping[ServerName, Server] = {
    "vllm": Server(VLLM, "/health"),
    "triton": Server(TRITON, ""),  # /v2/health/ready is on the port of the HTTP service, not on that of the metrics
    "tgi": Server(TGI, "/health"),
    "sglang": Server(SGLANG, "/health"),
    "generic": Server(Series(), ""),
}
