"""What a lane would like; the cell lane decides."""

from typing import Literal

from flyball_contracts.records.base import Evidence, Record, Tick, TimeNs
from flyball_contracts.records.resources import Resources

Wish = Literal["scale", "migrate", "pause", "resize"]


class Proposal(Record, frozen=True, kw_only=True):
    """One wish about one workload in one tick.

    ``scale``: ``replicas`` wanted. ``migrate``: away from ``device`` of ``node`` (then ``replica`` names the part).
    ``pause``: until ``until_ns``. ``resize``: each replica is to ask for ``resources`` instead of ``resources_before``.
    ``reason`` is a sentence a person can read.
    """

    id: str
    cell: str
    source: str
    tick: Tick
    wish: Wish
    workload: str
    reason: str
    replicas: int | None = None
    observed_replicas: int | None = None
    replica: str = ""
    node: str = ""
    device: str = ""
    until_ns: TimeNs | None = None
    resources: Resources | None = None
    resources_before: Resources | None = None
    confidence: float = 0.5
    expected_saving: float | None = None
    evidence: tuple[Evidence, ...] = ()
