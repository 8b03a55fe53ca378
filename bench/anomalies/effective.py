"""Effective training time of a large job, with Flyball's decisions carried out and without: simulated, by event time.

A gang trains for days while GPUs, hosts, the network and the program fail, and GPUs throttle. How often and why it is
interrupted follows Llama 3 (arXiv 2407.21783, table 5): 419 unexpected interruptions in 54 days on 16,384 GPUs. The
simulated gang has 64 GPUs and is struck as often as a job of the named size would be. So faults are denser on its nodes
than on real ones, and the share of the cell that may be quarantined at once is raised with them. Slow GPUs are not in
that table: their number is an assumption, their lengths are lognormal with a median of 10 and a mean of 23 minutes,
about what Greyhound (ATC'25) saw.

Both runs have the same faults at the same times on the same ranks, and the same platform. A dead GPU ends its job after
a minute, a dead host after the 340 s in which Kubernetes evicts its pods, and a job whose ranks wait for each other
after a time-out of half an hour. Then the job resumes from its last checkpoint with the struck rank elsewhere: the
platform is taken to know which. It does not see slow GPUs. With Flyball the engine reads the fleet's telemetry, and the
simulated platform carries out its decisions; the guard of the actuator is not run. The owner of the job allows restarts
after four minutes of a hang. A check of a node takes 30 s, and fails where a GPU keeps the gang waiting.

Of a time-out of NCCL it is not known whether its cause stays with a GPU or ends with the processes. It stays, for an
hour, unless a row says otherwise: days with such a hang are run with Flyball both ways, and without the permission to
restart. To the platform alone it makes no difference.

Effective is work that was kept, as a share of what the gang would have done at full speed in that time. The rest was
lost while nothing had noticed that the job stood still ("detect"), while ranks started ("restart"), as work since the
last checkpoint ("redone"), by slow GPUs ("slow"), and to write checkpoints.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from bench.anomalies.injected import ERRORS
from msgspec.structs import replace
from numpy.random import Generator
from tests.streams.engine.closed_loop import ClosedLoop
from tests.streams.engine.scene import START_NS

from flyball_contracts.codec import Message, frame_message, record_message
from flyball_contracts.config import FailingGpu, FleetConfig, GridZone, NodePool, RackFault, StragglingGpu, Training
from flyball_contracts.config.types import HealthConfig, WorkerConfig
from flyball_contracts.frame import decode_frame, make_frame
from flyball_contracts.metrics import HOST
from flyball_contracts.records import Migrate, Preempt
from flyball_contracts.topics import TELEMETRY
from flyball_simulator.cell.baseline import Baseline
from flyball_simulator.cell.placement import Placement, Replica
from flyball_simulator.cell.plant import Plant
from flyball_simulator.hardware.faults import Faults, FaultyGpu
from flyball_simulator.hardware.outages import Outages
from flyball_simulator.hardware.site import Site
from flyball_simulator.loads import Moment
from flyball_simulator.loads.base import share_in
from flyball_streams.engine import Incoming

COUNTS = {"gpu": 268, "program": 56, "host": 46, "network": 42, "hang": 7}
"""Llama 3's unexpected interruptions by what failed: GPUs and their memory; bugs; hosts and their maintenance;
switches, cables and network cards; and time-outs of NCCL, of which no sensor tells where they come from."""
PER_GPU_DAY = sum(COUNTS.values()) / (16_384 * 54.0)
SLOW_PER_GPU_DAY = 2.0 / 9_600
SLOW_MEDIAN_S, SLOW_SIGMA, SLOWEST = 600.0, 1.29, 0.6
ENDS_S = {"gpu": 60.0, "host": 340.0, "network": 1_800.0, "hang": 1_800.0}
"""After this time the platform itself ends a job that a fault has stopped."""
WAITS = frozenset({"network", "hang"})
"""Faults that show to the platform only as a time-out of what all ranks wait for."""
REPAIR_S = {"gpu": 14_400.0, "host": 14_400.0, "network": 3_600.0, "hang": 3_600.0}
PROGRAM_ENDS_S = 60.0
RESTART_AFTER_S = 240.0
"""Longer than a start takes, and than it takes to notice that a node is silent."""
XIDS = (48, 62, 64, 79, 95, 119, 120, 140, 143)
JOBS = (9_600, 16_384)
"""GPUs of the job."""
CLAIMED = 9_600
"""ByteRobust (SOSP'25) has 97 % over three months on so many."""
RANKS, GPUS, SPARES = 8, 8, 4
GANG = "train"
TICK_S, DAY_S = 10.0, 86_400.0
GOAL = 0.97
FLEET = FleetConfig(
    cell="effective",
    tick_s=TICK_S,
    collective_timeout_s=ENDS_S["network"],
    zones=(GridZone(name="DE"),),
    pools=(
        NodePool(
            name="h100", sku="h100", nodes=RANKS + SPARES, zone="DE", gpus_per_node=GPUS, nodes_per_rack=1,
            racks_per_leaf=1, price_usd_per_hour=31.2,
        ),
    ),
    trainings=(
        Training(
            name=GANG, pools=("h100",), replicas=RANKS, gpus_per_replica=GPUS, cold_start_s=120.0, step_s=2.0,
            checkpoint_every_s=300.0, checkpoint_s=3.0,
        ),
    ),
    services=(), notebooks=(), batches=(), failing=(), straggling=(),
)  # fmt: skip
WORKER = WorkerConfig(health=HealthConfig(quarantine_share=0.35))
PASSING, FORBIDDEN = "Flyball, hangs end with their processes", "Flyball, restarts not allowed"
PARTS = ("detect", "restart", "redone", "slow", "checkpoints")


class Strike(NamedTuple):
    """One fault of a rank of the gang.

    A slow GPU has a share of its clock left for a time, a dead one an XID, and the port of a network fault errors.
    """

    at_s: float
    kind: str
    rank: int
    xid: int
    clock: float
    lasts_s: float
    errors_per_s: float


def strikes(gpus: int, days: float, seed: int) -> list[Strike]:
    """The faults of a job of so many GPUs, in order."""
    random = np.random.default_rng([seed, gpus])
    kinds = [*COUNTS, "slow"]
    rates = [PER_GPU_DAY * count / sum(COUNTS.values()) for count in COUNTS.values()] + [SLOW_PER_GPU_DAY]
    found: list[Strike] = []
    for kind, rate in zip(kinds, rates, strict=True):
        for at_s in random.uniform(0.0, days * DAY_S, random.poisson(rate * gpus * days)).tolist():
            lasts_s = SLOW_MEDIAN_S * float(random.lognormal(0.0, SLOW_SIGMA))
            found.append(
                Strike(
                    at_s, kind, int(random.integers(RANKS)), int(random.choice(XIDS)),
                    float(random.uniform(SLOWEST, 0.95)), lasts_s, float(10.0 ** random.uniform(-1.5, 2.5)),
                )
            )  # fmt: skip
    return sorted(found)


class Hang(NamedTuple):
    """A gang waits for ``row`` until a time, s; with a ``rank``, only as long as that rank runs."""

    row: int
    until_s: float
    rank: Replica | None = None


class Struck(Faults):
    """Faults that come while the fleet runs, and ``hangs``, which show on no GPU by themselves, as all ranks spin."""

    def __init__(self, config: FleetConfig, site: Site, placement: Placement, start_ns: int) -> None:
        super().__init__(config, site, placement, start_ns)
        self.placement = placement
        self.hangs: list[Hang] = []

    def faulty(self, moment: Moment, random: Generator) -> list[FaultyGpu]:
        """The faulty GPUs of a tick."""
        running = [rank for placed in self.placement.placed for rank in placed]
        self.hangs = [h for h in self.hangs if moment.t_s < h.until_s and (h.rank is None or h.rank in running)]
        return [*super().faulty(moment, random), *(FaultyGpu(h.row, 1.0, link_pace=0.0) for h in self.hangs)]


class Wear:
    """What happens to the gang of a plant, and what its platform does by itself.

    ``passing``: what makes the gang hang ends with its processes.
    """

    def __init__(self, plant: Plant, due: Sequence[Strike], *, passing: bool = False) -> None:
        self.plant, self.w, self.passing = plant, plant.workload(GANG), passing
        self.due, self.struck = list(due), list[tuple[Strike, int]]()
        self.faults = Struck(plant.config, plant.site, plant.placement, plant.start_ns)
        self.racks: tuple[RackFault, ...] = ()
        plant.faults = self.faults

    def step(self) -> None:
        """Before a tick: strike, end jobs that stand still, repair."""
        now_s = self.plant.index * self.plant.config.tick_s
        while self.due and self.due[0].at_s <= now_s and self._rank(self.due[0].rank) is not None:
            self._strike(self.due.pop(0))
        for strike, row in list(self.struck):
            rank = next((r for r in self.plant.placement.placed[self.w] if row in r.rows), None)
            if rank is None or strike.kind not in ENDS_S:
                continue
            if strike.kind == "hang" and row not in {hang.row for hang in self.faults.hangs}:
                continue
            if now_s - max(strike.at_s, self._waits_since_s(strike.kind)) >= ENDS_S[strike.kind]:
                self._move(rank)
        for strike, row in [one for one in self.struck if now_s - one[0].at_s >= REPAIR_S[one[0].kind]]:
            self.struck.remove((strike, row))
            self.faults.failing = [one for one in self.faults.failing if one[0] != row]

    def _strike(self, strike: Strike) -> None:
        plant, faults, rank = self.plant, self.faults, self._rank(strike.rank)
        assert rank is not None
        row = rank.rows[0]
        if strike.kind == "slow":
            slow = StragglingGpu(
                workload=GANG, replica=strike.rank, from_s=strike.at_s, lasts_s=strike.lasts_s, clock_ratio=strike.clock
            )
            faults.straggling.append((row, slow))
        elif strike.kind == "gpu":
            fails = FailingGpu(workload=GANG, replica=strike.rank, from_s=strike.at_s, dies_after_s=0.0, xid=strike.xid)
            faults.failing.append((row, fails))
        elif strike.kind == "program":
            fails = FailingGpu(workload=GANG, replica=strike.rank, from_s=strike.at_s, dies_after_s=0.0, xid=31)
            faults.failing.append((row, fails))
            plant.resume(self.w, saved=False)
            starts_ns = plant.now_ns + round(1e9 * (PROGRAM_ENDS_S + FLEET.trainings[0].cold_start_s))
            for rank in plant.placement.live(self.w):
                rank.ready_ns = starts_ns
            plant.placement.stale = True
        elif strike.kind == "host":
            rack = plant.site.nodes[int(plant.site.node_of[row])].rack
            dark = RackFault(rack=rack, from_s=strike.at_s, dark_after_s=0.0, lasts_s=REPAIR_S["host"])
            self.racks = (*self.racks, dark)
            plant.outages = Outages(replace(plant.config, rack_faults=self.racks), plant.site)
        else:
            ends = self.passing and strike.kind == "hang"
            faults.hangs.append(Hang(row, strike.at_s + REPAIR_S[strike.kind], rank if ends else None))
        if strike.kind in REPAIR_S:
            self.struck.append((strike, row))

    def ports(self) -> dict[bytes, Strike]:
        """Network faults by the node whose port shows them."""
        site = self.plant.site
        return {
            site.nodes[int(site.node_of[row])].name.encode(): strike
            for strike, row in self.struck
            if strike.kind == "network"
        }

    def _rank(self, number: int) -> Replica | None:
        """A rank, ``None`` while the gang does not run."""
        return next((r for r in self.plant.placement.placed[self.w] if r.number == number), None)

    def _waits_since_s(self, kind: str) -> float:
        """When the last rank was ready, s: a time-out counts from then; 0 for faults that show otherwise."""
        if kind not in WAITS:
            return 0.0
        ready_ns = max(rank.ready_ns for rank in self.plant.placement.placed[self.w])
        return (ready_ns - self.plant.start_ns) / 1e9

    def _move(self, rank: Replica) -> None:
        plant = self.plant
        node = plant.placement.node_for(self.w, exclude=rank.node)
        if node is not None:  # else it waits for a repair
            plant.resume(self.w, saved=False)
            plant.placement.move(rank, node, plant.now_ns)
            plant.versions[self.w] += 1


class Loop(ClosedLoop):
    """Fleet and engine; the ports of nodes with a network fault count errors and carry less."""

    wear: Wear | None = None

    def allow_restarts(self) -> None:
        """Declare the gang as its owner would who allows restarts."""
        plant = self.fleet.plant
        spec = replace(plant.specs[plant.workload(GANG)], restart_hung_after_s=RESTART_AFTER_S, time_ns=START_NS + 1)
        self.engine.feed(self._arrived([record_message(spec, "/owner")]))

    def _arrived(self, messages: Sequence[Message]) -> list[Incoming]:
        struck = {} if self.wear is None else self.wear.ports()
        return super()._arrived([self._seen(m, struck) for m in messages] if struck else messages)

    def _seen(self, message: Message, struck: dict[bytes, Strike]) -> Message:
        strike = struck.get(message.key) if message.topic == TELEMETRY.name else None
        frame = decode_frame(message.value or b"") if strike is not None else None
        if strike is None or frame is None or frame.schema != HOST.schema:
            return message
        values, random = frame.values.copy(), np.random.default_rng([round(strike.at_s), frame.seq])
        values[0, ERRORS] = random.poisson(strike.errors_per_s * TICK_S, len(ERRORS))
        kept = {f: getattr(frame, f) for f in frame.__struct_fields__ if f not in ("rows", "block")}
        return frame_message(make_frame(values, **kept))


class Ledger:
    """Where the time of the gang goes, in s."""

    def __init__(self, plant: Plant) -> None:
        self.plant, self.w, self.lost = plant, plant.workload(GANG), dict.fromkeys(PARTS, 0.0)
        self._done_s = self._lost_gpu_s = 0.0

    def add(self) -> None:
        """Add the last tick."""
        plant, load, training = self.plant, self.plant.trainings, FLEET.trainings[0]
        dt_s, hung = plant.config.tick_s, plant.hung(self.w)
        held = sum(len(r.rows) for r in plant.placement.placed[self.w])
        done_s, lost_gpu_s = float(load.done_s[0]), float(plant.lost_gpu_s[self.w])
        redone_s = (lost_gpu_s - self._lost_gpu_s - hung * held * dt_s) / (RANKS * GPUS)
        worked_s = (done_s - self._done_s) / RANKS + redone_s
        self._done_s, self._lost_gpu_s = done_s, lost_gpu_s
        self.lost["redone"] += redone_s
        if plant.ready(self.w) < RANKS:
            self.lost["restart"] += dt_s
        elif hung:
            self.lost["detect"] += dt_s
        else:
            index = plant.index - 1
            moment = Moment(index, index * dt_s, dt_s, plant.config.seed)
            every = np.array([[training.checkpoint_every_s], [training.checkpoint_s]], np.float32)
            saves = any(r.saved_ns > plant.clock_ns for r in plant.placement.placed[self.w])
            saved_s = dt_s * (1.0 if saves else float(share_in(every[0], every[1], moment)[0]))
            self.lost["checkpoints"] += saved_s
            self.lost["slow"] += dt_s - saved_s - worked_s

    def shares(self) -> dict[str, float]:
        """Effective time and what was lost, as shares of all time."""
        time_s = self.plant.index * self.plant.config.tick_s
        return {"effective": self._done_s / RANKS / time_s} | {part: self.lost[part] / time_s for part in PARTS}


def without(config: FleetConfig, due: Sequence[Strike], ticks: int) -> dict[str, Any]:
    """The platform alone."""
    baseline = Baseline(config, START_NS)
    wear, ledger = Wear(baseline.plant, due), Ledger(baseline.plant)
    for _ in range(ticks):
        wear.step()
        baseline.tick()
        ledger.add()
    return ledger.shares()


def acting(
    config: FleetConfig, due: Sequence[Strike], ticks: int, *, passing: bool = False, restarts_allowed: bool = True
) -> dict[str, Any]:
    """The same with Flyball's decisions carried out.

    Also how many of its moves were off a GPU that was well, how often it restarted the gang, and how often the gang
    waited for no rank then.
    """
    loop = Loop(config, WORKER)
    plant = loop.fleet.plant
    wear, ledger = Wear(plant, due, passing=passing), Ledger(plant)
    loop.wear = wear
    if restarts_allowed:
        loop.allow_restarts()
    struck, moves, needless, restarts, vain = set[str](), 0, 0, 0, 0
    for _ in range(ticks):
        wear.step()
        ill = [one.row for one in plant.faulty] + [row for _, row in wear.struck]
        struck |= {plant.site.nodes[int(plant.site.node_of[row])].name for row in ill}
        decided, waited = len(loop.decisions), bool(wear.faults.hangs)
        loop.run(1)
        ledger.add()
        off = [d for d in loop.decisions[decided:] if isinstance(d, Migrate)]
        stops = [d for d in loop.decisions[decided:] if isinstance(d, Preempt)]
        restarts += len(stops)
        vain += 0 if waited else len(stops)
        moves += len(off)
        needless += sum(d.from_node not in struck for d in off)
    ended = Counter(o.status for o in loop.outcomes if o.status != "accepted")
    counts = {"moves": moves, "needless": needless, "restarts": restarts, "restarts_in_vain": vain}
    return ledger.shares() | counts | {"outcomes": dict(ended)}


def rows(jobs: Sequence[int], days: float, seeds: range) -> Iterator[dict[str, Any]]:
    """All runs of each job and seed."""
    for gpus in jobs:
        for seed in seeds:
            due, ticks = strikes(gpus, days, seed), round(days * DAY_S / TICK_S)
            config = replace(FLEET, seed=seed)
            about = {"gpus": gpus, "seed": seed, "days": days, "faults": dict(Counter(s.kind for s in due))}
            yield about | {"run": "without"} | without(config, due, ticks)
            yield about | {"run": "Flyball"} | acting(config, due, ticks)
            if any(strike.kind == "hang" for strike in due):
                yield about | {"run": PASSING} | acting(config, due, ticks, passing=True)
                yield about | {"run": FORBIDDEN} | acting(config, due, ticks, restarts_allowed=False)


def reached(found: Sequence[dict[str, Any]]) -> bool:
    """Whether the job of :data:`CLAIMED` GPUs has the goal with Flyball, by the median of its seeds."""
    claimed = [r["effective"] for r in found if r["run"] == "Flyball" and r["gpus"] == CLAIMED]
    return not claimed or median(claimed) >= GOAL


TITLES = ("GPUs of the job", "run", "interruptions, slow", "effective", *PARTS, "moves, needless", "restarts, in vain")


def described(found: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Lines of the table: medians over the seeds, of the effective time with its range."""
    for gpus, run in dict.fromkeys((r["gpus"], r["run"]) for r in found):
        mine = [r for r in found if (r["gpus"], r["run"]) == (gpus, run)]
        effective = [r["effective"] for r in mine]
        slow = sum(r["faults"].get("slow", 0) for r in mine)
        pairs = (("moves", "needless"), ("restarts", "restarts_in_vain")) if "moves" in mine[0] else ()
        acted = [", ".join(str(sum(r[name] for r in mine)) for name in pair) for pair in pairs]
        yield (
            f"{gpus:,}", run, f"{sum(sum(r['faults'].values()) for r in mine) - slow}, {slow}",
            f"{median(effective):.2%} ({min(effective):.2%} to {max(effective):.2%})",
            *(f"{median([r[part] for r in mine]):.2%}" for part in PARTS), *(acted or ("", "")),
        )  # fmt: skip
