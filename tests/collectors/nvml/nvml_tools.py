"""What the tests of the NVML collector share: open it, and name what a read found."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from flyball_collectors.base import Reading
from flyball_collectors.nvml import NvmlCollector, open_nvml
from flyball_collectors.parameters import GpuParameters
from flyball_contracts.metrics import GPU, GPU_DETAIL, Layout
from flyball_contracts.records import NodeEvent

S = 1_000_000_000
EACH_TIME = GpuParameters(detail_period_s=1e-9)
Row = dict[str, float]


def open_now(settings: GpuParameters = EACH_TIME, root: Path = Path("/")) -> NvmlCollector:
    """A collector, by default one that looks at the details each time."""
    collector = open_nvml("node", root, settings)
    assert isinstance(collector, NvmlCollector)
    return collector


def named(reading: Reading, layout: Layout) -> list[Row]:
    """Known values of each row."""
    assert reading.schema == layout.schema
    return [{key: float(row[i]) for key, i in layout.columns.items() if not np.isnan(row[i])} for row in reading.values]


def both(collector: NvmlCollector, now_ns: int = S) -> tuple[list[Row], list[Row]]:
    """Rows of one read, and their details; there is one for each device of the inventory."""
    current, detail = collector.read(now_ns, S)
    assert len(current.values) == len(detail.values) == len(collector.parts().devices)
    return named(current, GPU), named(detail, GPU_DETAIL)


def detail(collector: NvmlCollector) -> Row:
    """Details of the only device."""
    (one,) = both(collector)[1]
    return one


def agree(found: Mapping[str, float], expected: Mapping[str, float]) -> None:
    """All that is expected was found."""
    assert {key: found.get(key) for key in expected} == {key: pytest.approx(value) for key, value in expected.items()}


def until(collector: NvmlCollector, done: Callable[[list[Row], list[Row]], bool]) -> tuple[list[Row], list[Row]]:
    """Read until something is so, and return that read; what is waited for comes in time, not in reads."""
    deadline = time.monotonic() + 20
    while True:
        found = both(collector)
        if done(*found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def kinds(events: list[NodeEvent]) -> list[str]:
    """Kinds of events."""
    return [event.kind for event in events]
