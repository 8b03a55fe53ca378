"""The plant that Flyball controls, without telemetry: placements, loads and faults of a cell."""

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from flyball_contracts.config import FleetConfig
from flyball_contracts.errors import ConfigError, RecordError
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import SERVING, WORKLOAD
from flyball_contracts.records import Portion, Resources, SubjectState, WorkloadSpec
from flyball_simulator.cell.placement import Placement, Replica, Rows
from flyball_simulator.hardware.faults import Faults, FaultyGpu
from flyball_simulator.hardware.gpus import CLOCK_EXPONENT, KINDS, Gpus
from flyball_simulator.hardware.machines import Machines
from flyball_simulator.hardware.outages import Outages
from flyball_simulator.hardware.reclaims import Reclaims
from flyball_simulator.hardware.site import Floats, build_site
from flyball_simulator.loads import BatchLoad, Load, Moment, NotebookLoad, Running, ServiceLoad, TrainingLoad
from flyball_simulator.loads.base import READY
from flyball_simulator.specs import all_workloads, make_demanded, make_specs, workload_keys


class Step(NamedTuple):
    """One tick of the plant; ``gpu`` are the columns of the GPU frames, float32[metrics, N]."""

    moment: Moment
    now_ns: int
    random: np.random.Generator
    running: Running
    rows: Rows
    gpu: Floats


class Plant:
    """The workloads of a cell on its GPUs; event time starts at ``start_ns``.

    Changes that operators request between two ticks take effect at the next one, ``now_ns``. With ``by_rule`` a cluster
    autoscaler buys and returns machines in all pools. Raises :class:`ConfigError` if the configuration contradicts
    itself or its workloads do not fit.
    """

    def __init__(self, config: FleetConfig, start_ns: int, *, by_rule: bool = False) -> None:
        self.config, self.start_ns = config, start_ns
        self.period_ns = round(config.tick_s * NS_PER_S)
        self.index = 0
        self.clock_ns = start_ns
        self.site = build_site(config, start_ns)
        self.specs = make_specs(config, start_ns)
        self.placement = Placement(self.site, make_demanded(config, self.site, self.specs))
        self.machines = Machines(self.site, self.placement, by_rule=by_rule)
        count = len(self.specs)
        self.versions = [1] * count
        self.suspended = [False] * count
        self.resources: list[Resources | None] = [None] * count
        self.resized: list[tuple[Resources, int] | None] = [None] * count
        self.power_limit_w = np.full(count, np.nan)
        self.lost: set[int] = set()
        self.faulty: list[FaultyGpu] = []
        self.ended_ns: dict[int, int] = {}
        self.portions: list[tuple[tuple[Portion, int], ...]] = [()] * count
        self.lost_gpu_s = np.zeros(count)
        self._speed, self._ready_of = np.ones(count, np.float32), np.zeros(count, np.int64)
        self._gangs = np.array([spec.gang for spec in self.placement.workloads], np.bool_)
        self._of = {spec.workload: w for w, spec in enumerate(self.specs)}
        self._kind_of = np.array([KINDS.index(spec.kind) for spec in self.specs], np.int64)
        self._place_at_start()
        self.faults = Faults(config, self.site, self.placement, start_ns)
        self.outages = Outages(config, self.site)
        self.reclaims = Reclaims(config, self.site, start_ns)
        self.services = ServiceLoad(0, config.services, config.seed)
        self.trainings = TrainingLoad(len(config.services), config.trainings)
        self.notebooks = NotebookLoad(len(config.services) + len(config.trainings), config.notebooks)
        self.batches = BatchLoad(count - len(config.batches), config.batches)
        kinds: tuple[Load, ...] = (self.services, self.trainings, self.notebooks, self.batches)
        self._loads = [load for load in kinds if load.count]
        self.gpus = Gpus(self.site)
        self._read_rows()

    @property
    def now_ns(self) -> int:
        """Event time of the next tick."""
        return self.start_ns + self.index * self.period_ns

    def node(self, name: str) -> int:
        """Index of a present node; :class:`RecordError` if there is none of this name."""
        for i, node in enumerate(self.site.nodes):
            if node.name == name and self.machines.present[i]:
                return i
        raise RecordError(f"there is no node {name!r} in cell {self.config.cell}")

    def is_present(self, node: str) -> bool:
        """Whether a node is present; bought machines are returned once they have been empty for long."""
        return any(one.name == node and self.machines.present[i] for i, one in enumerate(self.site.nodes))

    def observe_node(self, node: int) -> SubjectState:
        """State of a node: its replicas, and whether any part of it is cordoned."""
        first, end = self.site.starts[node : node + 2].tolist()
        usable = bool(self.placement.usable[first:end].all()) and bool(self.placement.open[node])
        name, placed = self.site.nodes[node].name, self.placement.placed
        here = {replica.name: name for replicas in placed for replica in replicas if replica.node == node}
        return SubjectState(replicas=len(here), suspended=not usable, nodes=here)

    def workload(self, name: str) -> int:
        """Index of a workload; :class:`RecordError` for one that does not run here."""
        w = self._of.get(name)
        if w is None or self.specs[w].removed:
            raise RecordError(f"workload {name!r} does not run in cell {self.config.cell}")
        return w

    def ready(self, w: int) -> int:
        """Number of ready replicas of a workload."""
        return sum(
            r.ready_ns <= self.clock_ns and not r.stopping and not (w < self.services.count and self.broken(r))
            for r in self.placement.placed[w]
        )

    def broken(self, replica: Replica) -> bool:
        """Whether a replica runs on a GPU that is dead or unreachable."""
        return not self.lost.isdisjoint(replica.rows)

    def observe(self, w: int, replicas: tuple[str, ...] | None = None) -> SubjectState:
        """State of a workload, with the nodes of all its replicas, or of the named ones."""
        nodes = {r.name: self.site.nodes[r.node].name for r in self.placement.placed[w]}
        limit_w = float(self.power_limit_w[w])
        return SubjectState(
            replicas=self.placement.wanted[w],
            ready=self.ready(w),
            nodes=nodes if replicas is None else {name: nodes.get(name, "") for name in replicas},
            power_limit_w=None if np.isnan(limit_w) else limit_w,
            resources=None if self.resized[w] else self.resources[w],
            mix=tuple(replace(portion, replicas=self._there(w, pool)) for portion, pool in self.portions[w]),
            suspended=self.suspended[w],
            version=str(self.versions[w]),
        )

    def replicas_with(self, w: int, wanted: Resources, batch: int | None) -> int:
        """Number of replicas with these resources after another batch is resized."""
        before = self.resized[w]
        return (before[1] if before is not None and before[0] == wanted else 0) + (batch or self.placement.wanted[w])

    def resize(self, w: int, wanted: Resources, batch: int | None) -> None:
        """Resize at most ``batch`` replicas that do not have these resources yet."""
        replicas_with = self.replicas_with(w, wanted, batch)
        if replicas_with >= self.placement.wanted[w]:
            self.resources[w], self.resized[w] = wanted, None
        else:
            self.resized[w] = wanted, replicas_with

    def scale(self, w: int, replicas: int) -> None:
        """Set the number of replicas, in any pool; the newest stop first.

        Raises :class:`RecordError` for an impossible number.
        """
        self.placement.check(w, replicas)
        self.placement.wanted[w] = replicas
        self.placement.shares[w], self.portions[w] = None, ()
        self.suspended[w] = False
        self.versions[w] += 1
        for replica in self.placement.live(w)[replicas:]:
            self.stop(replica)

    def scale_pools(self, w: int, replicas: int, portions: tuple[tuple[Portion, int], ...], shares: list[int]) -> None:
        """Set the number of replicas per pool; surplus ones leave a pool when their replacements are ready."""
        placement = self.placement
        placement.check(w, replicas)
        placement.wanted[w], placement.shares[w], self.portions[w] = replicas, shares, portions
        self.suspended[w] = False
        self.versions[w] += 1
        for share, nodes in zip(shares, placement.workloads[w].nodes, strict=True):
            for replica in [r for r in placement.live(w) if r.node in nodes][share:]:
                replica.leaving = True

    def preempt(self, w: int, victims: list[Replica], checkpoint: bool) -> None:
        """Stop these replicas and start no others in their place; with ``checkpoint`` they save their work first."""
        self.placement.wanted[w] = len(self.placement.live(w)) - len(victims)
        self.suspended[w] = self.placement.wanted[w] == 0
        self.versions[w] += 1
        saves = checkpoint and not self.hung(w)
        self._settle_work(w, len(victims), saved=saves)
        for replica in victims:
            gone_ns = self.now_ns + self._stop_ns(w)
            if saves:
                replica.saved_ns = self.now_ns + self._save_ns(w)
                gone_ns = max(gone_ns, replica.saved_ns)
            self.placement.stop(replica, gone_ns)

    def stop(self, replica: Replica) -> None:
        """Stop a replica; its work since the last checkpoint is lost."""
        if replica.ready_ns <= self.clock_ns and not replica.stopping:
            self._settle_work(replica.workload, 1, saved=False)
        self.placement.stop(replica, self.now_ns + self._stop_ns(replica.workload))

    def hung(self, w: int) -> bool:
        """Whether a workload waits for a dead GPU."""
        return bool(self._speed[w] == 0)

    def save(self, w: int) -> int:
        """Let a gang write a checkpoint; returns the time at which it is written."""
        saved_ns = self.now_ns + self._save_ns(w)
        for replica in self.placement.live(w):
            replica.saved_ns = saved_ns
        self.placement.stale = True
        return saved_ns

    def resume(self, w: int, *, saved: bool) -> None:
        """Resume a gang from its last checkpoint; ``saved``: it was just written."""
        self._settle_work(w, len(self.placement.live(w)), saved=saved)

    def begin(self) -> list[WorkloadSpec]:
        """Start the next tick: remove stopped and finished replicas, place new ones.

        Returns the workloads that ended.
        """
        self.clock_ns = self.now_ns
        ended: list[WorkloadSpec] = []
        for i in np.flatnonzero(self.batches.progress >= 1.0).tolist():
            w = self.batches.first + i
            if not self.specs[w].removed:
                self.placement.wanted[w] = 0
                for replica in self.placement.placed[w]:
                    self.placement.stop(replica, self.now_ns)
                self.versions[w] += 1
                self.ended_ns[w] = self.now_ns
                self.specs[w] = replace(self.specs[w], removed=True, time_ns=self.now_ns)
                ended.append(self.specs[w])
        for node in self.machines.reclaim(self.reclaims.away(self.index * self.config.tick_s)):
            self._vacate(node)
        self.placement.settle(self.now_ns)
        self.machines.advance(self.now_ns)
        if self.machines.arrived:
            self.placement.settle(self.now_ns)
        return ended

    def step(self) -> Step:
        """Advance all loads to the tick that has begun."""
        index, now_ns = self.index, self.now_ns
        self.index += 1
        moment = Moment(index, index * self.config.tick_s, self.config.tick_s, self.config.seed)
        # A generator per tick: what one tick draws cannot shift the numbers of the next.
        random = np.random.Generator(np.random.Philox(key=[self.config.seed, index]))
        if self.placement.stale:
            self._read_rows()
        faulty = self.faulty = [*self.outages.faulty(moment), *self.faults.faulty(moment, random)]
        self.lost = {one.row for one in faulty if one.dead or one.cut}
        running = self._running(now_ns, faulty)
        self._speed, self._ready_of = running.speed, running.ready_of
        hung = (running.speed == 0) & self._gangs
        self.lost_gpu_s += (
            np.where(hung, np.bincount(self._rows.workload, self._rows.gpus, len(hung)), 0.0) * moment.dt_s
        )
        for load, mine in zip(self._loads, self._rows_of, strict=True):
            load.step(moment, random, running, mine)
        gpu = self.gpus.step(moment.dt_s, random, running, self._rows, faulty)
        return Step(moment, now_ns, random, running, self._rows, gpu)

    def _vacate(self, node: int) -> None:
        """Stop at once all replicas on a node that is taken away; unsaved work is lost, a gang's on all its nodes."""
        for w, placed in enumerate(self.placement.placed):
            here = [replica for replica in placed if replica.node == node]
            working = sum(r.ready_ns <= self.clock_ns and not r.stopping for r in here)
            if working and self.placement.workloads[w].gang:
                self.resume(w, saved=False)
            elif working:
                self._settle_work(w, working, saved=False)
            for replica in here:
                self.placement.stop(replica, self.now_ns)
            self.versions[w] += bool(here)

    def _settle_work(self, w: int, replicas: int, *, saved: bool) -> None:
        """Keep or discard the work of some replicas since their last checkpoint."""
        load = self._load_of(w)
        if not isinstance(load, TrainingLoad | BatchLoad):
            return
        share = min(replicas / max(int(self._ready_of[w]), 1), 1.0)
        if saved:
            load.keep(w - load.first, share)
        else:
            self.lost_gpu_s[w] += self.placement.workloads[w].gpus * load.lose(w - load.first, share)

    def _there(self, w: int, pool: int) -> int:
        nodes = self.placement.workloads[w].nodes[pool]
        return sum(r.node in nodes and r.ready_ns <= self.clock_ns for r in self.placement.live(w))

    def _load_of(self, w: int) -> Load:
        return next(load for load in self._loads if load.first <= w < load.first + load.count)

    def _save_ns(self, w: int) -> int:
        return round(self.specs[w].checkpoint_s * NS_PER_S)

    def _stop_ns(self, w: int) -> int:
        return self.placement.workloads[w].stop_ns

    def _read_rows(self) -> None:
        self._rows = self.placement.rows()
        self.gpus.settle(self._rows, self._kind_of)
        of = self._rows.workload
        self._rows_of = [np.flatnonzero((of >= one.first) & (of < one.first + one.count)) for one in self._loads]

    def _running(self, now_ns: int, faulty: list[FaultyGpu]) -> Running:
        rows, workloads = self._rows, len(self.specs)
        count = len(rows.workload)
        clock, limit_w = self._clock(faulty)
        pace = np.ones(count + 1, np.float32)
        np.minimum.at(pace, rows.of_gpu, clock)
        pace = pace[:count]
        for one in faulty:
            if one.link_pace < 1.0 and (tenant := int(rows.of_gpu[one.row])) < count:
                pace[tenant] *= one.link_pace
            if one.cut and (tenant := int(rows.of_gpu[one.row])) < count and self._needs_network(tenant):
                pace[tenant] = 0.0
        serves = (pace > 0) | (rows.workload >= self.services.count)  # a service's probe fails on a dead GPU
        ready = (rows.ready_ns <= now_ns) & ~rows.stopping & serves
        share = (np.clip((now_ns - rows.ready_ns) / self.period_ns, 0.0, 1.0) * ready).astype(np.float32)
        speed = np.ones(workloads, np.float32)
        np.minimum.at(speed, rows.workload, pace)
        running = Running(
            workload=rows.workload,
            number=rows.number,
            ready=ready,
            ready_share=share,
            saving=rows.saved_ns > now_ns,
            pace=pace,
            replicas_of=np.bincount(rows.workload, minlength=workloads).astype(np.int64),
            ready_of=np.bincount(rows.workload[ready], minlength=workloads).astype(np.int64),
            capacity_of=np.bincount(rows.workload, pace * share, workloads).astype(np.float64),
            speed=speed,
            clock=clock,
            power_limit_w=limit_w,
            use=np.zeros(count, np.float32),
            work=np.zeros(count, np.float32),
            io=np.zeros(count, np.float32),
            report=np.full((count, len(WORKLOAD)), np.nan, np.float32),
            answers=np.full((count, len(SERVING)), np.nan, np.float32),
        )
        running.report[:, READY] = ready
        return running

    def _needs_network(self, replica: int) -> bool:
        """Whether a replica does nothing without the network: it serves, or its gang is on other nodes too."""
        w = int(self._rows.workload[replica])
        return w < self.services.count or bool(
            self._gangs[w] and len({one.node for one in self.placement.placed[w]}) > 1
        )

    def _clock(self, faulty: list[FaultyGpu]) -> tuple[Floats, Floats]:
        """Clock share and power limit of each GPU; faulty GPUs and low limits reduce the clock."""
        site = self.site
        limit_w = site.power_limit_w
        clock = np.ones(len(site.node_of), np.float32)
        if not np.isnan(self.power_limit_w).all():
            of_gpu = np.append(self.power_limit_w[self._rows.workload], np.nan)[self._rows.of_gpu]
            limit_w = np.where(np.isnan(of_gpu), limit_w, of_gpu).astype(np.float32)
            span_w = np.maximum((site.power_limit_w - site.idle_power_w) * self.gpus.usage_shares.power, 1.0)
            share = np.clip((limit_w - site.idle_power_w) / span_w, 1e-3, 1.0)
            clock = (share ** (1.0 / CLOCK_EXPONENT)).astype(np.float32)
        for one in faulty:
            clock[one.row] = min(clock[one.row], one.pace)
        return clock, limit_w

    def _place_at_start(self) -> None:
        for w, workload in enumerate(all_workloads(self.config)):
            self.placement.check(w, workload.replicas)
            self.placement.wanted[w] = workload.replicas
            self.placement.settle(self.start_ns)
            placed = len(self.placement.live(w))
            if placed < workload.replicas:
                raise ConfigError(
                    f"{workload_keys(self.config)[w]}.replicas: {workload.name}: "
                    f"only {placed} of {workload.replicas} replicas fit; "
                    "give its pools more nodes or its neighbours fewer replicas"
                )
        for replicas in self.placement.placed:
            for replica in replicas:
                replica.ready_ns = self.start_ns - self.period_ns  # it has run for long
