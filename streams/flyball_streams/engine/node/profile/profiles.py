"""Profiles of the devices of one cell: features, classes, memory warnings and waste, updated every tick."""

from collections.abc import Iterator
from itertools import repeat
from math import isfinite
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Demand, Features, Profile, Record, Tick
from flyball_models.profile import course, features, kinds, phase, waste, waves
from flyball_models.profile.course import FEATURES
from flyball_models.profile.signals import AT, IDLE_BELOW, Floats, signals
from flyball_streams.engine.node.detector import CellTick, Detector
from flyball_streams.engine.node.profile.memory_guard import MemoryGuard
from flyball_streams.engine.node.profile.places import DECLARED, Places
from flyball_streams.engine.node.profile.waste import WasteMeter
from flyball_streams.engine.node.tenancy import POWER, UTILIZATION, Tenancy
from flyball_streams.engine.node.window import AT_ONCE
from flyball_streams.engine.packing import wiped
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.rows import rows

SM_ACTIVITY = GPU.column("nvidia.gpu.sm.activity")
DRAM = GPU.column("nvidia.gpu.dram.bandwidth.utilization")
MEMORY = GPU.column("hw.gpu.memory.utilization")
INPUTS = np.array([UTILIZATION, SM_ACTIVITY, DRAM, MEMORY, POWER])
"""Columns of the inputs of :mod:`~flyball_models.profile.features`, in their order."""
SAMPLE_NS = 5 * NS_PER_S
"""Sampling period of the signals: the states that they classify change within minutes."""
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
"""Work without a specification that has run for ``KNOWN_S`` counts as training from the probability ``CERTAIN`` on;
below ``DOUBTED`` it no longer does."""


class Devices(NamedTuple):
    """Features, waves and course of devices; the period of their load, s, NaN if unknown; whether they train, all [N].

    Features and waves belong to the device, whatever its work; the other fields belong to its present work.
    """

    features: features.State
    waves: waves.State
    course: course.State
    periods_s: Floats
    trains: NDArray[np.bool_]


def init(n: int) -> Devices:
    """State of ``n`` devices without observations."""
    unknown = np.full(n, np.nan, np.float32)
    return Devices(features.init(n), waves.init(n), course.init(n), unknown, np.zeros(n, bool))


class Profiles(Detector[Devices]):
    """Profiles by device, in the slots of the device table."""

    def __init__(self, cell: str, partition: int, config: Parameters, capacity: int) -> None:
        self.partition = partition
        self.config = config
        super().__init__(capacity, init)
        self.guard = MemoryGuard(capacity)
        self.meter = WasteMeter(cell, partition)
        self.trains_version = 0
        self.sampled_ns = 0
        self._kept: list[tuple[NDArray[np.float32], NDArray[np.bool_]]] = []
        self._places: Places | None = None
        self._turns: tuple[Tenancy, int, dict[int, NDArray[np.int64]]] | None = None

    def resize(self, capacity: int) -> None:
        """Make room for more devices."""
        self._add_kept()
        super().resize(capacity)
        self.guard.resize(capacity)

    def reset(self, slots: list[int]) -> None:
        """Reset slots that belong to other devices now."""
        self.change_work(dict.fromkeys(slots, ""))
        super().reset(slots)

    def change_work(self, kinds: dict[int, str]) -> None:
        """Reset devices whose work has changed, except the state that belongs to the device alone."""
        if slots := list(kinds):
            self._add_kept()
            self.model = self.model._replace(course=wiped(self.model.course, course.init(self.capacity), slots))
            self.model.periods_s[slots] = np.nan
            self.guard.reset(slots)
            self._train(slots, np.zeros(len(slots), bool))

    def pauses(self, slots: list[int]) -> bool:
        """Whether most of some devices write a checkpoint, or start."""
        part = course.State(*(x[..., slots] for x in self.model.course))
        found = phase.phases(course.summarize(part), course.recent(part), part.seen_s)
        return 2 * int(np.isin(found, _PAUSES).sum()) > len(slots)

    def step(self, seen: CellTick) -> Iterator[Record]:
        """Update with a tick; yield memory warnings and, periodically, profiles and waste."""
        tick = seen.tick
        if not seen.gpus.mask.any():
            return
        self._kept.append((seen.gpus.values, seen.gpus.mask))
        turn_ns = self.partition * NS_PER_S  # partitions take turns: all at once would make a tick slow
        is_sample = (tick.end_ns + turn_ns) // SAMPLE_NS != (self.sampled_ns + turn_ns) // SAMPLE_NS
        is_due = not (tick.index + self.partition) % self.config.profile_every_ticks  # partitions take turns
        if is_sample or is_due or len(self._kept) == AT_ONCE:
            self._add_kept()
        if is_sample:
            yield from self._sample(seen)
        if is_due:
            yield from self._profiles(seen)

    def annotate(self, demands: list[Demand], tick: Tick, tenancy: Tenancy) -> list[Demand]:
        """Return all demands, with features for the workloads whose turn it is."""
        ticks = max(1, round(REPORT_S * NS_PER_S / tick.period_ns))
        if self._turns is None or self._turns[0] is not tenancy or self._turns[1] != ticks:
            turns = [crc32(name.encode()) % ticks for name in tenancy.workloads]
            turn_of_slot = np.array([*turns, -1], np.int64)[tenancy.workload_of_slot]
            self._turns = tenancy, ticks, {turn: np.flatnonzero(turn_of_slot == turn) for turn in set(turns)}
        due = self._turns[2].get(tick.index % ticks)
        if due is None:
            return demands
        slots = due[self.model.course.seen_s[due] > 0.0]
        if not len(slots):
            return demands
        found = course.summarize(course.State(*(x[..., slots] for x in self.model.course)))
        annotated, owner = list(demands), tenancy.workload_of_slot[slots]
        owners: list[int] = np.unique(owner).tolist()
        for index in owners:
            members = np.flatnonzero(owner == index)
            annotated[index] = replace(
                annotated[index],
                features=Features(
                    devices=len(members),
                    seen_s=float(self.model.course.seen_s[slots[members]].max()),
                    values=tuple(_rounded(mean_known(found[:, members]))),
                    step_s=_known(step_s(found[:, members], self.model.periods_s[slots[members]])),
                ),
            )
        return annotated

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        self._add_kept()
        return {
            **super().state(),
            "guard": self.guard.state(),
            "meter": self.meter.state(),
            "sampled_ns": self.sampled_ns,
        }

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        super().load(state, capacity)
        self.trains_version += 1
        self.guard.load(state["guard"], capacity)
        self.meter.load(state["meter"])
        self.sampled_ns = state["sampled_ns"]
        self._places = self._turns = None
        self._kept = []

    def _note_training(self, shown: NDArray[np.int64], classes: kinds.Classes, use: Floats) -> None:
        """Note which devices train, but only while they work: training that stands still looks like other work."""
        names = kinds.shipped().kinds
        with np.errstate(invalid="ignore"):
            p = classes.kind[names.index("training")] + classes.kind[names.index("fine_tuning")]
            sure, doubted = (p >= CERTAIN) & (self.model.course.seen_s[shown] >= KNOWN_S), p < DOUBTED
            works = use >= IDLE_BELOW
        self._train(shown, np.where(works & (sure | doubted), sure, self.model.trains[shown]))

    def _train(self, slots: Any, trains: NDArray[np.bool_]) -> None:
        if (self.model.trains[slots] != trains).any():
            self.model.trains[slots] = trains
            self.trains_version += 1

    def _add_kept(self) -> None:
        """Add the ticks since the last time: together, as in :class:`~flyball_streams.engine.node.window.Window`."""
        if not self._kept:
            return
        values, masks = zip(*self._kept, strict=True)
        inputs = features.Inputs(*np.array([one.take(INPUTS, axis=1) for one in values]).transpose(2, 0, 1))
        mask, has_sm = np.array(masks), self.model.course.weight[AT["sm"]] > 0.0
        load = np.where(has_sm, inputs.sm_active, inputs.utilization)
        self.model = self.model._replace(
            features=features.step(self.model.features, inputs, mask),
            waves=waves.step(self.model.waves, load, mask),
        )
        self._kept.clear()

    def _sample(self, seen: CellTick) -> Iterator[Record]:
        tick, gpus, hosts, tenancy = seen.tick, seen.gpus, seen.hosts, seen.tenancy
        elapsed_s = min((tick.end_ns - self.sampled_ns) / NS_PER_S, LONGEST_S)
        self.sampled_ns = tick.end_ns
        places = self._places
        if places is None or places.tenancy is not tenancy:
            places = self._places = Places(tenancy, seen.inventories, gpus)
        places.follow(hosts, seen.directory)
        now = signals(places.reading(gpus, hosts, tick.period_ns / NS_PER_S))
        known = course.step(self.model.course, now, gpus.mask, max(elapsed_s, tick.period_ns / NS_PER_S))
        self.model = self.model._replace(course=known)
        held = tenancy.workload_of_slot >= 0
        with np.errstate(invalid="ignore"):
            serves_requests = known.total[AT["reports_requests"]] > 0.5 * known.weight[AT["reports_requests"]]
        watched = held & (places.jobs | ((places.declared < 0) & ~serves_requests))
        yield from self.guard.step(seen, now[AT["memory"]], watched)

    def _profiles(self, seen: CellTick) -> Iterator[Record]:
        tick, gpus, tenancy = seen.tick, seen.gpus, seen.tenancy
        period_s = tick.period_ns / NS_PER_S
        found, swings = features.summarize(self.model.features), waves.summarize(self.model.waves)
        periods_s = np.asarray(swings.period_ticks, np.float32) * np.float32(period_s)
        self.model = self.model._replace(periods_s=periods_s)
        shown = np.flatnonzero(gpus.mask & np.isfinite(found.utilization))
        slots: list[int] = shown.tolist()
        subjects = [gpus.names[slot] for slot in slots]
        held = tenancy.workload_of_slot[shown] >= 0
        observed = course.summarize(self.model.course)[:, shown]
        classes = kinds.classify(observed, kinds.shipped())
        recent = {name: x[shown] for name, x in course.recent(self.model.course).items()}
        phases = phase.phases(observed, recent, self.model.course.seen_s[shown])
        self._note_training(shown, classes, recent["use"])
        if self._places is not None:
            self._waste(seen, self._places, shown, observed, classes, found)
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
            id=[record_id("Profile", seen.cell, subject, tick.index) for subject in subjects],
            subject=subjects,
            cell=repeat(seen.cell),
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
        seen: CellTick,
        places: Places,
        shown: NDArray[np.int64],
        observed: Floats,
        classes: kinds.Classes,
        found: features.Features,
    ) -> None:
        table, period_ns = kinds.shipped(), seen.tick.period_ns
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

        idle_s = np.minimum(found.idle_ticks * (period_ns / NS_PER_S), self.model.course.seen_s).astype(np.float32)
        held = waste.HeldDevices(
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
        longest_ns = 2 * self.config.profile_every_ticks * period_ns
        self.meter.note(seen.tick, places, held, places.needed(seen.cell, seen.directory), longest_ns)


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
