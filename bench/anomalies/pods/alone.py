"""The stories of ``pods/real.py``, seen by the detectors of stays, lost devices and latencies alone: much quicker.

The same draws of the same faults, in the same pods, at the same budget, without lanes, messages and incidents: a story
is found when one of these detectors reports the pod within the hour, and what else they report of other pods is false.
What they report of the clean series is counted by itself.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench.anomalies.budget import latencies, pods
from bench.anomalies.pods.faults import MEMORY_MIB, Floats, Tick
from bench.anomalies.pods.real import COLUMNS, HOST_USED, SERVICE, WATCHED_S, WORKER, Fleet, drawn, f1, wilson
from numpy.typing import NDArray
from tests.streams.engine.scene import inventory

from flyball_contracts import records
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU, HOST
from flyball_contracts.records import Allocation, Inventory
from flyball_streams.engine import Directory
from flyball_streams.engine.budget import BUDGET_S, HOST_SOJOURNS_SHARE, LOST_SHARE, SOJOURNS_SHARE
from flyball_streams.engine.node.detector import CellTick, Detector
from flyball_streams.engine.node.detectors.lost_devices import LostDevices
from flyball_streams.engine.node.detectors.sojourns import GPU_STATES, HOST_STATES, Sojourns
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import Tenancy
from flyball_streams.engine.node.window import Means
from flyball_streams.engine.rows import known
from flyball_streams.engine.workload.replica_latencies import ReplicaLatencies

DAY_S = 86_400.0
TITLES = ("fault", "stories", "found (90 %)", "median s", "false", "by")


class Detectors:
    """These detectors over all pods of a course, each a node with one GPU."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.n = fleet, fleet.course.x.shape[1]
        self.gpus, self.hosts = SubjectTable(GPU), SubjectTable(HOST)
        self.nodes: dict[str, Inventory] = {}
        for pod in range(self.n):
            name = fleet.name(pod)
            held = Allocation(workload=SERVICE, replica=f"{SERVICE}-{pod}", devices=(0,))
            self.nodes[name] = inventory(name, 1, [held])
            self.gpus.rows(tuple(d.id for d in self.nodes[name].devices), name)
            self.hosts.rows((name,), name)
        rate = WORKER.health.false_incidents_per_1000_gpu_days / BUDGET_S
        self.all: tuple[Detector[Any], ...] = (
            Sojourns(self.gpus, GPU_STATES, SOJOURNS_SHARE * rate),
            LostDevices(self.gpus, LOST_SHARE * rate),
            Sojourns(self.hosts, HOST_STATES, HOST_SOJOURNS_SHARE * rate),
        )
        self.tenancy, self.directory = Tenancy(self.nodes, self.gpus.slots, self.gpus.capacity), Directory()
        for node in self.nodes.values():
            self.directory.apply(node)
        self.latencies = ReplicaLatencies("pods", WORKER.health, self.directory)

    def states(self) -> list[Mapping[str, Any]]:
        """What all detectors know."""
        return [*(detector.state() for detector in self.all), self.latencies.state()]

    def load(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Go on from there."""
        *others, of_latencies = states
        self.latencies.load(dict(of_latencies))
        for detector, state, table in zip(self.all, others, (self.gpus, self.gpus, self.hosts), strict=True):
            detector.load(dict(state), table.capacity)

    def step(self, index: int, sent: Tick) -> Iterator[tuple[int, str]]:
        """Pods that are reported in a tick, and by which detector."""
        x, n = sent.x, self.n
        x[list(sent.silent)] = np.nan
        sent.latency_s[list(sent.silent)] = np.nan
        gpu = np.full((self.gpus.capacity, len(GPU)), np.nan, np.float32)
        host = np.full((self.hosts.capacity, len(HOST)), np.nan, np.float32)
        gpu[:n, COLUMNS[0]], gpu[:n, COLUMNS[1]], host[:n, HOST_USED] = x[:, 0] / 100.0, x[:, 1] / MEMORY_MIB, x[:, 2]
        here: NDArray[np.bool_] = np.asarray(np.isfinite(x).any(axis=1), np.bool_)
        self.hosts.mask[:n] = here
        for table, values in ((self.gpus, gpu), (self.hosts, host)):
            mask = np.zeros(table.capacity, np.bool_)
            mask[:n] = here
            table.means = Means(values, mask, self.fleet.course.tick_s)
        tick = records.Tick(
            index=self.fleet.now_ns(index) // self.fleet.period_ns, period_ns=round(self.fleet.course.tick_s * NS_PER_S)
        )
        seen = CellTick(
            cell="pods", tick=tick, gpus=self.gpus, hosts=self.hosts, tenancy=self.tenancy, directory=self.directory,
            inventories=self.nodes, events=[], usage=[], node_rate=0.0,
        )  # fmt: skip
        for detector in self.all:
            for found in detector.step(seen):
                if isinstance(found, records.Anomaly):
                    yield self.hosts.slots[found.node], found.detector
        for anomaly in self.latencies.step(tick, {SERVICE: self._demand(sent, here)}):
            yield self.hosts.slots[anomaly.node], anomaly.detector

    def _demand(self, sent: Tick, here: NDArray[np.bool_]) -> records.Demand:
        running: list[int] = np.flatnonzero(here).tolist()
        reported = records.Latencies(
            replicas=tuple(f"{SERVICE}-{pod}" for pod in running),
            nodes=tuple(self.fleet.name(pod) for pod in running),
            latency_s=tuple(known(float(sent.latency_s[pod])) for pod in running),
            requests=(None,) * len(running),
        )
        return records.Demand(SERVICE, len(running), len(running), len(running), latencies=(reported,))


def rows(data: Path, stories: int, seed: int, half: int = 1) -> Iterator[dict[str, Any]]:
    """What the clean series have, then so many stories of each fault that the series carry."""
    fleet = Fleet(pods(data, half, True), latencies(data, half))
    chosen = [(n, *one) for n, one in enumerate(drawn(fleet, stories, seed)) if one[0].carried]
    kept = {at for _, _, at, _ in chosen}
    detectors, at_tick, clean = Detectors(fleet), dict[int, list[Mapping[str, Any]]](), set[tuple[int, int]]()
    for index in range(len(fleet.course.x)):
        if index in kept:
            at_tick[index] = detectors.states()
        clean |= {(index, pod) for pod, _ in detectors.step(index, fleet.as_it_is(index))}
    yield {"part": "alone_clean", "gpu_days": fleet.course.days, "reports": len(clean)}
    for n, fault, at, pod in chosen:
        random = np.random.default_rng([seed, n])
        change: Callable[..., None] = fault.draw(random)
        first: Floats = fleet.course.x[at].copy()
        detectors.load(at_tick[at])
        delay, by, false = None, "", set[int]()
        for index in range(at, at + round(WATCHED_S / fleet.course.tick_s)):
            sent = fleet.as_it_is(index)
            change(sent, first, pod, (index - at) * fleet.course.tick_s, random)
            for one, detector in detectors.step(index, sent):
                if one == pod and delay is None:
                    delay, by = (index + 1 - at) * fleet.course.tick_s, detector
                elif one != pod and (index, one) not in clean:
                    false.add(one)
        yield {
            "part": "alone",
            "fault": fault.name,
            "at_work": fleet.at_work(pod, at),
            "tick": at,
            "pod": pod,
            "delay_s": delay,
            "by": by,
            "false": len(false),
        }


def nature(data: Path, half: int = 1) -> Iterator[dict[str, Any]]:
    """What clean pods do by themselves, and how far faults that last no longer than that go beyond it."""
    course = pods(data, half, True)
    duty, memory, host = (course.x[:, :, k] for k in range(3))
    minute, hour = course.tick_s / 60.0, round(WATCHED_S / course.tick_s)
    stays = {
        "at 95 % of use or more": duty >= 95.0,
        "idle": duty <= 0.5,
        "at 98 % of memory or more": memory >= 0.98 * MEMORY_MIB,
        "host memory repeats": np.diff(host, axis=0, prepend=np.nan) == 0.0,
        "no value of the GPU": np.isnan(duty) & np.isnan(memory) & np.isfinite(host),
    }
    for name, inside in stays.items():
        yield {"part": "nature", "what": f"longest stay, min: {name}", "value": _longest(inside) * minute}
    random, use = np.random.default_rng(1), np.nan_to_num(duty)
    busiest = float(np.max(np.lib.stride_tricks.sliding_window_view(use, hour, axis=0).mean(axis=-1)))
    slowed: list[bool] = []
    risen: list[bool] = []
    for at in range(2 * hour, len(use) - hour, hour):
        for pod in np.flatnonzero(np.isfinite(course.x[[0, at, at + hour - 1]]).all(axis=(0, 2))).tolist():
            factor = float(2.0 ** random.uniform(1.0, 2.0))
            slowed.append(float(np.minimum(100.0, use[at : at + hour, pod] * factor).mean()) > busiest)
            tenth = np.lib.stride_tricks.sliding_window_view(host[at : at + hour, pod], 10).min(axis=1)
            risen.append(bool(np.nanmax(tenth) - np.nanmax(host[:at, pod]) > 0.1))
    slow, rose = (
        "hours 2 to 4 times as slow with more use than any clean one, %",
        "hours, per 1,000 pod-days: host memory",
    )
    yield {"part": "nature", "what": slow, "value": 100.0 * float(np.mean(slowed))}
    per_day = DAY_S / WATCHED_S * float(np.mean(risen))
    yield {"part": "nature", "what": f"{rose} is 0.1 above all before for ten minutes", "value": 1000.0 * per_day}


def _longest(inside: NDArray[np.bool_]) -> int:
    """Ticks of the longest run in a column."""
    most, run = 0, np.zeros(inside.shape[1], np.int64)
    for row in inside:
        run = np.where(row, run + 1, 0)
        most = max(most, int(run.max()))
    return most


def nature_of(found: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Lines of what clean pods do."""
    for row in (r for r in found if r["part"] == "nature"):
        yield row["what"], f"{row['value']:.1f}"


def rows_of(found: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Lines of the table: the clean series, each fault, and F1."""
    for row in (r for r in found if r["part"] == "alone_clean"):
        yield f"none: {row['gpu_days']:.0f} GPU-days", "", "", "", str(row["reports"]), ""
    mine = [r for r in found if r["part"] == "alone"]
    for fault in dict.fromkeys(r["fault"] for r in mine):
        of = [r for r in mine if r["fault"] == fault]
        delays = [r["delay_s"] for r in of if r["delay_s"] is not None]
        low, high = wilson(len(delays), len(of))
        middle = f"{np.median(delays):.0f}" if delays else ""
        share = f"{len(delays) / len(of):.0%} ({low:.0%} to {high:.0%})"
        by = ", ".join(sorted({r["by"] for r in of} - {""}))
        yield fault, str(len(of)), share, middle, str(sum(r["false"] for r in of)), by
    for name, of in (("F1", mine), ("F1, at work", [r for r in mine if r["at_work"]])):
        if of:
            hits, false = sum(r["delay_s"] is not None for r in of), sum(r["false"] for r in of)
            yield name, str(len(of)), f"{f1(hits, false, len(of)):.2f}", "", str(false), ""
