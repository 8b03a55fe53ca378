"""GPU pods of an image-generation service: cluster-trace-v2026-GenAI of alibaba/clusterdata.

Files: `pod_metrics` (`pod, t_s, gpu_duty_pct, gpu_mem_mib`), `qps` (`pod, t_s, qps`), `service_metrics` (`metric, pod,
t_s, value`).

Mapping and assumptions:

- *Time.* The trace's own (anonymised) epoch. Samples of the window `[t - period, t)` are averaged and recorded at `t`,
  so that nothing is known before it happened. The trace has a sample each 57 s; windows of 60 s hold one or two.
- *Nodes.* The trace has none. Pods, sorted by name, fill synthetic nodes of up to eight devices, one pod per device; a
  pod has the same device whenever it is there. A node sends frames in every window in which the trace has any row.
- *Devices.* The board is not named. Its memory is the smallest common size that holds the maximum of any pod; in
  frames, the power limit and everything else that the trace lacks are NaN. `host_mem_frac` is not used: it
  describes a container, not a node.
- *Start and end.* The trace does not show when a pod started or ended, only when it reported. A pod holds its device
  from its first row on. Without a row in a window it is NaN in both frames, `ready` included; at the `LOST_TICKS`-th
  such window in a row it counts as gone and its device as free, until it reports again. Each change is a new epoch of
  the node's inventory, at the end of the window that showed it. So the inventory is some minutes late, but never early.
- *Workload.* All pods are replicas of one inference service. Work is GPU time: the work rate of a pod is its duty (busy
  GPU-seconds per second) and a replica of one GPU can do 1.0.
- *Requests.* `qps` is on an anonymised scale and has no zeros: for a pod that reports `qps`, a window with telemetry
  and no `qps` had no request.
- *Latency* is the mean of `queue_wait_ms`, the delay of an objective. The load times and end-to-end times are not used.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from flyball_contracts.metrics import GPU, WORKLOAD
from flyball_contracts.records import Allocation, Device, Inventory, Objective, WorkloadSpec
from flyball_streams.importers.base import (
    BOOT_ID,
    DEVICES_PER_NODE,
    GIB,
    NS_PER_S,
    UNKNOWN_BOARD,
    ImportReport,
    Progress,
    RecordingBuilder,
    means,
    read_table,
    report_of,
    totals,
)
from flyball_streams.recording import RecordingWriter

MIB = 1024**2
BOARD_GIB = (16, 24, 32, 40, 48, 80, 96, 141, 192, 288)
LOST_TICKS = 5
"""A pod counts as gone after this many consecutive windows without a row of it.

A lost sample empties one window, a failing scrape a few; at 60 s, five are the 300 s that Kubernetes, too, gives a node
that is silent before it evicts its pods.
"""

_UTILIZATION = GPU.column("hw.gpu.utilization{task=general}")
_MEMORY = GPU.column("hw.gpu.memory.usage")
_REQUESTS = WORKLOAD.column("flyball.workload.request.rate")
_WORK = WORKLOAD.column("flyball.workload.work.rate")
_WAIT = WORKLOAD.column("flyball.workload.latency{stat=mean}")
_READY = WORKLOAD.column("flyball.workload.ready")


class _Series(NamedTuple):
    """All pods in all windows; each array is `[windows, pods]`, NaN where nothing is known."""

    pods: list[str]
    first_tick: int
    present: NDArray[np.bool_]
    duty: NDArray[np.float64]
    memory_bytes: NDArray[np.float64]
    requests_per_s: NDArray[np.float64]
    wait_s: NDArray[np.float64]
    left_out: dict[str, int]


@dataclass(frozen=True)
class AlibabaGentd26:
    """Importer of `alibaba_gentd26`; `period_s` is the length of a tick."""

    period_s: int = 60
    name: str = "alibaba_gentd26"
    about: str = "GPU duty, memory, request rate and queue wait of each pod of an image-generation service (22.8 h)"

    def convert(self, source: Path, out: Path, *, progress: Progress | None = None) -> ImportReport:
        """Convert the trace's folder to a recording; the module describes the mapping."""
        series = _read(source, self.period_s)
        period_ns = self.period_s * NS_PER_S
        start_ns = series.first_tick * period_ns
        with RecordingWriter(out, made_by=f"flyball import {self.name}, period {self.period_s} s") as writer:
            builder = RecordingBuilder(writer, self.name)
            builder.record(self._spec(series, start_ns), start_ns)
            nodes = self._nodes(series, start_ns)
            held = allocated(series.present, LOST_TICKS)
            shown: dict[str, NDArray[np.bool_]] = {}
            for i in range(len(series.present)):
                time_ns = start_ns + (i + 1) * period_ns
                for n, node in enumerate(nodes if series.present[i].any() else ()):
                    mine = np.arange(n * DEVICES_PER_NODE, n * DEVICES_PER_NODE + len(node.devices))
                    now = held[i, mine]
                    if node.node not in shown or (now != shown[node.node]).any():
                        shown[node.node] = now
                        nodes[n] = node = self._changed(node, [series.pods[k] for k in mine], now, time_ns)
                        builder.record(node, time_ns)
                    builder.frame(node, GPU.schema, _device_rows(series, i, mine), time_ns, period_ns)
                    builder.frame(node, WORKLOAD.schema, _replica_rows(series, i, mine[now]), time_ns, period_ns)
                if progress is not None:
                    progress(i + 1, len(series.present))
        return report_of(writer, series.left_out)

    @property
    def _workload(self) -> str:
        return f"{self.name}-service"

    def _nodes(self, series: _Series, time_ns: int) -> list[Inventory]:
        """All nodes before anything runs: epoch 0, which no recording contains."""
        most = np.nanmax(series.memory_bytes) if np.isfinite(series.memory_bytes).any() else 0.0
        board = next((size for size in BOARD_GIB if size * GIB >= most), int(most) // GIB + 1) * GIB
        nodes: list[Inventory] = []
        for n, first in enumerate(range(0, len(series.pods), DEVICES_PER_NODE)):
            pods = series.pods[first : first + DEVICES_PER_NODE]
            node = f"{self.name}-node-{n:04d}"
            devices = tuple(
                Device(id=f"{node}/{pod}", model=UNKNOWN_BOARD, memory_bytes=board, index=i)
                for i, pod in enumerate(pods)
            )
            nodes.append(
                Inventory(node=node, cell=self.name, epoch=0, time_ns=time_ns, boot_id=BOOT_ID, devices=devices)
            )
        return nodes

    def _changed(self, node: Inventory, pods: list[str], held: NDArray[np.bool_], time_ns: int) -> Inventory:
        """Return the node's next epoch, in which exactly the pods `held` have devices."""
        allocations = tuple(
            Allocation(workload=self._workload, replica=pods[row], devices=(row,))
            for row in np.flatnonzero(held).tolist()
        )
        return msgspec.structs.replace(node, epoch=node.epoch + 1, time_ns=time_ns, allocations=allocations)

    def _spec(self, series: _Series, time_ns: int) -> WorkloadSpec:
        return WorkloadSpec(
            workload=self._workload,
            cell=self.name,
            time_ns=time_ns,
            kind="inference",
            min_replicas=1,
            max_replicas=len(series.pods),
            capacity_per_replica=1.0,
            objective=Objective(delay_s=30.0),
        )


def allocated(present: NDArray[np.bool_], lost: int) -> NDArray[np.bool_]:
    """Whether each pod counts as running in each window; both `[windows, pods]`.

    A pod runs from its first row on, except from the `lost`-th consecutive window without a row until the next row.
    Windows without any row of any pod are not counted.
    """
    reporting = present.any(axis=1)
    count = np.cumsum(reporting)[:, None]
    newest = np.maximum.accumulate(np.where(present, count, -lost), axis=0)
    return np.asarray(count - newest < lost, np.bool_)


def _read(source: Path, period_s: int) -> _Series:
    keys = {"pod": pl.String(), "t_s": pl.Int64()}
    number = pl.Float64()
    pods = read_table(source, "pod_metrics.parquet", keys, {"gpu_duty_pct": number, "gpu_mem_mib": number})
    qps = read_table(source, "qps.parquet", keys, {"qps": number})
    service = read_table(source, "service_metrics.parquet", {**keys, "metric": pl.String()}, {"value": number})
    names = pods.rows["pod"].unique().sort().to_list()
    place = {name: i for i, name in enumerate(names)}
    ticks = pods.rows["t_s"].to_numpy() // period_s
    first, count = int(ticks.min()), int(ticks.max() - ticks.min()) + 1
    size = count * len(names)

    def places_of(rows: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Index of each row in the flat `[windows, pods]`, and whether it is inside."""
        tick = rows["t_s"].to_numpy() // period_s - first
        pod = np.array([place.get(name, -1) for name in rows["pod"].to_list()], np.int64)
        inside = (pod >= 0) & (tick >= 0) & (tick < count)
        return tick * len(names) + pod, inside

    at, _ = places_of(pods.rows)
    samples = np.bincount(at, minlength=size)
    duty = _floats(pods.rows, "gpu_duty_pct")
    implausible = np.isfinite(duty) & ((duty < 0) | (duty > 100))
    duty[implausible] = np.nan

    at_qps, inside_qps = places_of(qps.rows)
    requests, _ = totals(at_qps[inside_qps], _floats(qps.rows, "qps")[inside_qps], size)
    reports = np.zeros(len(names), np.bool_)
    reports[at_qps[inside_qps] % len(names)] = True
    known = (samples > 0) & np.tile(reports, count)

    waits = service.rows.filter(pl.col("metric") == "queue_wait_ms")
    at_wait, inside_wait = places_of(waits)
    wait = means(at_wait[inside_wait], _floats(waits, "value")[inside_wait] / 1000.0, size)

    shape = (count, len(names))
    return _Series(
        pods=names,
        first_tick=first,
        present=(samples > 0).reshape(shape),
        duty=means(at, duty / 100.0, size).reshape(shape),
        memory_bytes=means(at, _floats(pods.rows, "gpu_mem_mib") * MIB, size).reshape(shape),
        requests_per_s=np.where(known, requests / np.maximum(samples, 1), np.nan).reshape(shape),
        wait_s=np.where(samples > 0, wait, np.nan).reshape(shape),
        left_out={
            "rows without pod or time": pods.dropped + qps.dropped + service.dropped,
            "duties outside 0..100 %": int(implausible.sum()),
            "request rates of pods or times without GPU telemetry": int((~inside_qps).sum()),
            "queue waits of pods or times without GPU telemetry": int((~inside_wait).sum()),
        },
    )


def _floats(rows: pl.DataFrame, column: str) -> NDArray[np.float64]:
    """Copy a column, with NaN for null."""
    return rows[column].fill_null(float("nan")).to_numpy().astype(np.float64, copy=True)


def _device_rows(series: _Series, i: int, mine: NDArray[np.int64]) -> NDArray[np.float32]:
    duty = series.duty[i, mine]
    values = np.full((len(duty), len(GPU)), np.nan, np.float32)
    values[:, _UTILIZATION] = duty
    values[:, _MEMORY] = series.memory_bytes[i, mine]
    return values


def _replica_rows(series: _Series, i: int, mine: NDArray[np.int64]) -> NDArray[np.float32]:
    duty = series.duty[i, mine]
    values = np.full((len(duty), len(WORKLOAD)), np.nan, np.float32)
    values[:, _WORK] = duty
    values[:, _REQUESTS] = series.requests_per_s[i, mine]
    values[:, _WAIT] = series.wait_s[i, mine]
    values[:, _READY] = np.where(series.present[i, mine], 1.0, np.nan)
    return values
