"""Actuators in one process without a broker: the real loop, lanes, guard, ledger and lease over topics in memory.

Time stands still until it is told to go on, calls of the platform are held or made at once, and a process can end at
any of its steps. The platform (``platform.py``) keeps the account by which all is judged.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any
from unittest import mock

from tests.actuators.in_memory.platform import Account, Double
from tests.actuators.in_memory.topics import SESSION_S, Broker, Consumer, Outbox, Outcomes, Time
from tests.actuators.samples import NOW

from flyball_actuators import loop as loop_module
from flyball_actuators.audit import Trail
from flyball_actuators.guard import NodeInfo, World
from flyball_actuators.lease import Lease
from flyball_actuators.ledger import CellGrants, Ledger, OutcomeIndex
from flyball_actuators.loop import Loop
from flyball_actuators.platforms import (
    Platforms,
    Served,
)
from flyball_actuators.report import ActuatorReport
from flyball_contracts.config import Config
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import (
    AnyDecision,
    Outcome,
    PlatformStatus,
    Stop,
    WorkloadSpec,
)
from flyball_contracts.records.pools import decision_key

POLL_S = 0.1


class Crash(BaseException):
    """A process ends as by a power cut; no handler of ours may catch it."""


class Orders:
    """What is true outside: the workloads that are known, and the stops that people ordered."""

    def __init__(self, workloads: Mapping[str, WorkloadSpec], running: int) -> None:
        self.stops: tuple[Stop, ...] = ()
        self._workloads = workloads
        self._placed: dict[str, dict[str, dict[str, str]]] = {}
        for name, spec in workloads.items():
            self._placed.setdefault(spec.cell, {})[name] = {f"{name}-{i}": f"n-{spec.cell}" for i in range(running)}

    def place(self, workload: str, replicas: int) -> None:
        """Let the inventories show so many replicas of a workload."""
        cell = self._workloads[workload].cell
        self._placed[cell][workload] = {f"{workload}-{i}": f"n-{cell}" for i in range(replicas)}

    def world(self, stop: str) -> World:
        nodes = {f"n-{cell}": NodeInfo(cell, True) for cell in self._placed}
        return World(self._workloads, nodes, self._placed, stop, stops=self.stops)


class Session:
    """Stands in for :class:`flyball_actuators.session.Session`."""

    unreadable = 0

    def __init__(self, broker: Broker, orders: Orders, instance: str, fuse: Callable[[str], None], slow: Any) -> None:
        self.instance = instance
        self.lease = Lease(SESSION_S, broker.time.monotonic)
        self.log, self.all = Outcomes(broker, OutcomeIndex()), Outcomes(broker, CellGrants())
        self.outbox = Outbox(broker, self.lease, slow)
        self.all_read = True
        self.world, self.read_world = orders.world, self.all.drain
        self._broker, self._orders, self._fuse = broker, orders, fuse

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    def refresh(self) -> None:
        pass

    def report(self, status: PlatformStatus) -> None:
        pass

    def follow_all(self, partitions: int, since_ms: int) -> None:
        for partition in range(partitions):
            self.all.follow(partition, since_ms)

    def drain(self) -> None:
        self.log.drain()
        self.all.drain()
        self.outbox.step()

    def publish(self, partition: int, outcome: Outcome, then: Callable[[int], None] | None = None) -> None:
        self._fuse("before it is said")
        self.outbox.publish(partition, outcome, then)
        self._fuse("after it is said")

    @property
    def stops(self) -> Collection[Stop]:
        return self._orders.stops

    def replicas(self, cell: str, workload: str) -> Mapping[str, str]:
        return {}

    def usd_per_gpu_hour(self, decision: AnyDecision) -> float | None:
        return None


class Watch:
    """Stands in for the watch of the topics, which stay the same."""

    changed, cut_short, identity, answered_s = "", False, "t", 0.0

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.positions: dict[int, int] = {}

    def start(self, stop: Event) -> None:
        pass

    def close(self) -> None:
        pass


class Calls(Executor):
    """Makes calls at once, or when they are let go."""

    def __init__(self, held: Callable[[], bool]) -> None:
        self._held = held
        self._waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append((future, lambda: fn(*args, **kwargs)))
        if not self._held():
            self.let_go()
        return future

    def let_go(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future, call in waiting:
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._waiting = []


class Process:
    """One actuator process with its own ledger, audit trail and clock."""

    def __init__(self, site: "Site", name: str) -> None:
        self.site, self.name = site, name
        self.alive = self.held = False
        self.jump_ns = 0
        self.left = -1
        self.starts = 0
        self.ledger_path, self.audit_path = site.folder / f"{name}.ledger", site.folder / f"{name}.audit"

    def clock(self) -> int:
        return self.site.now_ns + self.jump_ns

    def burn(self, where: str) -> None:
        """A step at which the process can end."""
        if self.left == 0:
            self.left = -1
            raise Crash(where)
        self.left -= self.left > 0

    def start(self) -> None:
        """Start it; raises :class:`ConfigError` where its ledger is damaged."""
        site = self.site
        self.starts += 1
        self.left = -1
        instance = f"{self.name}/{self.starts}"
        keep_ns = 86_400_000_000_000
        ledger = Ledger(self.ledger_path, keep_ns=keep_ns)
        try:
            trail = Trail(self.audit_path, instance, site.config.actuator, self.clock)
        except BaseException:
            ledger.close()
            raise
        for step in ("grant", "send", "withdraw", "finish"):
            self._burning(ledger, step)
        self._calls = Calls(lambda: self.held)
        session: Any = Session(site.broker, site.orders, instance, self.burn, site.slow)
        platform = Double(site.account, instance, self._wrong, self.burn)
        platform.still_wrong = self._still_wrong
        platforms = Platforms([Served(("*",), platform, POLL_S)], live=True)
        partitions = len(site.broker.decisions)

        def opened(settings: dict[str, Any], *_: object) -> Consumer:
            return Consumer(site.broker, settings["on_commit"])

        def pool(_: str) -> Executor:
            return self._calls

        with (
            mock.patch.object(loop_module, "open_consumer", opened),
            mock.patch.object(loop_module, "TopicsWatch", return_value=Watch(partitions)),
        ):
            loop = Loop(site.config, session, ledger, trail, platforms, ActuatorReport(), self.clock, Event(), known="")
        loop._carrier._pool = pool  # pyright: ignore[reportPrivateUsage]
        loop.topic = "t"
        consumer: Any = loop._consumer  # pyright: ignore[reportPrivateUsage]
        consumer.subscribe([], on_assign=loop._assigned, on_revoke=loop._revoked, on_lost=loop._lost)  # pyright: ignore[reportPrivateUsage]
        self._consumer = consumer
        self._loop, self._ledger, self._trail, self.alive = loop, ledger, trail, True

    def step(self) -> None:
        """Go round once; a crash ends it."""
        if not self.alive:
            return
        try:
            if not self.held:
                self._calls.let_go()
            self._loop._read(0.0)  # pyright: ignore[reportPrivateUsage]
            self._loop._step()  # pyright: ignore[reportPrivateUsage]
            self._loop._apply_backpressure()  # pyright: ignore[reportPrivateUsage]
        except Crash:
            self.kill()

    def leave(self) -> None:
        """End it in order: it says what it knows, and the others get its partitions at once."""
        if not self.alive:
            return
        try:
            self._loop._leave()  # pyright: ignore[reportPrivateUsage]
            self._loop._consumer.close()  # pyright: ignore[reportPrivateUsage]
        except Crash:
            pass
        self.kill()

    def kill(self) -> None:
        """End it as a crash does: nothing more is published."""
        self.alive = False
        self._ledger.close()
        self._trail.close()

    def _still_wrong(self, decision: AnyDecision) -> str:
        """Why an operation under way may not go on."""
        if self.site.orders.stops:
            return "while everything was stopped"
        minute = self.clock() // 60_000_000_000 % 1_440
        if any(first <= minute < end for first, end in self.site.freezes):
            return "in a freeze"
        partition = partition_of(decision_key(decision).encode(), len(self.site.broker.owner))
        if self.site.broker.owner[partition] is not self._consumer:
            return "by an actuator that has not its partition"
        return ""

    def _wrong(self, decision: AnyDecision) -> str:
        if wrong := self._still_wrong(decision):
            return wrong
        if self.clock() > decision.expires_ns:
            return "after it had expired"
        return "" if decision.workload in self.site.allowed else "on a workload that is not allowed"

    def _burning(self, ledger: Ledger, name: str) -> None:
        step = getattr(ledger, name)

        def burning(*arguments: Any) -> None:
            self.burn(f"before {name}")
            step(*arguments)
            self.burn(f"after {name}")

        setattr(ledger, name, burning)


class Site:
    """A broker, a platform, and actuators of one group; in ``freezes``, by minutes of the day, nothing may go."""

    def __init__(
        self,
        folder: Path,
        config: Config,
        specs: Sequence[WorkloadSpec],
        *,
        allowed: Collection[str],
        actuators: Sequence[str] = ("a", "b"),
        partitions: int = 2,
        replicas: int = 4,
        tracks: bool = True,
        chance: random.Random,
    ) -> None:
        self.folder, self.config, self.allowed = folder, config, allowed
        self.time = Time()
        self.broker = Broker(self.time, partitions)
        self.cells = {spec.workload: spec.cell for spec in specs}
        self.orders = Orders({spec.workload: spec for spec in specs}, replicas)
        self.account = Account([s.workload for s in specs], replicas, tracks=tracks, chance=chance)
        self.sent: dict[str, AnyDecision] = {}
        self.slowly = 0.0
        self.freezes: tuple[tuple[int, int], ...] = ()
        self._chance = chance
        self.processes = [Process(self, name) for name in actuators]

    @property
    def now_ns(self) -> int:
        return NOW + round((self.time.now_s - 1000.0) * 1e9)

    def slow(self) -> bool:
        return self._chance.random() < self.slowly

    def send(self, decision: AnyDecision) -> None:
        self.sent[decision.id] = decision
        self.broker.publish(decision)

    def final_outcomes(self) -> dict[str, list[Outcome]]:
        """Last words by decision, in the order of the topic."""
        found: dict[str, list[Outcome]] = {}
        for outcome in self.broker.all_outcomes():
            if outcome.final:
                found.setdefault(outcome.decision, []).append(outcome)
        return found

    def open(self) -> set[str]:
        """Decisions without a final outcome."""
        return set(self.sent) - set(self.final_outcomes())

    def settle(self, turns: int = 400) -> None:
        """Let all processes run without faults until each decision has its final outcome."""
        self.account.faults.clear()
        self.orders.stops, self.slowly = (), 0.0
        for process in self.processes:
            process.held, process.left = False, -1
        for _ in range(turns):
            for process in self.processes:
                if not process.alive:
                    started(process)
                process.step()
            if not self.open():
                return
            self.time.now_s += 0.5

    @property
    def cap(self) -> int:
        """Most replicas that a cell may lose."""
        return self.config.actuator.blast_radius.replicas

    def taken(self) -> Counter[str]:
        """Replicas that each cell has lost; in a site, no decision has room of its own."""
        lost = Counter[str]()
        for effect in self.account.effects:
            lost[effect.cell] += effect.taken
        return lost

    def broken(self) -> list[str]:
        """What should not have happened, in words; the platform's account against what was said.

        The window of the blast radius must be longer than all that can happen here.
        """
        effects = Counter(effect.decision for effect in self.account.effects)
        lasts = self.final_outcomes()
        found = [f"{id_} had {times} effects" for id_, times in effects.items() if times > 1]
        found += [f"{e.decision} had an effect {e.wrong}, by {e.actuator}" for e in self.account.effects if e.wrong]
        found += [f"cell {cell} lost {taken} replicas" for cell, taken in self.taken().items() if taken > self.cap]
        for id_ in self.sent:
            statuses = {outcome.status for outcome in lasts.get(id_, [])}
            if len(statuses) != 1:
                found.append(f"{id_} has {len(statuses)} final outcomes: {sorted(statuses)}")
            if statuses == {"refused"} and effects[id_]:
                found.append(f"{id_} is said to be refused, and had an effect")
            if statuses == {"done"} and not effects[id_]:
                found.append(f"{id_} is said to be done, and had no effect")
        return found


def started(process: Process) -> bool:
    """Start a process; where its ledger is damaged, an operator puts it away first, as the error says."""
    from flyball_contracts.errors import ConfigError

    try:
        process.start()
    except ConfigError as error:
        if "actuator.ledger" not in str(error):
            raise
        process.ledger_path.unlink()
        process.start()
        return False
    return True


@contextmanager
def still_time(site: Site) -> Generator[None]:
    """Let the loops of the processes see the site's time; what they write survives them, not a power cut."""
    with mock.patch.object(loop_module, "time", site.time), mock.patch.object(os, "fsync"):
        yield
