"""Recommends the resources that each replica of a workload should request, from measured usage."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Demand, Evidence, Proposal, Resources, Tick, Usage
from flyball_models import bucket, grow
from flyball_models.rightsizing import cost, mig, usage
from flyball_models.rightsizing.histogram import Floats, Grid, percentile
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.packing import arrays, like, wiped
from flyball_streams.engine.parameters import RightsizingParameters
from flyball_streams.engine.workload.profile.workloads import UNBOUND, Bound

KINDS = ("cpu", "memory_bytes", "gpu_share", "gpu_memory_bytes")
"""The fields of :class:`Usage` that are measured for each workload."""
SHARE = Grid(0.005, 1.05, 1.0)
FORGET_S = 14 * 86_400.0
"""A workload that was not seen for this long gives its slot to a new one."""
CAUTION = 10.0
"""A MIG profile is chosen as if a kill cost this many times as much."""
LEAST_CHANGE = 0.15
"""A change of at most this share of the request is not proposed."""
KILL_HOURS = 120.0
"""An out-of-memory kill costs as much as this many hours of the peak memory."""
SLOW_RATIO = 20.0
"""A missing core, or share of a GPU, costs this many times as much as a superfluous one."""
MOST = 1e15
"""Usage above which a value is a telemetry error."""


class Part(NamedTuple):
    """The part of a GPU that a replica has: the GPU's model and memory, the MIG profile, and the share of compute."""

    model: str
    memory_bytes: float
    profile: str
    share: float


class Request(NamedTuple):
    """One resource request: current and recommended value, the bounds within which it may stay, and evidence."""

    now: float
    wanted: float
    lower: float
    upper: float
    evidence: tuple[Evidence, ...]

    def is_off(self, least_change: float) -> bool:
        """Whether a change should be proposed."""
        inside = self.lower <= self.now <= self.upper
        return not inside and abs(self.wanted - self.now) > least_change * self.now


class Rightsizing:
    """Measures usage by workload, and periodically proposes resource requests.

    Work that is bound by GPU memory or its bandwidth keeps its part of a GPU, as a smaller one has less of both. Work
    that waits for input keeps its CPUs.
    """

    def __init__(self, cell: str, config: RightsizingParameters, directory: FleetIndex) -> None:
        self.cell = cell
        self.config = config
        self.directory = directory
        settings = (cost.CPU, cost.MEMORY, cost.CPU._replace(grid=SHARE), cost.MEMORY)
        self.settings: dict[str, usage.Config] = dict(zip(KINDS, settings, strict=True))
        self.slots: dict[str, int] = {}
        self.seen_s: dict[str, float] = {}
        self.checked_s: dict[str, float] = {}
        self.states = {kind: usage.init(bucket(0), settings) for kind, settings in self.settings.items()}

    def step(
        self, tick: Tick, demands: Mapping[str, Demand], bound: Callable[[str], Bound] = lambda _: UNBOUND
    ) -> Iterator[Proposal]:
        """Add the usage of a tick; yield a proposal for each workload whose requests are off.

        ``bound`` returns the bottleneck of a workload.
        """
        usage = {name: d.usage for name, d in demands.items() if d.usage is not None}
        if self.config.mode == "off" or not usage:
            return
        now_s = tick.end_ns / NS_PER_S
        self._observe(usage, now_s)
        since = self.states
        due: list[str] = []
        for name in sorted(usage):
            first_s = [float(s.since_s[self.slots[name]]) for s in since.values()]
            age_s = now_s - min((s for s in first_s if s == s), default=now_s)
            checked_s = self.checked_s.get(name, -math.inf)
            if age_s >= self.config.after_s and not 0 <= now_s - checked_s < self.config.every_s:
                due.append(name)
                self.checked_s[name] = now_s
        if due:
            yield from self._proposals(tick, due, usage, demands, bound)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "slots": self.slots,
            "seen_s": self.seen_s,
            "checked_s": self.checked_s,
            "states": {kind: arrays(state) for kind, state in self.states.items()},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.slots, self.seen_s, self.checked_s = dict(state["slots"]), dict(state["seen_s"]), dict(state["checked_s"])
        size = bucket(len(self.slots))
        fresh = {kind: usage.init(size, settings) for kind, settings in self.settings.items()}
        self.states = {kind: like(fresh[kind], kept) for kind, kept in state["states"].items()}

    def _observe(self, usage_of: Mapping[str, Usage], now_s: float) -> None:
        for name in usage_of:
            if name not in self.slots:
                self._add(name, now_s)
            self.seen_s[name] = now_s
        capacity = bucket(len(self.slots))
        rows = np.array([self.slots[name] for name in usage_of], np.int64)
        for kind, settings in self.settings.items():
            if capacity > len(self.states[kind].peak):
                self.states[kind] = grow(self.states[kind], capacity, partial(usage.init, config=settings))
            x = np.full(capacity, np.nan)
            x[rows] = [_sample(kind, u) for u in usage_of.values()]
            self.states[kind] = usage.step(self.states[kind], x, x < MOST, now_s, settings)

    def _add(self, name: str, now_s: float) -> None:
        """Assign a slot to a workload: a new one, or if all are in use, that of the workload gone for longest."""
        if len(self.slots) < bucket(len(self.slots)) or not self.slots:
            self.slots[name] = len(self.slots)
            return
        oldest = min(self.seen_s, key=lambda known: (self.seen_s[known], known))
        if now_s - self.seen_s[oldest] < FORGET_S:
            self.slots[name] = len(self.slots)
            return
        slot = self.slots[name] = self.slots.pop(oldest)
        del self.seen_s[oldest]
        self.checked_s.pop(oldest, None)
        for kind, settings in self.settings.items():
            state = self.states[kind]
            self.states[kind] = wiped(state, usage.init(len(state.peak), settings), [slot])

    def _proposals(
        self,
        tick: Tick,
        due: Sequence[str],
        usage_of: Mapping[str, Usage],
        demands: Mapping[str, Demand],
        bound: Callable[[str], Bound],
    ) -> Iterator[Proposal]:
        now_s = tick.end_ns / NS_PER_S
        rows = np.array([self.slots[name] for name in due], np.int64)
        found = {kind: self._recommended(kind, rows, now_s) for kind in KINDS}
        for i, name in enumerate(due):
            spec = self.directory.spec(name)
            if spec is None or spec.cell != self.cell:
                continue
            used, part = usage_of[name], self._part(name)
            now = {"cpu": used.cpu_limit, "memory_bytes": used.memory_limit_bytes}
            requests = {
                kind: request for kind, have in now.items() if (request := self._request(kind, found[kind], i, have))
            }
            off = {kind: request for kind, request in requests.items() if request.is_off(LEAST_CHANGE)}
            waits = bound(name)
            if waits.is_one_of("input") and "cpu" in off and off["cpu"].wanted < off["cpu"].now:
                del off["cpu"]
            slice_, saving, evidence = self._slice(part, found, i, spec.target_utilization, waits.bandwidth)
            if saving is not None and saving > 0 and waits.is_one_of("memory_bandwidth", "memory_capacity"):
                slice_, saving, evidence = None, None, ()
            if not off and slice_ is None:
                continue
            phrases = [_describe(kind, request) for kind, request in off.items()]
            if slice_ is not None and part is not None:
                phrases.append(f"{slice_} of {part.model} instead of {part.profile or 'the whole of it'}")
            cpu, memory = off.get("cpu"), off.get("memory_bytes")
            yield Proposal(
                id=record_id("Proposal", "resize", self.cell, name, tick.index),
                action="resize",
                workload=name,
                reason=f"each replica should ask for {' and '.join(phrases)}, by what was used (cost)",
                observed_replicas=demands[name].replicas,
                resources=Resources(
                    cpu=cpu.wanted if cpu else None,
                    memory_bytes=round(memory.wanted) if memory else None,
                    gpu_profile=slice_,
                ),
                resources_before=Resources(
                    cpu=cpu.now if cpu else None,
                    memory_bytes=round(memory.now) if memory else None,
                    gpu_profile=part.profile if part and slice_ else None,
                ),
                confidence=0.7,
                expected_saving=saving,
                evidence=(*(e for request in off.values() for e in request.evidence), *evidence),
            )

    def _recommended(self, kind: str, rows: NDArray[np.int64], now_s: float) -> tuple[Floats, ...]:
        """Lower bound, target and upper bound of some workloads, then the percentiles 50, 90 and 95 of their usage."""
        settings = self.settings[kind]
        weights = usage.weights(self.states[kind], rows, now_s, settings)
        shown = tuple(percentile(weights, p, settings.grid) for p in (0.5, 0.9, 0.95))
        if kind not in ("memory_bytes", "gpu_memory_bytes"):
            target = cost.slowing(weights, settings.grid, cost.SLOW._replace(stakes=SLOW_RATIO))
            return target, target, target, *shown
        stakes = KILL_HOURS * 3_600.0 / settings.window_s
        target = cost.killing(weights, settings.grid, cost.KILL._replace(stakes=stakes))
        cautious = cost.KILL._replace(stakes=CAUTION * stakes)
        upper = cost.killing(weights, settings.grid, cautious) if kind == "gpu_memory_bytes" else target
        return target, target, upper, *shown

    def _request(self, kind: str, found: tuple[Floats, ...], i: int, now: float | None) -> Request | None:
        lower, wanted, upper, p50, p90, p95 = (float(column[i]) for column in found)
        if now is None or not 0 < now < MOST or not wanted > 0:
            return None
        name, unit = ("memory", "By") if kind == "memory_bytes" else ("cpu", "{cpu}")
        evidence = (
            Evidence(name=f"{name}.request", value=now, expected=wanted, unit=unit),
            Evidence(name=f"{name}.used.p50", value=p50, unit=unit),
            Evidence(name=f"{name}.used.p90", value=p90, unit=unit),
            Evidence(name=f"{name}.used.p95", value=p95, unit=unit),
            Evidence(name=f"{name}.half_life", value=self.settings[kind].half_life_s, unit="s"),
        )
        return Request(now, wanted, lower, upper, evidence)

    def _part(self, workload: str) -> Part | None:
        """The part of a GPU that each replica has; ``None`` if they have several, none, or different ones."""
        parts: set[Part] = set()
        for replica in self.directory.replicas(workload):
            devices = self.directory.inventories[replica.node].devices
            if len(replica.devices) != 1:
                return None
            device = devices[replica.devices[0]]
            if device.parent is None:
                parts.add(Part(device.model, device.memory_bytes, "", 1.0))
                continue
            whole = next((d for d in devices if d.id == device.parent), None)
            if whole is None or not device.mig_profile:
                return None
            known = {p.name: p.share for p in mig.profiles(whole.model, whole.memory_bytes)}
            profile = device.mig_profile.removeprefix("MIG ")
            if profile not in known:
                return None
            parts.add(Part(whole.model, whole.memory_bytes, profile, known[profile]))
        return parts.pop() if len(parts) == 1 else None

    def _slice(
        self,
        part: Part | None,
        found: Mapping[str, tuple[Floats, ...]],
        i: int,
        target_utilization: float,
        bandwidth: float,
    ) -> tuple[str | None, float | None, tuple[Evidence, ...]]:
        """Smallest profile for the upper recommendations, the share of a GPU that it saves, and evidence.

        A profile has the same share of bandwidth as of memory: for a workload on a whole GPU, the needed share of
        bandwidth is a lower bound of the share of memory.
        """
        share, memory = (float(found[kind][2][i]) for kind in ("gpu_share", "gpu_memory_bytes"))
        if part is None or not share >= 0 or not memory > 0:
            return None, None, ()
        share *= part.share
        needed = share / max(target_utilization, 1e-3)
        if not part.profile and bandwidth == bandwidth:
            with_it = min(bandwidth / max(target_utilization, 1e-3), 1.0) * part.memory_bytes * mig.USABLE
            memory = max(memory, with_it)
        best = mig.smallest(part.model, part.memory_bytes, needed, memory)
        whole = mig.profiles(part.model, part.memory_bytes)
        if best is None or best.name == (part.profile or whole[-1].name):
            return None, None, ()
        now = next(p for p in whole if p.name == (part.profile or whole[-1].name))
        saving = now.size - best.size
        return (
            best.name,
            saving,
            (
                Evidence(name="gpu.share", value=share, expected=best.share),
                Evidence(name="gpu.memory", value=memory, expected=best.memory_bytes, unit="By"),
                Evidence(name="gpu.saved", value=saving, unit="{gpu}"),
            ),
        )


def _sample(kind: str, used: Usage) -> float:
    value = getattr(used, kind)
    if kind == "memory_bytes" and used.oom and used.oom > 0:
        had = min(max(used.memory_bytes or 0.0, used.memory_limit_bytes or 0.0), MOST)
        value = float(cost.after_oom(np.array(had)))
    return math.nan if value is None else value


def _describe(kind: str, request: Request) -> str:
    if kind == "cpu":
        return f"{request.wanted:.3g} instead of {request.now:.3g} CPU cores"
    return f"{request.wanted / 2**30:.3g} instead of {request.now / 2**30:.3g} GiB of memory"
