"""Measured cold starts of the workloads of a cell, by GPU model, zone and whether others were ready."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import ColdStart, Demand, Tick, WorkloadSpec
from flyball_models.capacity.starts import KEPT, Counts, advance, p90
from flyball_streams.engine.fleet_index import FleetIndex


class Place(NamedTuple):
    """Where a workload's replicas start, and whether others were ready (``warm``)."""

    gpu_model: str
    zone: str
    warm: bool


class ColdStarts:
    """Measured starts of each workload; updated only in ticks in which replicas or ready replicas change.

    ``priors`` are the seconds that similar workloads took, for workloads without a value from their owner.
    """

    def __init__(self, cell: str, directory: FleetIndex) -> None:
        self.cell = cell
        self.directory = directory
        self.counts: dict[str, Counts] = {}
        self.samples: dict[str, dict[Place, list[float]]] = {}
        self.last_s: float | None = None
        self.priors: dict[str, float] = {}

    def observe(self, tick: Tick, observed: Iterable[tuple[str, Demand, WorkloadSpec]], longest_gap_s: float) -> None:
        """Add the demand of a tick. After a gap, the beginning of open starts is unknown, so they are dropped."""
        now_s = tick.end_ns / NS_PER_S
        if self.last_s is not None and now_s - self.last_s > longest_gap_s:
            self.counts = {name: c._replace(open=()) for name, c in self.counts.items()}
        self.last_s = now_s
        counts = self.counts
        for name, demand, _ in observed:
            before = counts.get(name)
            if before is None:
                counts[name] = Counts(now_s, demand.replicas, demand.ready)
            elif before.replicas != demand.replicas or before.ready != demand.ready:
                counts[name], ended = advance(before, now_s, demand.replicas, demand.ready)
                if ended:
                    self._keep(name, [(s.seconds, s.warm) for s in ended])

    def seconds(self, spec: WorkloadSpec) -> float:
        """90th percentile of the cold start of this workload now, in s.

        It is taken from starts at the same place and with the same ``warm``; while they are few, it is drawn towards
        those of the workload anywhere. Without measured starts it is the prior, or the owner's value.
        """
        known = self.samples.get(spec.workload)
        expected = self.priors.get(spec.workload, spec.cold_start_s)
        if not known:
            return expected
        counts = self.counts.get(spec.workload)
        place = self._place(spec.workload, counts is not None and counts.ready > 0)
        anywhere = [seconds for samples in known.values() for seconds in samples]
        return p90(known.get(place, ()), p90(anywhere, expected))

    def shown(self, spec: WorkloadSpec) -> tuple[ColdStart, ...]:
        """Measured cold starts by place."""
        return tuple(
            ColdStart(
                gpu_model=place.gpu_model,
                zone=place.zone,
                warm=place.warm,
                p90_s=p90(samples, self.priors.get(spec.workload, spec.cold_start_s)),
                samples=len(samples),
            )
            for place, samples in sorted(self.samples.get(spec.workload, {}).items())
        )

    def forget(self) -> None:
        """Drop removed workloads."""
        for name in [name for name in self.counts if self.directory.spec(name) is None]:
            del self.counts[name]
            self.samples.pop(name, None)
            self.priors.pop(name, None)

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "counts": {name: list(c) for name, c in self.counts.items()},
            "samples": {name: [[list(p), s] for p, s in of.items()] for name, of in self.samples.items()},
            "last_s": self.last_s,
            "priors": self.priors,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.counts = {
            name: Counts(time_s, replicas, ready, tuple((s, n, w) for s, n, w in waiting))
            for name, (time_s, replicas, ready, waiting) in state["counts"].items()
        }
        self.samples = {name: {Place(*p): list(s) for p, s in of} for name, of in state["samples"].items()}
        self.last_s = state["last_s"]
        self.priors = dict(state["priors"])

    def _keep(self, name: str, ended: list[tuple[float, bool]]) -> None:
        of = self.samples.setdefault(name, {})
        for seconds, warm in ended:
            samples = of.setdefault(self._place(name, warm), [])
            samples.append(seconds)
            del samples[:-KEPT]

    def _place(self, workload: str, warm: bool) -> Place:
        """GPU model and grid zone of most of its replicas."""
        models: Counter[str] = Counter()
        for replica in self.directory.replicas(workload):
            inventory = self.directory.inventories.get(replica.node)
            if inventory is not None:
                models.update(inventory.devices[row].model for row in replica.devices if row < len(inventory.devices))
        model = min(models, key=lambda m: (-models[m], m)) if models else ""
        return Place(model, self.directory.zone_of(workload, self.cell), warm)
