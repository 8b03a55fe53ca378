"""Departures on series that nothing was tuned on: false incidents budgeted and observed, NAB, SMD, and throughput."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from bench.anomalies import nab_score as nab, record_ratio
from numpy.typing import NDArray

from flyball_contracts.config import FleetConfig
from flyball_contracts.frame import decode_frame
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Device, Evidence, Inventory, Symptom
from flyball_contracts.topics import TELEMETRY
from flyball_models.anomaly import departure, outlier, tail
from flyball_simulator import Fleet
from flyball_streams.engine import Directory
from flyball_streams.engine.budget import BUDGET_S, COURSES_SHARE, GPUS_SHARE
from flyball_streams.engine.cell.incidents.correlate import Correlation
from flyball_streams.engine.cell.incidents.manager import QUIET_S, QUIET_TICKS
from flyball_streams.engine.cell.incidents.open_incident import OpenIncident
from flyball_streams.engine.node.detectors.departures import GPU_WATCHED
from flyball_streams.engine.packing import wiped
from flyball_streams.engine.workload.courses import WINDOW_S

Floats = NDArray[np.float32]
BUDGETS = (0.1, 1.0, 10.0, 100.0, 1000.0)
START_NS = 1_750_000_000 * 1_000_000_000
POD_FLOORS = {"gpu_duty_pct": 5.0, "gpu_mem_mib": 0.03 * 49_140.0, "host_mem_frac": 0.05}
GPUS_OF_A_SERVICE = 8
PRIOR_SHAPES = (0.25, 0.4, 0.6)
"""What the course's prior shape is chosen from, on other series than those that are scored."""
HALVES = 200
"""Random halves of the series, one to choose on and one to score."""
MERGED_S = 3600.0
"""What one device reports again within this time is the same incident."""


class Course(NamedTuple):
    """Values [T, N, M] of N series in ticks of ``tick_s``, groups [T, N], floors [M], and the series that restart."""

    x: Floats
    group: NDArray[np.int32]
    floors: Floats
    tick_s: float
    restarts: dict[int, list[int]]

    @property
    def days(self) -> float:
        """Device-days with a value."""
        return float(np.isfinite(self.x).any(axis=2).sum()) * self.tick_s / 86_400.0


def simulated(seed: int, hours: float, tick_s: float) -> Course:
    """The GPUs of the demo's fleet without its faulty ones, grouped as the node lane groups them."""
    fleet = Fleet(msgspec.structs.replace(FleetConfig(), seed=seed, tick_s=tick_s, failing=(), straggling=()), START_NS)
    fleet.messages_at_start()
    devices = [(n.node, d) for n in fleet.nodes for d in n.devices]
    slot = {d.id: i for i, (_, d) in enumerate(devices)}
    first = {node: min(i for i, (n, _) in enumerate(devices) if n == node) for node in {n for n, _ in devices}}
    columns, ticks = [GPU.column(key) for key in GPU_WATCHED], round(hours * 3600 / tick_s)
    x = np.full((ticks, len(devices), len(columns)), np.nan, np.float32)
    group = np.zeros((ticks, len(devices)), np.int32)
    held, groups, restarts = [("", "")] * len(devices), dict[tuple[str, str], int](), dict[int, list[int]]()
    now = [0] * len(devices)
    for tick in range(ticks):
        messages = fleet.tick(tick)
        if tick == 0 or any(m.topic != TELEMETRY.name for m in messages):
            new = [("", "")] * len(devices)
            for node in fleet.nodes:
                for a in node.allocations:
                    for row in a.devices:
                        new[slot[node.devices[row].id]] = (a.workload, a.replica)
            changed = [i for i, (a, b) in enumerate(zip(held, new, strict=True)) if a != b]
            restarts, held = restarts | ({tick: changed} if changed else {}), new
            now = [groups.setdefault((w, d.model), len(groups)) for (w, _), (_, d) in zip(held, devices, strict=True)]
        group[tick] = now
        for frame in (decode_frame(m.value or b"") for m in messages if m.topic == TELEMETRY.name):
            if frame.schema == GPU.schema:
                at = first[frame.node]
                x[tick, at : at + frame.rows] = frame.values[:, columns]
    return Course(x, group, np.array(list(GPU_WATCHED.values()), np.float32), tick_s, restarts)


def pods(data: Path, half: int, peers: bool) -> Course:
    """Every other pod of ``alibaba_gentd26``: 0 were looked at while this was made, 1 were not."""
    rows = pl.read_parquet(data / "alibaba_gentd26" / "pod_metrics.parquet").with_columns(pl.col("pod").cast(str))
    names = sorted(rows["pod"].unique())[half::2]
    rows = rows.filter(pl.col("pod").is_in(names))
    seconds = np.array(rows["t_s"].to_list(), np.float64)
    tick_s, place = float(np.median(np.diff(np.unique(seconds)))), {name: i for i, name in enumerate(names)}
    at = np.rint((seconds - seconds.min()) / tick_s).astype(np.int64)
    x = np.full((int(at.max()) + 1, len(names), len(POD_FLOORS)), np.nan, np.float32)
    x[at, [place[name] for name in rows["pod"]]] = rows.select(list(POD_FLOORS)).to_numpy()
    group = np.full(x.shape[:2], 0 if peers else -1, np.int32)
    return Course(x, group, np.array(list(POD_FLOORS.values()), np.float32), tick_s, {})


def latencies(data: Path, half: int) -> Floats:
    """Seconds that the requests of these pods took [T, N], in the ticks of :func:`pods`; NaN where none ended."""
    folder = data / "alibaba_gentd26"
    rows = pl.read_parquet(folder / "pod_metrics.parquet").with_columns(pl.col("pod").cast(str))
    names = sorted(rows["pod"].unique())[half::2]
    seconds = np.array(rows.filter(pl.col("pod").is_in(names))["t_s"].unique().sort().to_list(), np.float64)
    tick_s, place = float(np.median(np.diff(seconds))), {name: i for i, name in enumerate(names)}
    ended = pl.read_parquet(folder / "service_metrics.parquet").with_columns(pl.col("pod", "metric").cast(str))
    ended = ended.filter((pl.col("metric") == "e2e_inference_ms") & pl.col("pod").is_in(names))
    at = np.rint((np.array(ended["t_s"].to_list(), np.float64) - seconds[0]) / tick_s).astype(np.int64)
    found = np.full((int(np.rint((seconds[-1] - seconds[0]) / tick_s)) + 1, len(names)), np.nan, np.float32)
    inside = (at >= 0) & (at < len(found))
    slots = np.array([place[name] for name in ended["pod"]], np.int64)
    found[at[inside], slots[inside]] = ended["value"].to_numpy()[inside] / 1000.0
    return found


def incidents(course: Course, budget: float, share: float = 1.0) -> tuple[int, int]:
    """False incidents from cold on, all of the course in order, and the devices named in them.

    Incidents are what the cell lane makes of the departures: those of one workload, which is a group here, are one
    while it lasts, and so are bursts. What a device shows again within an hour is the same incident.
    """
    ticks, n, metrics = course.x.shape
    rate = share * budget / BUDGET_S / metrics
    state, known = departure.init(n, metrics), tail.init(2 * metrics, rate)
    cell, named = _Cell(course, budget), 0
    last = np.full(n, -np.inf)
    for tick in range(ticks):
        if tick in course.restarts:
            state = wiped(state, departure.init(n, metrics), course.restarts[tick])
        x = course.x[tick]
        mask = np.isfinite(x).any(axis=1)
        state, known, out = departure.step(
            state, known, x, mask, course.group[tick], course.floors, course.tick_s, rate
        )
        alarmed = np.flatnonzero((out.ratio > 0).any(axis=0))
        now = tick * course.tick_s
        named += int((now - last[alarmed] > MERGED_S).sum())
        last[alarmed] = now
        if len(alarmed):
            cell.step(tick, alarmed.tolist(), out)
    return cell.close(np.inf), named


class _Cell:
    """The incidents of one cell lane that a course's departures become."""

    def __init__(self, course: Course, budget: float) -> None:
        self.course, self.open, self.named_s = course, dict[str, OpenIncident](), dict[str, float]()
        directory, self.found = Directory(), 0
        for device in range(course.x.shape[1]):
            directory.apply(
                Inventory(
                    node=f"node-{device}", cell="cell", time_ns=START_NS, boot_id="1", epoch=1,
                    devices=(Device(id=f"gpu-{device}", model="gpu", memory_bytes=1),),
                )
            )  # fmt: skip
        self.correlation = Correlation("cell", directory, self.open, budget)

    def step(self, tick: int, devices: list[int], out: departure.Detections) -> None:
        """Departures of a tick."""
        now_s = (tick + 1) * self.course.tick_s
        self.close(now_s)
        for device in devices:
            self.correlation.ingest(self._symptom(tick, device, now_s, out), _ns(now_s), None)
        self.correlation.spread(_ns(now_s))
        for incident in [c for c in self.open.values() if c.status == "merged"]:
            self.correlation.close(incident)

    def close(self, now_s: float) -> int:
        """Count the incidents that are over, which name a device that none named in the last hour; how many so far."""
        for incident in list(self.open.values()):
            if (incident.seen_ns - START_NS) / 1e9 + max(QUIET_S, QUIET_TICKS * self.course.tick_s) > now_s:
                continue
            before = [self.named_s.get(device, -np.inf) for device in incident.devices]
            self.found += (incident.opened_ns - START_NS) / 1e9 - max(before) > MERGED_S
            self.named_s.update(dict.fromkeys(incident.devices, (incident.seen_ns - START_NS) / 1e9))
            self.correlation.close(incident)
        return self.found

    def _symptom(self, tick: int, device: int, now_s: float, out: departure.Detections) -> Symptom:
        course, group = self.course, int(self.course.group[tick, device])
        evidence = tuple(
            Evidence(name=str(m), value=float(course.x[tick, device, m]), expected=float(out.expected[m, device]))
            for m in np.flatnonzero(out.ratio[:, device] > 0).tolist()
        )
        since_s = now_s - float(out.since_s[:, device].max())
        return Symptom(
            detector="departure", cause="unknown", strength="effect", severity="warning", since_ns=_ns(since_s),
            time_ns=_ns(now_s), node=f"node-{device}", device=f"gpu-{device}", statistical=True,
            workload=f"group-{group}" if group >= 0 else f"pod-{device}", evidence=evidence,
        )  # fmt: skip


def _ns(second: float) -> int:
    return START_NS + round(second * 1e9)


def joined(courses: list[Course]) -> Course:
    """Fleets beside each other, as one lane would see them."""
    offset, groups, restarts, at = 0, list[NDArray[np.int32]](), dict[int, list[int]](), 0
    for course in courses:
        groups.append(course.group + offset)
        offset += int(course.group.max()) + 1
        for tick, slots in course.restarts.items():
            restarts.setdefault(tick, []).extend(slot + at for slot in slots)
        at += course.x.shape[1]
    x = np.concatenate([c.x for c in courses], axis=1)
    return Course(x, np.concatenate(groups, axis=1), courses[0].floors, courses[0].tick_s, restarts)


def budget_rows(name: str, course: Course, budgets: tuple[float, ...], share: float = 1.0) -> Iterator[dict[str, Any]]:
    """Budgeted and observed, with a 90 % interval of the rate."""
    for budget in budgets:
        (got, named), budgeted = incidents(course, budget, share), share * budget * course.days / 1000.0
        low, high = _poisson_90(got)
        yield {
            "part": "budget",
            "series": name,
            "gpu_days": course.days,
            "per_1000_gpu_days": share * budget,
            "asked": budgeted,
            "got": got,
            "devices": named,
            "ratio": got / budgeted,
            "ratio_90": [low / budgeted, high / budgeted],
        }


def _poisson_90(count: int) -> tuple[float, float]:
    """Means that 90 % of counts like this one have (Wilson and Hilferty's approximation of chi squared)."""
    low, high = (
        n * (1.0 - 1.0 / (9.0 * n) + z / (3.0 * n**0.5)) ** 3 for n, z in ((max(count, 1), -1.645), (count + 1, 1.645))
    )
    return (low if count else 0.0), high


def severities(x: Floats, floors: Floats, step_s: float) -> NDArray[np.float64]:
    """-log10 of the expected false incidents per second of each point, [T, N], of series [T, N, M] without peers."""
    ticks, n, metrics = x.shape
    rate = 1.0 / BUDGET_S / metrics
    state, known = departure.init(n, metrics), tail.init(2 * metrics, rate)
    no_group, before = np.full(n, -1, np.int32), np.zeros((metrics, n), np.float32)
    stratum = np.repeat(np.arange(metrics, 2 * metrics, dtype=np.int64), n)
    found = np.zeros((ticks, n))
    for tick in range(ticks):
        mask = np.isfinite(x[tick]).any(axis=1)
        state, known, _ = departure.step(state, known, x[tick], mask, no_group, floors, step_s, rate)
        both = np.minimum(state.last, before) * (state.seen_s > departure.DEFAULT.alone_s)
        before = state.last
        rates = tail.rates(known, stratum, both.ravel().astype(np.float64)).reshape(metrics, n)
        found[tick] = -np.log10(np.where(both > 0.5, rates, 1.0)).max(axis=0)
    return found


def nab_rows(data: Path) -> Iterator[dict[str, Any]]:
    """NAB by its own rules: published detectors at their thresholds, ours with those of the other half."""
    folder = data / "nab"
    series, cost, at = nab.read(folder), nab.weights(folder), nab.thresholds(folder)
    for name in nab.PUBLISHED:
        row = {p: nab.normalised(series, [s.published[name] >= at[name][p] for s in series], cost[p]) for p in cost}
        yield {"part": "nab", "detector": name, "threshold": "published, of all 58 series", **row}
    ours: dict[str, list[NDArray[np.float64]]] = {"departure": [], "record ratio": []}
    for s in series:
        floor = np.array([0.1 * float(np.std(s.values[: s.probation])) + 1e-9], np.float32)
        x = s.values.astype(np.float32)[:, None, None]
        ours["departure"].append(_held(severities(x, floor, s.step_s)[:, 0], s.step_s))
        ours["record ratio"].append(_ratios(s))
    ours["course"] = _surprises(series)
    limit = -np.log10(COURSES_SHARE / BUDGET_S * WINDOW_S * GPUS_OF_A_SERVICE)
    row = {p: nab.normalised(series, [x >= limit for x in ours["course"]], cost[p]) for p in cost}
    yield {"part": "nab", "detector": "course", "threshold": "surprise of 1 in 1,000 GPU-days", **row}
    for name, scores in ours.items():
        grid = np.unique(np.quantile(np.concatenate([x[x > 0] for x in scores]), 1.0 - np.geomspace(1e-4, 0.5, 60)))
        both = {p: nab.held_out(series, scores, cost[p], grid) for p in cost}
        for i, threshold in enumerate(("of the other half", "of the other categories", "best in sample")):
            row = {p: three[i] for p, three in both.items()}
            yield {"part": "nab", "detector": name, "threshold": threshold, **row}

    yield from _chosen_elsewhere(series, cost)


def _chosen_elsewhere(series: list[nab.Series], cost: dict[str, dict[str, float]]) -> Iterator[dict[str, Any]]:
    """The course with its prior shape, too, chosen on other series, for the standard profile."""
    grid = np.linspace(1.5, 6.0, 37)
    configs = [outlier.Config(prior_shape=shape) for shape in PRIOR_SHAPES]
    standard = cost["standard"]
    totals = np.array([_by_threshold(series, _surprises(series, c), standard, grid) for c in configs])
    count = sum(len(s.windows) for s in series)
    least, most = -standard["fnWeight"] * count, standard["tpWeight"] * count

    def apart(part: list[Any]) -> float:
        total = 0.0
        for one in sorted(set(part)):
            mine = np.array([p == one for p in part])
            rest = totals[:, ~mine].sum(axis=1)
            config, at = np.unravel_index(int(rest.argmax()), rest.shape)
            total += float(totals[config, mine, at].sum())
        return 100.0 * (total - least) / (most - least)

    random = np.random.default_rng(1)
    halves = [apart((random.permutation(len(series)) % 2).tolist()) for _ in range(HALVES)]
    low, middle, high = np.quantile(halves, (0.05, 0.5, 0.95)).tolist()
    found = {
        "and shape of the other half": apart([i % 2 for i in range(len(series))]),
        "and shape of the other categories": apart([s.name.split("/")[0] for s in series]),
        "and shape of the other series": apart(list(range(len(series)))),
        f"and shape of {HALVES} random halves: mean": float(np.mean(halves)),
        "5 %": low,
        "50 %": middle,
        "95 %": high,
    }
    for threshold, score in found.items():
        yield {
            "part": "nab", "detector": "course", "threshold": threshold,
            "standard": score, "reward_low_FP_rate": np.nan, "reward_low_FN_rate": np.nan,
        }  # fmt: skip


def _by_threshold(
    series: list[nab.Series], scores: list[NDArray[np.float64]], cost: dict[str, float], grid: NDArray[np.float64]
) -> list[list[float]]:
    return [[nab.score(s, x >= at, cost) for at in grid.tolist()] for s, x in zip(series, scores, strict=True)]


def _held(score: NDArray[np.float64], step_s: float) -> NDArray[np.float64]:
    """Within six hours of a score, another one counts only where it is larger."""
    held, hold, silent, last = np.zeros_like(score), round(6 * 3600 / step_s), 0, 0.0
    for i, value in enumerate(score.tolist()):
        silent -= 1
        if value > 0 and (silent <= 0 or value > last):
            held[i], last, silent = value, value, hold
    return held


def _surprises(series: list[nab.Series], config: outlier.Config = outlier.DEFAULT) -> list[NDArray[np.float64]]:
    """Outliers of all series at once, those that are shorter without values at the end."""
    ticks, steps = max(len(s.values) for s in series), np.array([s.step_s for s in series])
    x = np.full((ticks, len(series)), np.nan)
    for i, s in enumerate(series):
        x[: len(s.values), i] = s.values
    state, found = outlier.init(len(series), config), np.zeros(x.shape)
    for tick in range(ticks):
        state, out = outlier.step(state, x[tick], tick * steps % 86_400.0 / 86_400.0, config)
        found[tick] = out.surprise
    return [_held(found[: len(s.values), i], s.step_s) for i, s in enumerate(series)]


def _ratios(s: nab.Series) -> NDArray[np.float64]:
    state, found = record_ratio.init(1), np.zeros(len(s.values))
    yes = np.ones(1, bool)
    for i, value in enumerate(s.values.astype(np.float32)):
        hour = np.array(int(i * s.step_s // 3600) % 24, np.int32)
        state, out = record_ratio.step(state, value[None], yes, hour)
        found[i] = float(out.score[0])
    return found


def smd_rows(data: Path, machines: int) -> Iterator[dict[str, Any]]:
    """Average precision on SMD without adjustment, mean over machines: ours streamed, PCA fitted on the first part."""
    parts = [
        pl.read_parquet(data / "smd" / f"{part}.parquet").with_columns(pl.col("machine").cast(str))
        for part in ("train", "test")
    ]
    names = sorted(parts[0]["machine"].unique())[:machines]
    metrics = [c for c in parts[0].columns if c not in ("machine", "t_min", "label")]
    found: dict[str, list[float]] = {"departure": [], "PCA, rank 8, SPE": [], "random": []}
    random = np.random.default_rng(1)
    for name in names:
        train, test = (part.filter(pl.col("machine") == name).sort("t_min") for part in parts)
        label = test["label"].to_numpy().astype(bool)
        old, new = (part.select(metrics).to_numpy().astype(np.float32) for part in (train, test))
        mean, scale = old.mean(axis=0), np.maximum(old.std(axis=0), 1e-3)
        z, after = (old - mean) / scale, np.clip((new - mean) / scale, -50, 50)
        basis = np.linalg.eigh(np.cov(z.T))[1][:, -8:]
        found["PCA, rank 8, SPE"].append(precision(((after - after @ basis @ basis.T) ** 2).sum(axis=1), label))
        every = np.concatenate([old, new])[:, None, :]
        score = severities(every, np.full(len(metrics), 0.05, np.float32), 60.0)[len(old) :, 0]
        found["departure"].append(precision(score, label))
        found["random"].append(precision(random.uniform(size=len(label)), label))
    for detector, values in found.items():
        yield {"part": "smd", "detector": detector, "machines": len(names), "average_precision": float(np.mean(values))}


def precision(score: NDArray[np.floating[Any]], label: NDArray[np.bool_]) -> float:
    """Average precision; points of one score count together."""
    order = np.argsort(-score, kind="stable")
    hits, last = np.cumsum(label[order]), np.append(np.diff(score[order]) != 0, True)
    hits, ranks = hits[last], np.flatnonzero(last) + 1
    return float((np.diff(hits, prepend=0) * hits / ranks).sum() / label.sum())


def throughput(series: int = 500_000, metrics: int = 50, ticks: int = 8) -> dict[str, Any]:
    """Time of a tick of so many series, tails and peers included; groups of eight."""
    n = series // metrics
    random = np.random.default_rng(1)
    floors, group = np.ones(metrics, np.float32), (np.arange(n) // 8).astype(np.int32)
    state, known, mask = departure.init(n, metrics), tail.init(2 * metrics, 1e-9), np.ones(n, bool)
    took: list[float] = []
    for _ in range(ticks):
        x = random.normal(50, 1, (n, metrics)).astype(np.float32)
        begin = time.process_time()
        state, known, _ = departure.step(state, known, x, mask, group, floors, 10.0, 1e-9)
        took.append(time.process_time() - begin)
    size = sum(a.nbytes for a in state) + sum(a.nbytes for a in known)
    return {
        "part": "throughput",
        "series": n * metrics,
        "cpu_ms": 1000 * float(np.median(took[1:])),
        "state_mb": size / 1e6,
    }


GPU_SHARE = GPUS_SHARE
