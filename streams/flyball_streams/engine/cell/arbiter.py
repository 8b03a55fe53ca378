"""Chooses which proposals of a tick become decisions, by one cell's capacity, priorities and open orders."""

from collections.abc import Callable, Iterator

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import AnyDecision, MachineChoice, Outcome, Proposal, Tick
from flyball_streams.engine.cell.actions.migrate import FAILING, migrate
from flyball_streams.engine.cell.actions.pause import pause
from flyball_streams.engine.cell.actions.resize import go_on, resize
from flyball_streams.engine.cell.actions.restart import restart, start_again
from flyball_streams.engine.cell.actions.scale import bring_back, scale
from flyball_streams.engine.cell.cycle import Cycle
from flyball_streams.engine.cell.machines.choice import Choice
from flyball_streams.engine.cell.memory import Memory
from flyball_streams.engine.cell.pools.buy import buy
from flyball_streams.engine.cell.pools.give_back import give_back
from flyball_streams.engine.cell.pools.machines import Machines
from flyball_streams.engine.cell.pools.stock import follow
from flyball_streams.engine.cell.pools.wants import lapse
from flyball_streams.engine.cell.scheduler_cache import SchedulerCache
from flyball_streams.engine.fleet_index import FleetIndex
from flyball_streams.engine.offers import Holdings
from flyball_streams.engine.parameters import Parameters

QUARANTINE_S = 600.0
QUARANTINE_TICKS = 60
"""Nothing is placed on an unhealthy device for the longer of these after the last proposal to leave it."""


class Arbiter:
    """Decides for one cell, one closed tick at a time.

    An order is in flight until it shows in the inventories, fails or expires, so that the next tick neither orders it
    again nor gives the same GPUs to another workload. ``choices`` are the choices of machines of the last tick, decided
    or advised.
    """

    def __init__(self, cell: str, config: Parameters, directory: FleetIndex) -> None:
        self.cell = cell
        self.config = config
        self.directory = directory
        self.memory = Memory()
        self._cache = SchedulerCache(directory, cell)
        self._machines = Machines(directory, cell)
        self._holdings = Holdings(cell, config.choice.usable, directory)
        self.choices: list[MachineChoice] = []

    def receive(self, outcome: Outcome) -> None:
        """Keep the outcome of a decision; the next tick applies it."""
        self.memory.receive(outcome)

    def decide(
        self,
        tick: Tick,
        proposals: list[Proposal],
        permits: Callable[[Proposal], bool] = lambda _: True,
        is_checked: Callable[[str], bool] = lambda _: False,
    ) -> Iterator[AnyDecision]:
        """Decisions of one tick, at most one about a subject, in a fixed order, of proposals that are permitted.

        Replicas leave failing devices first, then straggling ones; pauses follow, which make room, and restarts of what
        hangs, then scaling by priority, on machines that are chosen for it where there are offers, then resizes.
        A workload that was stopped to be restarted does not start while ``is_checked`` says that its nodes are checked.
        Preempted workloads are restored when no workload lacks room. Last, machines are bought for replicas without
        room, and empty machines are returned.
        """
        sizing = self.config.sizing
        rest_ns = round(max(sizing.reversal_cooldown_s, sizing.cooldown_s) * NS_PER_S)
        memory, machines = self.memory, self._machines
        follow(memory.stocks, memory.reports, memory.backoff, machines, tick.end_ns)
        lasts_ns = max(round(QUARANTINE_S * NS_PER_S), QUARANTINE_TICKS * tick.period_ns)
        memory.reconcile(tick.end_ns, rest_ns, lasts_ns, self.directory)
        self.choices = []
        lapse(memory.wants, tick.end_ns, tick.period_ns)
        proposals, memory.again = [p for p in _with(proposals, memory.again) if permits(p)], []
        if not proposals and not memory.preempted and not memory.resizing and not memory.stocks:
            return
        for p in proposals:
            if p.action == "migrate":
                memory.unhealthy[p.device] = tick.end_ns + lasts_ns
        cycle = Cycle(self.cell, self.config, self.directory, self.memory, self._cache, tick)
        order = {name: -cycle.priority(name) for name in {p.workload for p in proposals}}
        proposals = sorted(proposals, key=lambda p: (order[p.workload], p.workload, p.replica, p.id))
        known = [(p, spec) for p in proposals if (spec := cycle.spec(p.workload)) is not None]
        for p, spec in sorted(known, key=lambda known: known[0].confidence < FAILING):
            if p.action == "migrate":
                yield from migrate(cycle, p, spec)
        for p, spec in known:
            if p.action == "pause":
                yield from pause(cycle, p, spec)
            elif p.action == "restart":
                yield from restart(cycle, p, spec)
        yield from start_again(cycle, is_checked)
        choice = Choice(cycle, self._holdings, machines.pools)
        self.choices = choice.chosen
        for p, spec in known:
            if memory.is_restarting(p.workload):
                continue  # it is started with as many as before
            if p.action == "scale" and p.replicas is not None:
                yield from scale(cycle, p, spec)
            elif p.action == "choose":
                yield from choice.choose(p, spec)
        for p, spec in known:
            if p.action == "resize" and self.config.rightsizing.mode == "act":
                yield from resize(cycle, p, spec)
        if self.config.rightsizing.mode == "act":
            yield from go_on(cycle)
        if not cycle.unmet:
            yield from bring_back(cycle)
        if memory.stocks:
            yield from buy(cycle, machines)
            yield from give_back(cycle, machines)


def _with(proposals: list[Proposal], refused: list[Proposal]) -> list[Proposal]:
    """Proposals of a tick, and those whose node the platform has refused; a newer one about a replica replaces it."""
    newer = {(p.workload, p.replica) for p in proposals if p.action == "migrate"}
    return [*proposals, *(p for p in refused if (p.workload, p.replica) not in newer)]
