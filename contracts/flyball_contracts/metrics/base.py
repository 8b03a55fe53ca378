"""Metric layouts: the metric of each column of a frame's block."""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

import msgspec

Instrument = Literal["gauge", "counter"]
Rows = Literal["device", "host", "allocation", "numa", "gateway"]


class Metric(msgspec.Struct, frozen=True):
    """One column: OpenTelemetry name, UCUM unit, instrument, attributes and description."""

    name: str
    unit: str
    instrument: Instrument
    about: str
    attributes: Mapping[str, str] = {}

    @property
    def key(self) -> str:
        """Name with its attributes, unique in a layout: ``hw.gpu.io{direction=receive}``."""
        if not self.attributes:
            return self.name
        inside = ",".join(f"{k}={v}" for k, v in sorted(self.attributes.items()))
        return f"{self.name}{{{inside}}}"


class Layout(msgspec.Struct, frozen=True, dict=True):
    """The columns of one kind of frame, in order.

    ``rows`` is the kind of a row: a device, an allocation (one replica of a workload on this node), a NUMA node or a
    gateway of a workload, each in the order of the inventory, or the host (one row).
    """

    schema: int
    name: str
    rows: Rows
    metrics: tuple[Metric, ...]

    @cached_property
    def columns(self) -> dict[str, int]:
        """Column of each metric by :attr:`Metric.key`."""
        return {metric.key: i for i, metric in enumerate(self.metrics)}

    def column(self, key: str) -> int:
        """Column of one metric; ``KeyError`` when the layout has no such metric."""
        return self.columns[key]

    def __len__(self) -> int:
        return len(self.metrics)


def gauge(name: str, unit: str, about: str, **attributes: str) -> Metric:
    """Column of a value as it is now."""
    return Metric(name, unit, "gauge", about, attributes)


def count(name: str, unit: str, about: str, **attributes: str) -> Metric:
    """Column of an increase since the node's previous frame of this layout."""
    return Metric(name, unit, "counter", about, attributes)
