"""Every collected metric is read by the engine or the page, or it is on the list of those that only
people look at, through the sinks and the agent's own exporters.

A metric that gets a reader leaves the list, and one that loses its last reader is put there on purpose.
"""

import json
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from flyball_contracts.metrics import LAYOUTS

ROOT = Path(__file__).resolve().parents[1]
AGENT = ("flyball.agent.*",)
DISPLAY_ONLY: dict[str, tuple[str, ...]] = {
    "gpu": (
        "nvidia.gpu.utilization.p95",
        "nvidia.gpu.busy.time",
        "hw.gpu.memory.limit",
        "nvidia.gpu.memory.reserved",
        "nvidia.gpu.bar1.usage",
        "nvidia.gpu.graphics.activity",
        "nvidia.gpu.power.average",
        "hw.energy",
        "hw.temperature{sensor=memory}",
        "nvidia.gpu.temperature.margin",
        "nvidia.gpu.clock.frequency{clock=mem}",
        "nvidia.gpu.clock.event.active{reason=*}",
        "nvidia.gpu.throttle.time{reason=*}",
        "nvidia.gpu.pstate",
        "hw.fan.speed_ratio",
        "nvidia.gpu.memory.row_remap.pending",
        "nvidia.gpu.process.count",
    ),
    "host": (
        "system.cpu.time{mode=user}",
        "system.cpu.time{mode=idle}",
        "system.cpu.time{mode=steal}",
        "system.memory.limit",
        "system.memory.usage{state=*}",
        "system.memory.linux.available",
        "system.paging.*",
        "system.linux.psi.total_time{resource=*,stall=full}",
        "system.uptime",
        "hw.energy{type=*}",
        *AGENT,
    ),
    "serving": ("gen_ai.server.time_per_output_token{stat=p99}",),
    "workload": ("flyball.workload.latency{stat=p99}", "flyball.workload.loss"),
    "gpu_detail": (
        "nvidia.gpu.sm.cycles{state=*}",
        "nvidia.gpu.tensor.activity{pipe=*}",
        "nvidia.gpu.mma.stall",
        "nvidia.gpu.power.sample{stat=*}",
        "nvidia.gpu.power.limit{type=*}",
        "nvidia.gpu.clock.frequency{clock=video}",
        "nvidia.gpu.clock.event.active{reason=*}",
        "nvidia.gpu.throttle.time{reason=*}",
        "nvidia.gpu.pcie.errors{type=*}",
        "nvidia.gpu.pcie.link{*}",
        "nvidia.gpu.nvlink.up",
        "nvidia.gpu.nvlink.count",
        "nvidia.gpu.nvlink.errors{type=*}",
        "nvidia.gpu.fabric.*",
        "nvidia.gpu.ecc.*",
        "nvidia.gpu.memory.pages.retired{cause=*}",
        "nvidia.gpu.memory.rows.remapped{cause=*}",
        "nvidia.gpu.memory.row_remap.*",
        "nvidia.gpu.xid.events",
        "hw.status{state=*}",
        "hw.temperature.limit{limit=*}",
        "nvidia.gpu.mig.slices{state=*}",
        *AGENT,
    ),
    "numa": ("system.memory.*", "system.cpu.*", "system.linux.numa.pages{state=*}"),
    "usage": (
        "container.cpu.throttled.time",
        "container.memory.usage",
        "container.linux.psi.total_time{*}",
        "container.thread.count",
        "nvidia.gpu.workload.*",
    ),
    "gpu_share": ("nvidia.gpu.share.*",),
}
"""By layout, metrics that nothing decides on; * stands for anything."""

RECORD = """
import importlib, json, pkgutil
from flyball_contracts.metrics.base import Layout
read, column = set(), Layout.column
def noted(self, key):
    read.add((self.name, key))
    return column(self, key)
Layout.column = noted
import flyball_models, flyball_streams.dashboard, flyball_streams.engine
for package in (flyball_models, flyball_streams.dashboard, flyball_streams.engine):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.node.cell import NodeCell
NodeCell("cell", 0, Parameters(), Directory(), 1)
print(json.dumps(sorted(read)))
"""


@pytest.fixture(scope="module")
def read() -> set[tuple[str, str]]:
    """Layout and key of each column that the engine, the models or the page look up, recorded while they load."""
    done = subprocess.run([sys.executable, "-c", RECORD], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return {(layout, key) for layout, key in json.loads(done.stdout.splitlines()[-1])}


def unread(layout: str, read: set[tuple[str, str]]) -> list[str]:
    (found,) = [x for x in LAYOUTS.values() if x.name == layout]
    return [metric.key for metric in found.metrics if (layout, metric.key) not in read]


@pytest.mark.parametrize("layout", [layout.name for layout in LAYOUTS.values()])
def test_every_metric_has_a_reader_or_is_listed(layout: str, read: set[tuple[str, str]]) -> None:
    listed = DISPLAY_ONLY.get(layout, ())
    nobody = [key for key in unread(layout, read) if not any(fnmatchcase(key, p) for p in listed)]
    assert nobody == [], "collected and read by nobody: read it, do not collect it, or list it in DISPLAY_ONLY"


@pytest.mark.parametrize("layout", DISPLAY_ONLY)
def test_the_list_names_nothing_that_is_read_or_gone(layout: str, read: set[tuple[str, str]]) -> None:
    left = unread(layout, read)
    stale = [p for p in DISPLAY_ONLY[layout] if not any(fnmatchcase(key, p) for key in left)]
    assert stale == [], "these are read now, or collected no more: take them off DISPLAY_ONLY"


def test_what_is_read_is_noticed(read: set[tuple[str, str]]) -> None:
    assert {("gpu", "hw.power"), ("workload", "flyball.workload.step.time")} <= read
    assert ("usage", "container.memory.oom") in read
    assert ("host", "system.memory.utilization") in read  # looked up by a table that watches it
