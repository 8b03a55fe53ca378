"""What a lane would like; the cell lane decides."""

from typing import Literal

from flyball_contracts.records.base import Evidence, Part, Record, Tick, TimeNs
from flyball_contracts.records.portion import Portion
from flyball_contracts.records.resources import Resources

Wish = Literal["scale", "migrate", "pause", "resize", "choose"]


class Proposal(Part, frozen=True, kw_only=True):
    """One wish about one workload.

    ``scale``: ``replicas`` wanted. ``migrate``: away from ``device`` of ``node`` (then ``replica`` names the part).
    ``pause``: until ``until_ns``. ``resize``: each replica is to ask for ``resources`` instead of ``resources_before``.
    ``choose``: ``replicas`` on the offers of ``mix``.
    ``reason`` is a sentence a person can read. ``id`` stays the same while the words and numbers do.
    """

    id: str
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
    mix: tuple[Portion, ...] = ()
    confidence: float = 0.5
    expected_saving: float | None = None
    evidence: tuple[Evidence, ...] = ()


class ProposalTick(Record, frozen=True, kw_only=True):
    """What one lane would like after one tick of one cell.

    With ``closes`` it is the mark that the lane has said all it will say about the tick, though it wishes for nothing:
    a reader that has it from all workload lanes knows that the tick is whole. Nobody waits for the wishes of node
    lanes. A wish that was not granted is wished again in each tick: ``again`` are the ids of those that this lane said
    before in the same words, so that a reader has them; one that has not hears them in full soon. ``part`` numbers the
    messages of one lane about one tick.
    """

    cell: str
    source: str
    tick: Tick
    proposals: tuple[Proposal, ...] = ()
    again: tuple[str, ...] = ()
    part: int = 0
    closes: bool = True
