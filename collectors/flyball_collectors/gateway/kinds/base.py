"""What a kind of gateway is known to tell."""

from typing import NamedTuple

from flyball_contracts.config import GatewaySeries


class Kind(NamedTuple):
    """The series of a gateway, the label that tells workloads apart, and the path of its page."""

    series: GatewaySeries
    label: str
    path: str = "/metrics"
