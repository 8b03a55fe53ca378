"""Proposals of lanes, on which the cell lane decides."""

from typing import Literal

import msgspec

from flyball_contracts.records.base import Evidence, Part, Record, TableOffsets, Tick, TimeNs
from flyball_contracts.records.commands.alternatives import Alternatives
from flyball_contracts.records.commands.resources import Resources
from flyball_contracts.records.incidents import Symptom

Action = Literal["scale", "migrate", "pause", "restart", "resize", "choose"]


class Proposal(Part, frozen=True, kw_only=True):
    """One proposal about one workload.

    ``scale``: ``replicas`` wanted. ``migrate``: away from ``device`` of ``node`` (then ``replica`` names the part).
    ``pause``: until ``until_ns``. ``restart``: stop all replicas, then start as many. ``resize``: each replica is to
    request ``resources`` instead of ``resources_before``. ``choose``: ``replicas`` wanted, on the cheapest of the
    ``alternatives`` that the cell lane finds room for.
    ``reason`` is a sentence a person can read. ``id`` stays the same while the content does.
    """

    id: str
    action: Action
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
    alternatives: Alternatives | None = None
    confidence: float = 0.5
    expected_saving: float | None = None
    evidence: tuple[Evidence, ...] = ()


class ProposalTick(Record, frozen=True, kw_only=True):
    """Proposals and symptoms of one lane after one tick of one cell.

    The message with ``closes`` is the lane's last about the tick, even if it proposes nothing: a reader that has it
    from all workload lanes knows that the tick is complete. No tick waits for the proposals of node lanes. A proposal
    that was not granted is repeated in each tick: ``repeated`` are the ids of those that this lane published before
    with the same content. A reader that does not know one receives it in full soon. ``part`` numbers the messages of
    one lane about one tick. ``table_offsets`` are the table offsets that a workload lane used: the cell lane decides
    the tick on no later record. They are empty if the lane does not publish them. ``symptoms`` are the faults and
    effects that the lane detected.
    """

    cell: str
    source: str
    tick: Tick
    proposals: tuple[Proposal, ...] = ()
    repeated: tuple[str, ...] = ()
    part: int = 0
    closes: bool = True
    table_offsets: TableOffsets = msgspec.field(default_factory=TableOffsets)
    symptoms: tuple[Symptom, ...] = ()
