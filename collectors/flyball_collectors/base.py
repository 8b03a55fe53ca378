"""The collector interface: every source of telemetry on a node, as the agent uses it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import Layout
from flyball_contracts.records import Allocation, Device, Gateway, NodeEvent, NumaNode
from flyball_contracts.records.inventory import CapacityType, CordonState

NAN = float("nan")
Values = Mapping[str, float | Mapping[str, float]]  # by metric key; by instance where those come and go


class Reading(NamedTuple):
    """Values of one frame, ``float32[rows, metrics]`` in the column order of layout ``schema``."""

    schema: int
    values: NDArray[np.float32]


class KeyedReading(NamedTuple):
    """Values of one frame of a layout whose rows are the node's allocations.

    ``rows`` is ``float32[metrics]`` by (workload, replica). The agent orders them as in the inventory: an allocation
    without a row is NaN, a row without an allocation is left out.
    """

    schema: int
    rows: Mapping[tuple[str, str], NDArray[np.float32]]


class Place(NamedTuple):
    """Location and machine type of a node, from its cloud; empty if unknown."""

    provider: str = ""
    region: str = ""
    availability_zone: str = ""
    instance_type: str = ""
    capacity_type: CapacityType | None = None


class Parts(NamedTuple):
    """A collector's part of the node's inventory; its devices are the rows of its readings, in order.

    Allocations of several collectors with one (workload, replica) become one row of the inventory. ``schedulable`` and
    ``cordon`` are those of the node, if the collector knows them.
    """

    devices: tuple[Device, ...] = ()
    driver_version: str = ""
    cpu_count: int | None = None
    memory_bytes: int | None = None
    allocations: tuple[Allocation, ...] = ()
    numa: tuple[NumaNode, ...] = ()
    gateways: tuple[Gateway, ...] = ()
    place: Place = Place()
    schedulable: bool = True
    cordon: CordonState = ""


class Collector(Protocol):
    """One source of telemetry.

    No method raises for failures of the source: a missing value is NaN, a fault is an event. ``name`` is for logs.
    """

    name: str

    def read(self, now_ns: int, period_ns: int) -> Sequence[Reading | KeyedReading]:
        """Read everything once.

        ``now_ns`` is the tick, ``period_ns`` the time since the tick before. A counter column is the increase
        since the previous read, NaN on the first.
        """
        ...

    def parts(self) -> Parts:
        """Current parts of the inventory; cheap, called after each read. None from a source of events alone."""
        return Parts()

    def events(self) -> list[NodeEvent]:
        """Events since the last call; none from a source of values alone."""
        return []

    def close(self) -> None:
        """Release all resources; a second call does nothing."""
        return


class Counters:
    """Turns counters since boot into increases since the previous read.

    A counter that went down was reset or wrapped: the increase is unknown, hence NaN.
    Instances of metrics whose keys begin with one of ``wandering`` may come with counts from elsewhere.
    """

    def __init__(self, wandering: tuple[str, ...] = ()) -> None:
        self._wandering = wandering
        self._last: dict[str, float] = {}
        self._last_parts: dict[str, Mapping[str, float]] = {}

    def increase(self, key: str, value: float | None) -> float:
        """Increase of one counter; NaN on the first read and after one without a value (``None`` or NaN)."""
        before = self._last.pop(key, None)
        if value is None or value != value:
            self._last_parts.pop(key, None)
            return NAN
        self._last[key] = value
        return NAN if before is None or value < before else value - before

    def increase_of_sum(self, key: str, values: Mapping[str, float]) -> float:
        """Sum of the increases of one counter over its instances (disks, interfaces).

        A new instance counts from zero, as the kernel's counters do, or from its first value if it wanders; a removed
        one no longer counts.
        """
        before = self._last_parts.get(key)
        self._last_parts[key] = values
        if before is None:
            return NAN
        wanders = key.startswith(self._wandering)
        steps = [value - before.get(name, value if wanders else 0.0) for name, value in values.items()]
        lowest = min(steps, default=0.0)
        return NAN if lowest < 0 else sum(steps)


def fill_row(layout: Layout, found: Values, counters: Counters) -> NDArray[np.float32]:
    """Row ``float32[metrics]`` of a layout: gauges as found, counters as their increase, NaN for the rest."""
    row = np.full(len(layout), np.nan, np.float32)
    metrics = layout.metrics
    for key, column in layout.columns.items():
        value = found.get(key)
        counts = metrics[column].instrument == "counter"
        if value is None or isinstance(value, (int, float)):
            if counts:
                row[column] = counters.increase(key, value)
            elif value is not None:
                row[column] = value
        elif counts:
            row[column] = counters.increase_of_sum(key, value)
    return row
