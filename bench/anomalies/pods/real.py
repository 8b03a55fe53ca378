"""Faults put into real GPU series: the pods of ``alibaba_gentd26``, through the real engine, beside the record ratio.

The series have GPU duty, GPU memory and host memory of each pod of an image-generation service, every 57 s for 23 h,
mostly idle, and what its requests took in the ticks in which one ended: no power, clocks, temperatures, errors, links,
step times or I/O. Of the thirteen faults they *carry* seven: hang (the GPU spins at 100 %, and no request ends), fail-
slow (the same requests keep it busy and take 1.1 to 4 times as long), memory leak, data stall (it falls idle while its
peers work, and no request ends), noisy neighbour (host memory is taken, the GPU gets less done, and requests take as
much longer), stuck sensor (all values repeat) and GPU lost (its values vanish without a word and no request ends, or
its whole node is silent). Put *beside* them are counters and events that the series lack and that are 0 until then: ECC
storm, NVLink, network, thermal, power brake, and the word of an agent on a GPU that is lost. They say only that these
rules work at the rhythm of a real fleet. Storage is not put in at all, as nothing in the series waits for a disk.

Each pod is a node with one GPU, and all run one service. A story begins at a drawn tick in one pod that has run for two
hours and goes on for one more (*at work* is one whose pod would have ended requests in ten ticks of that hour: the
service has work for ten hours of the 23); until then all lanes have seen the clean series, at the default budget of one
false incident in 1,000 GPU-days. It is found when an incident names the pod within that hour; other incidents that the
clean series do not have are false, and what the clean series have is counted by itself. The record ratio sees the same
values (neither counters nor events), at its limit of 0.8. The pods are every second one, on which nothing was tuned.
"""

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench.anomalies import record_ratio
from bench.anomalies.budget import POD_FLOORS, Course, latencies, pods
from bench.anomalies.pods.faults import COUNTERS, FAULTS, MEMORY_BYTES, MEMORY_MIB, Fault, Floats, Tick
from bench.common.incidents import incidents_in
from msgspec.structs import replace
from numpy.typing import NDArray
from tests.streams.engine.scene import ONE, incoming

from flyball_contracts.codec import Message, frame_message, record_message
from flyball_contracts.config import WorkerConfig
from flyball_contracts.frame import make_frame
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU, HOST, WORKLOAD
from flyball_contracts.records import Allocation, Device, Incident, Inventory, NodeEvent, WorkloadSpec
from flyball_contracts.records.events import Severity, node_event
from flyball_models import bucket
from flyball_streams.engine import Engine, Incoming, Lane
from flyball_streams.engine.directory import Entry, Tombstone
from flyball_streams.engine.node import NodeLane

CELL, SERVICE = "pods", "image-service"
COLUMNS = GPU.column("hw.gpu.utilization{task=general}"), GPU.column("hw.gpu.memory.utilization")
USED = GPU.column("hw.gpu.memory.usage")
LIMIT = GPU.column("hw.gpu.memory.limit")
HOST_USED = HOST.column("system.memory.utilization")
LATENCY = WORKLOAD.column("flyball.workload.latency{stat=mean}")
PORTS = [HOST.column(f"system.network.errors{{direction={way}}}") for way in ("receive", "transmit")]
WORKER = WorkerConfig()
OLD_LIMIT = 0.8
BEFORE_S, WATCHED_S, APART_S = 7200.0, 3600.0, 3600.0
RESAMPLES = 1000
AT_WORK = 10
"""Ticks with a request that ended, in the hour of a story."""


class Fleet:
    """Agents of the pods of a course: what they send in each tick, with what their requests took [T, N]."""

    def __init__(self, course: Course, latency_s: Floats) -> None:
        self.course, self.latency_s = course, latency_s
        self.period_ns = round(course.tick_s * NS_PER_S)
        self.first_ns = -(-1_750_000_000 * NS_PER_S // self.period_ns) * self.period_ns
        seen: NDArray[np.bool_] = np.asarray(np.isfinite(course.x).any(axis=2), np.bool_)
        self.begins = np.argmax(seen, axis=0)
        self.ends = len(seen) - 1 - np.argmax(seen[::-1], axis=0)
        self.sent = Counter[object]()

    def name(self, pod: int) -> str:
        """Node of a pod."""
        return f"pod-{pod:03d}"

    def device(self, pod: int) -> str:
        """GPU of a pod."""
        return f"gpu-{pod:03d}"

    def now_ns(self, tick: int) -> int:
        """Event time at which a tick begins."""
        return self.first_ns + tick * self.period_ns

    def spec(self) -> Message:
        """The service."""
        spec = WorkloadSpec(
            workload=SERVICE, cell=CELL, time_ns=self.now_ns(0), kind="inference", gpus_per_replica=1.0,
            max_replicas=self.course.x.shape[1],
        )  # fmt: skip
        return record_message(spec, "/bench")

    def tick(self, index: int, change: Callable[[Tick], None] | None = None) -> tuple[list[Message], Floats]:
        """Messages of a tick, and the series as they are sent."""
        sent = self.as_it_is(index)
        if change is not None:
            change(sent)
        sent.x[list(sent.silent)] = np.nan
        messages: list[Message] = []
        for pod in range(len(sent.x)):
            if index == self.begins[pod]:
                messages.append(record_message(self._inventory(pod, index, holds=True), f"/agents/{self.name(pod)}"))
            if index == self.ends[pod] + 1:  # the pod was deleted: its agent says that it stops
                messages.append(record_message(self._inventory(pod, index, holds=False), f"/agents/{self.name(pod)}"))
                messages.append(record_message(self._event(pod, "agent_stopped", index), f"/agents/{self.name(pod)}"))
        messages += [record_message(self._event(p, kind, index), f"/agents/{self.name(p)}") for p, kind in sent.events]
        for pod in np.flatnonzero((self.begins <= index) & (index <= self.ends)).tolist():
            if pod not in sent.silent and (np.isfinite(sent.x[pod]).any()):
                messages += self._frames(pod, index, sent)
        return messages, sent.x

    def as_it_is(self, index: int) -> Tick:
        """A tick without a fault."""
        return Tick(self.course.x[index].copy(), self.latency_s[index].copy(), {}, {}, [], set())

    def at_work(self, pod: int, index: int) -> bool:
        """Whether a pod ends requests in the hour from a tick on."""
        hour = self.latency_s[index : index + round(WATCHED_S / self.course.tick_s), pod]
        return int(np.isfinite(hour).sum()) >= AT_WORK

    def arrived(self, messages: Sequence[Message]) -> list[Incoming]:
        """Messages with their offsets."""
        found = [incoming(message) for message in messages]
        for n, message in enumerate(found):
            found[n] = message._replace(offset=self.sent[message.topic])
            self.sent[message.topic] += 1
        return found

    def _frames(self, pod: int, index: int, sent: Tick) -> Iterator[Message]:
        duty, memory, host = sent.x[pod].tolist()
        gpu, node = np.full((1, len(GPU)), np.nan, np.float32), np.full((1, len(HOST)), np.nan, np.float32)
        gpu[0, COLUMNS] = duty / 100.0, memory / MEMORY_MIB
        gpu[0, USED], gpu[0, LIMIT] = memory * 2**20, MEMORY_BYTES
        gpu[0, list(COUNTERS.values())] = 0.0
        for (of, column), count in sent.counters.items():
            if of == pod:
                gpu[0, column] = count
        node[0, HOST_USED], node[0, PORTS] = host, sent.ports.get(pod, 0.0)
        if np.isnan(duty) and np.isnan(memory):
            gpu[:] = np.nan
        work = np.full((1, len(WORKLOAD)), np.nan, np.float32)
        work[0, LATENCY] = sent.latency_s[pod]
        for schema, block in ((GPU.schema, gpu), (HOST.schema, node), (WORKLOAD.schema, work)):
            self.sent[pod] += 1
            yield frame_message(
                make_frame(
                    block, schema=schema, node=self.name(pod), boot_id="1", epoch=1, seq=self.sent[pod],
                    time_ns=self.now_ns(index), period_ns=self.period_ns, inventory_epoch=1,
                )
            )  # fmt: skip

    def _inventory(self, pod: int, index: int, *, holds: bool) -> Inventory:
        device = Device(id=self.device(pod), model="gpu", memory_bytes=MEMORY_BYTES)
        held = (Allocation(workload=SERVICE, replica=f"{SERVICE}-{pod}", devices=(0,)),)
        last = Inventory(
            node=self.name(pod), cell=CELL, epoch=2, time_ns=self.now_ns(index), boot_id="1", agent="stopped"
        )
        return replace(last, epoch=1, agent="running", devices=(device,), allocations=held) if holds else last

    def _event(self, pod: int, kind: Any, index: int) -> NodeEvent:
        of = "" if kind == "agent_stopped" else self.device(pod)
        severities: dict[str, Severity] = {"agent_stopped": "info", "device_lost": "critical"}
        severity = severities.get(kind, "warning")
        return node_event(self.name(pod), self.now_ns(index), kind, severity=severity, device=of, message=kind)


class Ratios:
    """The record ratio of each series by itself; scores of what is beyond the floors, by pod."""

    def __init__(self, n: int) -> None:
        self.n, self.floors = n, np.array(list(POD_FLOORS.values()), np.float32)
        self.size = bucket(n * len(self.floors))
        self.state = record_ratio.init(self.size)

    def copied(self) -> "Ratios":
        """A copy that can go on by itself."""
        other = copy.copy(self)
        season, visits = np.array(self.state.season), np.array(self.state.visits)
        other.state = self.state._replace(season=season, visits=visits)
        return other

    def step(self, x: Floats, second: float) -> NDArray[np.float64]:
        """Highest score of each pod, [N]."""
        values = np.full(self.size, np.nan, np.float32)
        values[: x.size] = x.ravel()
        hour = np.array(int(second // 3600) % 24, np.int32)
        self.state, out = record_ratio.step(self.state, values, np.ones(self.size, bool), hour)
        score, expected = (np.asarray(a)[: x.size].reshape(x.shape) for a in out)
        with np.errstate(invalid="ignore"):
            highest = np.where(np.abs(x - expected) >= self.floors, score, 0.0).max(axis=1)
        return np.asarray(highest, np.float64)


class Moment(NamedTuple):
    """All that goes on from a tick: tables and states of the engine, the record ratio, and what was sent so far."""

    tables: list[Entry]
    lanes: list[bytes]
    ratios: Ratios
    sent: Counter[object]

    @classmethod
    def of(cls, engine: Engine, ratios: Ratios, fleet: Fleet) -> "Moment":
        """The present."""
        every: list[Lane] = [engine.nodes[0], *engine.workloads, *engine.cells]
        lanes = [lane.snapshot() for lane in every]
        return cls(list(engine.directory.entries()), lanes, ratios.copied(), Counter(fleet.sent))

    def engine(self) -> Engine:
        """An engine that goes on from here."""
        made = Engine(WORKER, ONE)
        for entry in self.tables:
            if not isinstance(entry.row, Tombstone):
                made.directory.apply(entry.row, entry.partition, entry.offset)
        made.feed([])
        made.nodes[0] = NodeLane(0, made.config, made.directory, len(made.workloads))
        every: list[Lane] = [made.nodes[0], *made.workloads, *made.cells]
        for lane, state in zip(every, self.lanes, strict=True):
            lane.restore(state)
        return made


class Clean(NamedTuple):
    """Incidents of the clean series by id, scores of the record ratio [T, N], and some ticks to go on from."""

    incidents: dict[str, Incident]
    scores: NDArray[np.float64]
    at: dict[int, Moment]


def clean(fleet: Fleet, kept: Sequence[int]) -> Clean:
    """Run the series as they are."""
    engine, ratios = Engine(WORKER, ONE), Ratios(fleet.course.x.shape[1])
    engine.feed(fleet.arrived([fleet.spec()]))
    found, at = dict[str, Incident](), dict[int, Moment]()
    scores = np.zeros(fleet.course.x.shape[:2])
    for index in range(len(fleet.course.x)):
        if index in kept:
            at[index] = Moment.of(engine, ratios, fleet)
        messages, x = fleet.tick(index)
        scores[index] = ratios.step(x, index * fleet.course.tick_s)
        found |= {i.id: i for i in incidents_in(engine.feed(fleet.arrived(messages)))}
    return Clean(found, scores, at)


def story(fleet: Fleet, known: Clean, fault: Fault, at: int, pod: int, random: np.random.Generator) -> dict[str, Any]:
    """One fault: when the engine and the record ratio name its pod, and what else they name."""
    moment = known.at[at]
    engine, ratios, fleet.sent = moment.engine(), moment.ratios.copied(), Counter(moment.sent)
    change, first, course = fault.draw(random), fleet.course.x[at].copy(), fleet.course
    found, scores = dict[str, tuple[int, Incident]](), list[NDArray[np.float64]]()
    for index in range(at, at + round(WATCHED_S / course.tick_s)):
        since_s = (index - at) * course.tick_s

        def changed(sent: Tick, since_s: float = since_s) -> None:
            change(sent, first, pod, since_s, random)

        messages, x = fleet.tick(index, changed)
        scores.append(ratios.step(x, index * course.tick_s))
        for one in incidents_in(engine.feed(fleet.arrived(messages))):
            found[one.id] = found.get(one.id, (index + 1, one))[0], one
    mine = [n for n, i in found.values() if _names(i, fleet, pod) and i.id not in known.incidents]
    others = {i.id for _, i in found.values() if i.status != "merged" and not _names(i, fleet, pod)}
    loud = np.array(scores) >= OLD_LIMIT
    old = np.flatnonzero(loud[:, pod]).tolist()
    return {
        "part": "real",
        "fault": fault.name,
        "carried": fault.carried,
        "at_work": fleet.at_work(pod, at),
        "tick": at,
        "pod": pod,
        "delay_s": (min(mine) - at) * course.tick_s if mine else None,
        "false": len(others - known.incidents.keys()),
        "old_delay_s": (old[0] + 1) * course.tick_s if old else None,
        "old_false": int(np.delete(loud, pod, axis=1).any(axis=0).sum()),
    }


def rows(data: Path, stories: int, seed: int, ticks: int | None = None) -> Iterator[dict[str, Any]]:
    """What the clean series have, then so many stories of each fault; ``ticks``: only the first of the series."""
    course = pods(data, 1, True)
    fleet = Fleet(course._replace(x=course.x[:ticks], group=course.group[:ticks]), latencies(data, 1))
    chosen = list(drawn(fleet, stories, seed))
    known = clean(fleet, sorted({at for _, at, _ in chosen}))
    yield {
        "part": "real_clean",
        "gpu_days": fleet.course.days,
        "engine": [i.summary for i in known.incidents.values() if i.status != "merged"],
        "record_ratio": _alarms(known.scores, fleet.course.tick_s),
    }
    for n, (fault, at, pod) in enumerate(chosen):
        yield story(fleet, known, fault, at, pod, np.random.default_rng([seed, n]))


def drawn(fleet: Fleet, stories: int, seed: int) -> Iterator[tuple[Fault, int, int]]:
    """So many stories of each fault: the tick in which it begins, and the pod."""
    random = np.random.default_rng([seed, 1])
    before, after = (round(s / fleet.course.tick_s) for s in (BEFORE_S, WATCHED_S))
    starts = random.integers(before, len(fleet.course.x) - after, stories).tolist()
    for fault in FAULTS:
        for at in starts:  # the same for all faults: lanes are kept at these ticks
            long = (fleet.begins + before <= at) & (fleet.ends >= at + after)
            yield fault, at, int(random.choice(np.flatnonzero(long & np.isfinite(fleet.course.x[at]).all(axis=1))))


def _names(incident: Incident, fleet: Fleet, pod: int) -> bool:
    return (
        incident.node == fleet.name(pod) or fleet.device(pod) in incident.devices or fleet.name(pod) in incident.nodes
    )


def _alarms(scores: NDArray[np.float64], tick_s: float) -> int:
    """Alarms of a pod within an hour count once."""
    count, last = 0, np.full(scores.shape[1], -np.inf)
    for tick, score in enumerate(scores):
        loud = np.flatnonzero(score >= OLD_LIMIT)
        count += int((tick * tick_s - last[loud] > APART_S).sum())
        last[loud] = tick * tick_s
    return count


CLEAN_TITLES = ("series", "GPU-days", "engine", "record ratio at 0.8")
TITLES = ("fault", "stories", "found (90 %)", "median s", "false", "record ratio: found", "median s", "false")


def clean_lines(found: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Lines of the table of clean series."""
    for row in (r for r in found if r["part"] == "real_clean"):
        yield "pods, clean", f"{row['gpu_days']:.0f}", str(len(row["engine"])), str(row["record_ratio"])


def lines(found: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Lines by fault, then F1 of what is carried and what is beside, with 90 % intervals over the stories."""
    for carried in (True, False):
        mine = [r for r in found if r["part"] == "real" and r["carried"] == carried]
        for fault in dict.fromkeys(r["fault"] for r in mine):
            of = [r for r in mine if r["fault"] == fault]
            yield (fault, str(len(of)), *_found(of, "delay_s", "false"), *_found(of, "old_delay_s", "old_false"))
            if carried and (of := [r for r in of if r["at_work"]]):
                yield ("  at work", str(len(of)), *_found(of, "delay_s", "false"), "", "", "")
        for name, of in (
            ("F1, carried" if carried else "F1, beside", mine),
            ("F1, carried, at work", [r for r in mine if carried and r["at_work"]]),
        ):
            if of:
                new, old = _f1(of, "delay_s", "false"), _f1(of, "old_delay_s", "old_false")
                yield name, str(len(of)), new, "", "", old, "", ""


def _found(of: Sequence[dict[str, Any]], delay: str, false: str) -> tuple[str, str, str]:
    delays = [r[delay] for r in of if r[delay] is not None]
    low, high = wilson(len(delays), len(of))
    middle = f"{np.median(delays):.0f}" if delays else ""
    return f"{len(delays) / len(of):.0%} ({low:.0%} to {high:.0%})", middle, str(sum(r[false] for r in of))


def _f1(of: Sequence[dict[str, Any]], delay: str, false: str) -> str:
    hits = np.array([r[delay] is not None for r in of], np.float64)
    wrong = np.array([r[false] for r in of], np.float64)
    chosen = np.random.default_rng(1).integers(0, len(of), (RESAMPLES, len(of)))
    each = f1(hits[chosen].sum(axis=1), wrong[chosen].sum(axis=1), len(of))
    low, high = np.quantile(each, (0.05, 0.95)).tolist()
    return f"{float(f1(hits.sum(), wrong.sum(), len(of))):.2f} ({low:.2f} to {high:.2f})"


def f1(hits: Any, wrong: Any, of: int) -> Any:
    """F1 of so many hits of ``of`` stories with so many false incidents."""
    return 2.0 * hits / (hits + wrong + of)


def wilson(count: int, of: int, z: float = 1.645) -> tuple[float, float]:
    """The 90 % interval of a share (Wilson 1927)."""
    share, spread = count / of, z * z / of
    middle = (share + spread / 2.0) / (1.0 + spread)
    half = z / (1.0 + spread) * float(np.sqrt(share * (1.0 - share) / of + spread / (4.0 * of)))
    return max(0.0, middle - half), min(1.0, middle + half)
