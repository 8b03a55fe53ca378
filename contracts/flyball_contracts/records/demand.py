"""What a workload asked for in a tick."""

from flyball_contracts.records.base import Record, Tick


class Demand(Record, frozen=True, kw_only=True):
    """Demand of one workload in one tick, summed over the nodes of one node-lane partition.

    ``source`` names that partition; a reader adds up the sources. ``work_rate`` is in the work unit of the spec
    per second, and ``None`` where no replica reported it. ``utilization_sum`` is over ``devices`` devices.
    """

    workload: str
    cell: str
    source: str
    tick: Tick
    replicas: int
    ready: int
    devices: int
    work_rate: float | None = None
    request_rate: float | None = None
    queued: float | None = None
    active: float | None = None
    utilization_sum: float | None = None
    power_w: float | None = None
    progress: float | None = None


class TickClosed(Record, frozen=True, kw_only=True):
    """A lane partition has said all it will say about one tick of one cell.

    It follows the last record of that tick from that source, in every partition of the topic, so a reader
    that has it from all sources knows that the tick is whole.
    """

    cell: str
    source: str
    tick: Tick
