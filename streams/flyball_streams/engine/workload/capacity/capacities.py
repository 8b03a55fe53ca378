"""Capacity per replica of the workloads of a cell, measured from their demand, and their cold starts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Architecture, Capacity, Demand, Method, Tick, WorkloadSpec
from flyball_models import bucket, grow
from flyball_models.capacity import gpus, static, tracker
from flyball_models.capacity.base import FIELDS, Limits, empty
from flyball_models.capacity.hybrid import METHODS
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.packing import arrays, like, wiped
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.rows import known
from flyball_streams.engine.workload.capacity.starts import ColdStarts
from flyball_streams.engine.workload.sizing.sizer import IN_GPUS

WINDOW_S = 30.0
LEAST_WINDOWS = 3
"""Saturated windows that are needed before a measured capacity is used."""
LEAST_CAPACITY = 1e-9
"""Least capacity of a replica: work divided by less would overflow."""
MOST_APART = 3.0
"""A measured capacity is limited to this factor above or below the owner's value."""
MOST_VALUE = 1e30
"""A value above this is a telemetry error, and its square overflows."""
AT_ONCE = 10
"""Ticks that are added together: operations on small arrays are several times as fast in a row as one per tick."""
LONGEST_GAP_S = 60.0
"""After this time without a tick, the beginning of open starts is unknown."""


class Estimate(NamedTuple):
    """Work per second that one replica sustains, the source of the value, and its relative error (NaN: unknown)."""

    work_per_s: float
    source: str
    relative_error: float = math.nan


class Capacities:
    """Capacity of every inference workload of a cell, updated at the end of each window of ``WINDOW_S``."""

    def __init__(self, cell: str, config: Parameters, directory: FleetIndex) -> None:
        self.cell = cell
        self.config = config
        self.directory = directory
        self.starts = ColdStarts(cell, directory)
        self.slots: dict[str, int] = {}
        self.room = bucket(0)
        self.known = tracker.init(self.room)
        self.window: int | None = None
        self._order: tuple[str, ...] = ()
        self._rows = np.zeros(0, np.int64)
        self._kept: list[list[tuple[float | None, ...]]] = []
        self._measured: dict[str, Estimate] = {}
        self._reset_specs()

    def observe(self, tick: Tick, demands: Mapping[str, Demand], specs: Mapping[str, WorkloadSpec]) -> None:
        """Add the demand of a tick; workloads without demand are not updated."""
        period_s = tick.period_ns / NS_PER_S
        observed = [(name, demands[name], spec) for name, spec in specs.items() if spec.kind == "inference"]
        self.starts.observe(tick, observed, max(10.0 * period_s, LONGEST_GAP_S))
        ticks = max(1, round(WINDOW_S / period_s))
        window = tick.index // ticks
        if self.window is not None and window > self.window:
            self._add_kept()
            for _ in range(min(window - self.window, 2)):  # a second, empty window marks the gap
                self._close(ticks, ticks * period_s)
        self.window = window
        self._place([name for name, _, _ in observed])
        if observed:
            self._kept.append([_row(demand, period_s) for _, demand, _ in observed])
            if len(self._kept) == AT_ONCE:
                self._add_kept()

    def in_work(self, spec: WorkloadSpec) -> bool:
        """Whether the capacity of a replica is known in work per second."""
        return spec.capacity_per_replica > 0 or self._estimate(spec) is not None

    def of(self, spec: WorkloadSpec, demand: Demand) -> Estimate:
        """Work per second that one replica sustains; in busy GPUs if work or capacity is unknown."""
        if demand.work_rate is not None:
            estimate = self._estimate(spec)
            if estimate is not None:
                return estimate
            if spec.capacity_per_replica > 0:
                return Estimate(max(spec.capacity_per_replica, LEAST_CAPACITY), "owner")
        return Estimate(max(spec.gpus_per_replica, LEAST_CAPACITY), IN_GPUS)

    def cold_start_s(self, spec: WorkloadSpec) -> float:
        """Seconds until a replica ordered now is ready, 90th percentile."""
        return spec.cold_start_s if "cold_start" not in self.config.sizing.measured else self.starts.seconds(spec)

    def records(
        self, tick: Tick, demands: Mapping[str, Demand], specs: Mapping[str, WorkloadSpec]
    ) -> Iterator[Capacity]:
        """Capacity records of inference workloads with work, at each profile interval."""
        if tick.index % self.config.profile_every_ticks == 0:
            for name, spec in specs.items():
                if spec.kind == "inference" and demands[name].work_rate is not None:
                    yield self._record(tick, spec, self.of(spec, demands[name]), self.slots[name])

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        self._add_kept()
        return {
            "slots": self.slots,
            "room": self.room,
            "known": arrays(self.known),
            "window": self.window,
            "starts": self.starts.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.slots, self.room, self.window = dict(state["slots"]), state["room"], state["window"]
        self.known = like(tracker.init(self.room), state["known"])
        self._kept = []
        self.starts.load(state["starts"])
        self._reset_specs()
        self._update_measured()

    def _estimate(self, spec: WorkloadSpec) -> Estimate | None:
        estimate = self._measured.get(spec.workload)
        if estimate is None or "capacity" not in self.config.sizing.measured:
            return None
        owner = spec.capacity_per_replica
        if owner > 0 and not owner / MOST_APART <= estimate.work_per_s <= owner * MOST_APART:
            bounded = min(max(estimate.work_per_s, owner / MOST_APART), owner * MOST_APART)
            return estimate._replace(work_per_s=max(bounded, LEAST_CAPACITY))
        return estimate

    def _update_measured(self) -> None:
        """Update the measured capacity of each workload that was saturated often enough."""
        hybrid, windows = self.known.latest.hybrid, self.known.online.windows
        values, errors = hybrid.work_per_s.tolist(), hybrid.error.tolist()
        enough = ((windows >= LEAST_WINDOWS) & (hybrid.work_per_s > 0)).tolist()
        self._measured = {
            name: Estimate(values[slot], "measured", errors[slot]) for name, slot in self.slots.items() if enough[slot]
        }

    def _add_kept(self) -> None:
        """Add the kept ticks, all of the same workloads."""
        if not self._kept:
            return
        here = np.array(self._kept, np.float64)
        here[np.abs(here) > MOST_VALUE] = np.nan
        seen = np.full((len(here), len(FIELDS), self.room), np.nan)
        seen[:, :, self._rows] = here.transpose(0, 2, 1)
        self.known = tracker.add(self.known, seen)
        self._kept.clear()

    def _close(self, ticks: int, window_s: float) -> None:
        for name, slot in self.slots.items():
            spec = self.directory.spec(name)
            if self._specs[slot] is not spec:
                self._note_spec(slot, spec)
        static_work = self._requests * self.known.window.work_per_request
        limits = Limits(self._wait_s, self._token_s, self._first_token_s)
        self.known, _ = tracker.close(self.known, ticks, window_s, limits, self._spec, static_work)
        self._update_measured()
        self.starts.forget()

    def _place(self, names: Sequence[str]) -> None:
        """Assign a slot to each workload, which it keeps as long as it is observed."""
        order = tuple(names)
        if order == self._order:
            return
        self._add_kept()
        new = [name for name in names if name not in self.slots]
        if len(self.slots) + len(new) > self.room:
            self._make_room(len(new))
        taken = set(self.slots.values())
        free = iter([slot for slot in range(self.room) if slot not in taken])
        self.slots.update((name, next(free)) for name in new)
        self._order, self._rows = order, np.array([self.slots[name] for name in names], np.int64)

    def _make_room(self, need: int) -> None:
        """Drop removed workloads; grow if that is not enough."""
        gone = sorted(name for name in self.slots if self.directory.spec(name) is None)
        freed = [self.slots.pop(name) for name in gone]
        self.known = wiped(self.known, tracker.init(self.room), freed)
        if len(self.slots) + need > self.room:
            self.room = bucket(len(self.slots) + need)
            self.known = grow(self.known, self.room, tracker.init)
        self._reset_specs()

    def _reset_specs(self) -> None:
        """Clear the fields from specifications, so that they are read again."""
        self._specs: list[WorkloadSpec | None] = [None] * self.room
        self._wait_s, self._token_s, self._first_token_s = empty(self.room), empty(self.room), empty(self.room)
        self._spec, self._requests = empty(self.room), empty(self.room)
        self._order, self._rows = (), np.zeros(0, np.int64)

    def _note_spec(self, slot: int, spec: WorkloadSpec | None) -> None:
        self._specs[slot] = spec
        objective = spec.objective if spec is not None else None
        wait_s = mean_wait_s(objective.delay_s, objective.attainment) if objective is not None else np.nan
        token_s = objective.token_s if objective is not None and objective.token_s is not None else np.nan
        first_s = objective.first_token_s if objective is not None and objective.first_token_s is not None else np.nan
        owner = spec.capacity_per_replica if spec is not None and spec.capacity_per_replica > 0 else np.nan
        self._wait_s[slot], self._token_s[slot], self._spec[slot] = wait_s, token_s, owner
        self._first_token_s[slot] = first_s
        self._requests[slot] = by_architecture(spec) if spec is not None else np.nan

    def _record(self, tick: Tick, spec: WorkloadSpec, used: Estimate, slot: int) -> Capacity:
        latest, judged = self.known.latest, self.known.hybrid.judged
        first_token_s, output_token_s, kv_cache = map(known, self.known.window.answers[:, slot].tolist())
        return Capacity(
            id=record_id("Capacity", self.cell, spec.workload, tick.index),
            subject=spec.workload,
            cell=self.cell,
            time_ns=tick.end_ns,
            used_work_per_s=used.work_per_s,
            source=used.source,
            cold_start_s=self.cold_start_s(spec),
            work_per_s=known(latest.hybrid.work_per_s[slot]),
            relative_error=known(latest.hybrid.error[slot]),
            proven_work_per_s=known(self.known.online.proven[slot]),
            saturated_windows=int(self.known.online.windows[slot]),
            methods=tuple(
                Method(
                    name=name,
                    work_per_s=float(latest.values[i, slot]),
                    relative_error=float(latest.errors[i, slot]),
                    judged=float(judged[i, slot]),
                    weight=float(latest.weights[i, slot]),
                )
                for i, name in enumerate(METHODS)
                if latest.values[i, slot] > 0
            ),
            cold_starts=self.starts.shown(spec),
            first_token_s=first_token_s,
            output_token_s=output_token_s,
            kv_cache=kv_cache,
        )


def mean_wait_s(delay_s: float, attainment: float) -> float:
    """Mean wait at which the share `attainment` waits less than `delay_s`, for exponential waits."""
    return delay_s / -math.log(max(1.0 - attainment, 1e-9)) if attainment > 0 else delay_s


def by_architecture(spec: WorkloadSpec) -> float:
    """Requests per second of a replica on the slowest of its GPU models, from its architecture; NaN: unknown."""
    chips = [chip for chip in map(gpus.find, spec.gpu_models) if chip is not None]
    if spec.model is None or not chips:
        return math.nan
    return min(requests_on(spec, spec.model, chip) for chip in chips) or math.nan


def requests_on(spec: WorkloadSpec, architecture: Architecture, chip: gpus.Gpu) -> float:
    """Requests per second of a replica on a GPU or a part of it, from its architecture; 0: it does not fit."""
    model = static.Model(
        architecture.parameters,
        min(architecture.active_parameters or architecture.parameters, architecture.parameters),
        architecture.layers,
        architecture.heads,
        architecture.kv_heads,
        architecture.head_size,
        architecture.weight_bytes,
        architecture.cache_bytes,
        architecture.experts,
    )
    objective = spec.objective
    token_s = objective.token_s if objective is not None and objective.token_s is not None else math.inf
    traffic = static.Traffic(
        architecture.prompt_tokens, architecture.answer_tokens, float(architecture.most_at_once), token_s
    )
    return static.estimate(model, chip, spec.gpus_per_replica, traffic).requests_per_s


def _row(demand: Demand, period_s: float) -> tuple[float | None, ...]:
    """Demand in the order of FIELDS; utilization is over the GPUs of ready replicas."""
    share = demand.devices * demand.ready / demand.replicas if demand.replicas else 0.0
    busy = demand.utilization_sum / share if demand.utilization_sum is not None and share > 0 else None
    return (
        demand.ready,
        demand.work_rate,
        demand.request_rate,
        demand.active,
        demand.queued,
        busy,
        demand.latency_s,
        demand.tokens_out_rate,
        None if demand.failed is None else demand.failed / period_s,
        demand.first_token_s,
        demand.output_token_s,
        demand.kv_cache,
    )
