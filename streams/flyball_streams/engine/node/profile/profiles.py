"""Profiles of the devices of one cell: features, classes, memory warnings and waste, updated every tick."""

from collections.abc import Iterator
from itertools import repeat
from math import isfinite
from typing import Any
from zlib import crc32

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Demand, Features, Inventory, Profile, Record, Tick
from flyball_models import grow
from flyball_models.profile import course, features, kinds, phase, waste, waves
from flyball_models.profile.course import FEATURES
from flyball_models.profile.signals import AT, IDLE_BELOW, Floats, signals
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.node.profile.memory_guard import MemoryGuard
from flyball_streams.engine.node.profile.places import DECLARED, Places
from flyball_streams.engine.node.profile.waste import WasteMeter
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.tenancy import POWER, UTILIZATION, Tenancy
from flyball_streams.engine.node.window import AT_ONCE
from flyball_streams.engine.packing import arrays, like, wiped
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.rows import rows

SM_ACTIVITY = GPU.column("nvidia.gpu.sm.activity")
DRAM = GPU.column("nvidia.gpu.dram.bandwidth.utilization")
MEMORY = GPU.column("hw.gpu.memory.utilization")
SAMPLE_NS = 5 * NS_PER_S
"""Sampling period of the signals: what they classify changes within minutes."""
REPORT_S = 60.0
"""A workload's features are published once in this time; workloads take turns."""
LONGEST_S = 60.0
_PAUSES = [phase.PHASES.index("checkpoint"), phase.PHASES.index("start")]
_USE, _SM, _DRAM, _MEMORY, _STEP, _REPORTS_REQUESTS = (
    FEATURES.index(name) for name in ("use", "sm", "dram", "memory", "step_time", "reports_requests")
)
SURE = 0.6
"""Probability from which a classified bottleneck counts as waste."""
CERTAIN, DOUBTED, KNOWN_S = 0.9, 0.5, 300.0
"""Probability from which work that has run for so long counts as training without a specification, and below which it
no longer does."""


class Profiles:
    """Profiles by device, in the slots of the device table."""

    def __init__(self, cell: str, partition: int, config: Parameters, directory: FleetIndex, capacity: int) -> None:
        self.cell = cell
        self.partition = partition
        self.config = config
        self.directory = directory
        self.capacity = capacity
        self.features = features.init(capacity)
        self.waves = waves.init(capacity)
        self.course = course.init(capacity)
        self.guard = MemoryGuard(cell, capacity)
        self.meter = WasteMeter(cell, partition)
        self.periods_s = np.full(capacity, np.nan, np.float32)
        self.trains, self.trains_version = np.zeros(capacity, bool), 0
        self.sampled_ns = 0
        self._kept: list[tuple[NDArray[np.float32], NDArray[np.bool_]]] = []
        self._places: Places | None = None
        self._turns: tuple[Tenancy, int, list[int]] | None = None

    def follow(self, capacity: int, recycled: list[int]) -> None:
        """Resize to the slots of the device table, and reset the ``recycled`` ones."""
        self._add_kept()
        if capacity != self.capacity:
            self.capacity = capacity
            self.features = grow(self.features, capacity, features.init)
            self.waves = grow(self.waves, capacity, waves.init)
            self.course = grow(self.course, capacity, course.init)
            self.guard.resize(capacity)
            more = capacity - len(self.periods_s)
            self.periods_s = np.append(self.periods_s, np.full(more, np.nan, np.float32))
            self.trains = np.append(self.trains, np.zeros(more, bool))
        if recycled:
            self.features = wiped(self.features, features.init(capacity), recycled)
            self.waves = wiped(self.waves, waves.init(capacity), recycled)
            self.forget(recycled)

    def forget(self, slots: list[int]) -> None:
        """Reset devices that do other work now."""
        if slots:
            self._add_kept()
            self.course = wiped(self.course, course.init(self.capacity), slots)
            self.guard.forget(slots)
            self.periods_s[slots] = np.nan
            self._train(slots, np.zeros(len(slots), bool))

    def pauses(self, slots: list[int]) -> bool:
        """Whether most of some devices write a checkpoint, or start."""
        part = course.State(*(x[..., slots] for x in self.course))
        found = phase.phases(course.summarize(part), course.recent(part), part.seen_s)
        return 2 * int(np.isin(found, _PAUSES).sum()) > len(slots)

    def step(
        self, tick: Tick, gpus: SubjectTable, hosts: SubjectTable, tenancy: Tenancy, inventories: dict[str, Inventory]
    ) -> Iterator[Record]:
        """Update with a tick; yield memory warnings and, periodically, profiles and waste."""
        self._kept.append((gpus.values, gpus.mask))
        turn_ns = self.partition * NS_PER_S  # partitions take turns
        is_sample = (tick.end_ns + turn_ns) // SAMPLE_NS != (self.sampled_ns + turn_ns) // SAMPLE_NS
        is_due = not (tick.index + self.partition) % self.config.profile_every_ticks  # all at once are slow
        if is_sample or is_due or len(self._kept) == AT_ONCE:
            self._add_kept()
        if is_sample:
            yield from self._sample(tick, gpus, hosts, tenancy, inventories)
        if is_due:
            yield from self._profiles(tick, gpus, tenancy)

    def annotate(self, demands: list[Demand], tick: Tick, tenancy: Tenancy) -> list[Demand]:
        """Return all demands; those of workloads whose turn it is have features."""
        ticks = max(1, round(REPORT_S * NS_PER_S / tick.period_ns))
        if self._turns is None or self._turns[0] is not tenancy or self._turns[1] != ticks:
            self._turns = tenancy, ticks, [crc32(name.encode()) % ticks for name in tenancy.workloads]
        turns, now = self._turns[2], tick.index % ticks
        if now not in turns:
            return demands
        is_due = np.array([*(turn == now for turn in turns), False])[tenancy.workload_of_slot]
        (slots,) = (is_due & (self.course.seen_s > 0.0)).nonzero()
        if not len(slots):
            return demands
        found = course.summarize(course.State(*(x[..., slots] for x in self.course)))
        annotated, owner = list(demands), tenancy.workload_of_slot[slots]
        owners: list[int] = np.unique(owner).tolist()
        for index in owners:
            members = np.flatnonzero(owner == index)
            annotated[index] = replace(
                annotated[index],
                features=Features(
                    devices=len(members),
                    seen_s=float(self.course.seen_s[slots[members]].max()),
                    values=tuple(_rounded(mean_known(found[:, members]))),
                    step_s=_known(step_s(found[:, members], self.periods_s[slots[members]])),
                ),
            )
        return annotated

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        self._add_kept()
        return {
            "features": arrays(self.features),
            "waves": arrays(self.waves),
            "course": arrays(self.course),
            "guard": self.guard.state(),
            "meter": self.meter.state(),
            "periods_s": self.periods_s,
            "trains": self.trains,
            "sampled_ns": self.sampled_ns,
        }

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        self.capacity = capacity
        self.features = like(features.init(capacity), state["features"])
        self.waves = like(waves.init(capacity), state["waves"])
        self.course = like(course.init(capacity), state["course"])
        self.guard.load(state["guard"], capacity)
        self.meter.load(state["meter"])
        self.periods_s = np.array(state["periods_s"])
        self.trains, self.trains_version = np.array(state["trains"]), self.trains_version + 1
        self.sampled_ns = state["sampled_ns"]
        self._places = self._turns = None
        self._kept = []

    def _note_training(self, shown: NDArray[np.int64], classes: kinds.Classes, use: Floats) -> None:
        """Note which devices train, while they work: what stands still looks like other work."""
        names = kinds.shipped().kinds
        with np.errstate(invalid="ignore"):
            p = classes.kind[names.index("training")] + classes.kind[names.index("fine_tuning")]
            sure, doubted = (p >= CERTAIN) & (self.course.seen_s[shown] >= KNOWN_S), p < DOUBTED
            works = use >= IDLE_BELOW
        self._train(shown, np.where(works & (sure | doubted), sure, self.trains[shown]))

    def _train(self, slots: Any, trains: NDArray[np.bool_]) -> None:
        if (self.trains[slots] != trains).any():
            self.trains[slots] = trains
            self.trains_version += 1

    def _add_kept(self) -> None:
        """Add the ticks since the last time: together, as in :class:`~flyball_streams.engine.node.window.Window`."""
        if not self._kept:
            return
        values, masks = zip(*self._kept, strict=True)
        v, mask, has_sm = np.array(values), np.array(masks), self.course.weight[AT["sm"]] > 0.0
        use, sm = v[:, :, UTILIZATION], v[:, :, SM_ACTIVITY]
        inputs = features.Inputs(use, sm, v[:, :, DRAM], v[:, :, MEMORY], v[:, :, POWER])
        self.features = features.step(self.features, inputs, mask)
        self.waves = waves.step(self.waves, np.where(has_sm, sm, use), mask)
        self._kept.clear()

    def _sample(
        self, tick: Tick, gpus: SubjectTable, hosts: SubjectTable, tenancy: Tenancy, inventories: dict[str, Inventory]
    ) -> Iterator[Record]:
        elapsed_s = min((tick.end_ns - self.sampled_ns) / NS_PER_S, LONGEST_S)
        self.sampled_ns = tick.end_ns
        places = self._places
        if places is None or places.tenancy is not tenancy:
            places = self._places = Places(tenancy, inventories, gpus)
        places.follow(hosts, self.directory)
        now = signals(places.reading(gpus, hosts, tick.period_ns / NS_PER_S))
        self.course = course.step(self.course, now, gpus.mask, max(elapsed_s, tick.period_ns / NS_PER_S))
        held = tenancy.workload_of_slot >= 0
        with np.errstate(invalid="ignore"):
            serves_requests = (
                self.course.total[AT["reports_requests"]] > 0.5 * self.course.weight[AT["reports_requests"]]
            )
        watched = held & (places.jobs | ((places.declared < 0) & ~serves_requests))
        yield from self.guard.step(tick, gpus, now[AT["memory"]], watched, tenancy)

    def _profiles(self, tick: Tick, gpus: SubjectTable, tenancy: Tenancy) -> Iterator[Record]:
        period_s = tick.period_ns / NS_PER_S
        found, swings, seen = (
            features.summarize(self.features),
            waves.summarize(self.waves),
            course.summarize(self.course),
        )
        self.periods_s = np.asarray(swings.period_ticks, np.float32) * np.float32(period_s)
        shown = np.flatnonzero(gpus.mask & np.isfinite(found.utilization))
        slots: list[int] = shown.tolist()
        subjects = [gpus.names[slot] for slot in slots]
        held = tenancy.workload_of_slot[shown] >= 0
        observed = seen[:, shown]
        classes = kinds.classify(observed, kinds.shipped())
        recent = {name: x[shown] for name, x in course.recent(self.course).items()}
        phases = phase.phases(observed, recent, self.course.seen_s[shown])
        self._note_training(shown, classes, recent["use"])
        if self._places is not None:
            self._waste(tick, self._places, shown, observed, classes, found, period_s)
        yield from self.meter.records(tick)

        def known(values: Any, unit: float = 1.0) -> list[float | None]:
            column = np.asarray(values)[shown].astype(np.float64) * unit
            return [x if isfinite(x) else None for x in column.tolist()]

        table = kinds.shipped()
        kind, kind_p = named(table.kinds, classes.kind, held)
        family, family_p = named(table.families, classes.family, held & ~(classes.strangeness > 1.0), "unknown")
        bound, bound_p = named(table.bounds, classes.bound, held)
        yield from rows(
            Profile,
            id=[record_id("Profile", self.cell, subject, tick.index) for subject in subjects],
            subject=subjects,
            cell=repeat(self.cell),
            node=[gpus.owner[slot] for slot in slots],
            time_ns=repeat(tick.end_ns),
            duty_cycle=found.duty_cycle[shown].tolist(),
            utilization=found.utilization[shown].tolist(),
            memory_utilization=known(found.memory_used),
            memory_bound=known(found.memory_boundedness),
            power_w=known(found.power_w),
            idle_s=(found.idle_ticks[shown] * period_s).tolist(),
            swing_s=known(swings.scale_ticks, period_s),
            period_s=known(swings.period_ticks, period_s),
            burstiness=known(swings.burstiness),
            workload=[tenancy.replica_of_slot.get(slot, ("", ""))[0] for slot in slots],
            bound_by=bound,
            bound_probability=bound_p,
            phase=[
                phase.PHASES[i] if i >= 0 and h else "" for i, h in zip(phases.tolist(), held.tolist(), strict=True)
            ],
            kind=kind,
            kind_probability=kind_p,
            family=[f if h else "" for f, h in zip(family, held.tolist(), strict=True)],
            family_probability=family_p,
        )

    def _waste(
        self,
        tick: Tick,
        places: Places,
        shown: NDArray[np.int64],
        observed: Floats,
        classes: kinds.Classes,
        found: features.Features,
        period_s: float,
    ) -> None:
        table = kinds.shipped()
        is_known = np.isfinite(classes.kind).all(axis=0)
        kind, bound = (np.nan_to_num(p).argmax(axis=0) for p in (classes.kind, classes.bound))
        declared = places.declared[shown]

        def is_kind(declared_as: str, *named_as: str) -> NDArray[np.bool_]:
            like_it = is_known & np.isin(kind, [table.kinds.index(name) for name in named_as])
            return np.where(declared < 0, like_it, declared == DECLARED.index(declared_as))

        sure = np.nan_to_num(classes.bound).max(axis=0, initial=0.0) >= SURE
        waits = sure & np.isin(bound, [table.bounds.index(name) for name in ("input", "storage")])
        n = self.capacity

        def spread(values: Any, empty: Any = np.nan) -> Any:
            column = np.full(n, empty, np.asarray(values).dtype)
            column[shown] = values
            return column

        idle_s = np.minimum(found.idle_ticks * period_s, self.course.seen_s).astype(np.float32)
        seen = waste.HeldDevices(
            held=spread(places.tenancy.workload_of_slot[shown] >= 0, False),
            interactive=spread(is_kind("notebook", "interactive"), False),
            trains=spread(is_kind("training", "training", "fine_tuning"), False),
            starved=spread(waits, False),
            idle_s=idle_s,
            duty=found.duty_cycle,
            use=spread(observed[_USE]),
            sm=spread(observed[_SM]),
            dram=spread(observed[_DRAM]),
            memory=spread(observed[_MEMORY]),
        )
        longest_ns = 2 * self.config.profile_every_ticks * tick.period_ns
        self.meter.note(tick, places, seen, places.needed(self.cell, self.directory), longest_ns)


def named(
    names: tuple[str, ...], p: NDArray[np.float64], shown: NDArray[np.bool_], other: str = ""
) -> tuple[list[str], list[float | None]]:
    """The most probable name of each column of ``p[K, N]`` and its probability; ``other`` and ``None`` if unknown."""
    is_known = shown & np.isfinite(p).all(axis=0)
    best = np.nan_to_num(p).argmax(axis=0)
    highest = np.asarray(np.max(p, axis=0, initial=0.0), np.float64)
    most: list[float] = np.round(highest, 3).tolist()
    return (
        [names[i] if known else other for i, known in zip(best.tolist(), is_known.tolist(), strict=True)],
        [x if known else None for x, known in zip(most, is_known.tolist(), strict=True)],
    )


def mean_known(x: Floats) -> Floats:
    """Mean of each row over its known values, NaN if there are none."""
    known = np.isfinite(x)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(known, x, 0.0).sum(axis=1) / known.sum(axis=1), np.float32)


def step_s(x: Floats, periods: Floats) -> float:
    """Seconds of a training step, as replicas report it or as the period of most loads; NaN: unknown."""
    reported = float(mean_known(x[[_STEP]])[0])
    if isfinite(reported):
        return float(0.01 * (10.0 ** (4.0 * reported) - 1.0))
    regular = periods[np.isfinite(periods)]
    return float(np.median(regular)) if 2 * len(regular) > len(periods) else float("nan")


def _rounded(values: Floats) -> Iterator[float | None]:
    return (round(x, 4) if isfinite(x) else None for x in values.tolist())


def _known(value: float) -> float | None:
    return round(value, 4) if isfinite(value) else None
