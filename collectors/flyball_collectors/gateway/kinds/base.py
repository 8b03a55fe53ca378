"""Series that a kind of gateway exports."""

from collections.abc import Callable
from typing import NamedTuple

from flyball_collectors.workload.scraping.page import Sample
from flyball_contracts.config import Series


class Kind(NamedTuple):
    """The series of a gateway, the label that distinguishes workloads, and the path of its page.

    A page in another format than Prometheus has its own ``read``; ``rate`` names a series that is already requests per
    second.
    """

    series: Series
    label: str
    path: str = "/metrics"
    read: Callable[[str], list[Sample]] | None = None
    rate: str = ""
