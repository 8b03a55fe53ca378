"""Buys machines for work that has found no room for a while."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Effect, Evidence, Pool, Scale
from flyball_streams.engine.cell.actions.limits import gang_of
from flyball_streams.engine.cell.backoff import Attempt, Waited
from flyball_streams.engine.cell.cycle import Cycle
from flyball_streams.engine.cell.pools.cover import Lacking, Machine, uncovered
from flyball_streams.engine.cell.pools.machines import Machines, Shape
from flyball_streams.engine.cell.pools.prices import Price, price_of
from flyball_streams.engine.cell.pools.stock import SEEN_S, Change, Stock, subject_of
from flyball_streams.engine.cell.pools.wants import UnmetDemand, is_worth_machines

MOST_BOUGHT = 16
"""Machines that one decision adds; more only for a gang, which needs all of them at once."""


class Option(NamedTuple):
    """A pool from which machines may be bought: up to ``room`` more, each of ``shape``."""

    pool: Pool
    stock: Stock
    shape: Shape
    room: int


class Bought(msgspec.Struct):
    """Machines to buy from a pool, the price of each, and the replicas by workload that they are for."""

    option: Option
    price: Price
    choices: int
    machines: list[Machine] = []
    wants: dict[str, UnmetDemand] = {}
    replicas: dict[str, int] = {}


def buy(cycle: Cycle, machines: Machines) -> Iterator[Scale]:
    """Buy machines for replicas without room in free or coming machines, from the cheapest pools that fit.

    Replicas for which machines were chosen do not wait for ``buy_after_s``: the choice has looked for room already.
    """
    stocks = cycle.memory.stocks
    coming = [
        Machine(name, stock.shape, float(stock.shape.gpus))
        for name, stock in sorted(stocks.items())
        for _ in range(stock.coming)
        if stock.shape is not None
    ]
    lacking = uncovered(cycle, machines, cycle.memory.wants, coming)
    patience_ns = round(cycle.config.pools.buy_after_s * NS_PER_S)
    now_ns = cycle.now_ns
    ripe = [
        one for one in lacking if one.want.seen_ns == now_ns and (one.pool or now_ns - one.want.since_ns >= patience_ns)
    ]
    options = [
        Option(pool, stock, stock.shape, pool.max_machines - stock.size)
        for name, pool in machines.pools.items()
        if (stock := stocks.get(name)) is not None and stock.shape is not None and pool.max_machines > stock.size
    ]
    while ripe and options:
        plan = _plan(cycle, ripe, options)
        admitted = {name: _admit(cycle, bought) for name, bought in plan.items()}
        if None not in admitted.values():
            for name, bought in plan.items():
                yield _order(cycle, bought, admitted[name] or Waited())
            return
        options = [
            o for o in options if admitted.get(o.pool.pool, Waited()) is not None
        ]  # these are in backoff: try the others


def _plan(cycle: Cycle, ripe: list[Lacking], options: list[Option]) -> dict[str, Bought]:
    """What to buy, by pool; a gang gets all of its machines or none."""
    plan: dict[str, Bought] = {}
    for one in ripe:
        before = {name: (len(b.machines), [m.free for m in b.machines], dict(b.replicas)) for name, b in plan.items()}
        left = _planned(cycle, one, options, plan)
        if left and gang_of(one.spec) > 1:
            for name, bought in list(plan.items()):
                if name not in before:
                    del plan[name]
                    continue
                count, free, bought.replicas = before[name]
                del bought.machines[count:]
                for machine, was in zip(bought.machines, free, strict=True):
                    machine.free = was
                bought.wants = {n: w for n, w in bought.wants.items() if n in bought.replicas}
    return {name: bought for name, bought in plan.items() if bought.machines}


def _planned(cycle: Cycle, one: Lacking, options: list[Option], plan: dict[str, Bought]) -> int:
    """Plan machines for one workload; return the number of replicas that get none."""
    spec, left = one.spec, one.replicas
    for bought in plan.values():
        if one.pool not in ("", bought.option.pool.pool):
            continue
        while left and any(machine.take(spec) for machine in bought.machines):
            left -= 1
            _serve(bought, one, 1)
    fit = [
        o
        for o in options
        if one.pool in ("", o.pool.pool)
        and o.shape.replicas(spec)
        and is_worth_machines(spec, cycle.now_ns, o.pool.start_s)
    ]
    gang = gang_of(spec) > 1
    for option in sorted(fit, key=lambda o: _rank(cycle, o, one, left)):
        each = option.shape.replicas(spec)
        known = plan.get(option.pool.pool)
        have = 0 if known is None else len(known.machines)
        room = option.room - have if gang else min(option.room, MOST_BOUGHT) - have
        count = min(math.ceil(left / each), room)
        if count <= 0:
            continue
        bought = known or Bought(option, price_of(cycle, option.pool, spec), len(fit))
        plan[option.pool.pool] = bought
        for _ in range(count):
            machine = Machine(option.pool.pool, option.shape, float(option.shape.gpus))
            bought.machines.append(machine)
            while left and machine.take(spec):
                left -= 1
                _serve(bought, one, 1)
    return left


def _serve(bought: Bought, one: Lacking, replicas: int) -> None:
    name = one.spec.workload
    bought.wants[name] = one.want
    bought.replicas[name] = bought.replicas.get(name, 0) + replicas


def _rank(cycle: Cycle, option: Option, one: Lacking, replicas: int) -> tuple[bool, float, str]:
    """Sort key: pools without recent losses first, then the cost of a replica that fits."""
    each = option.shape.replicas(one.spec)
    count = max(1, min(math.ceil(replicas / each), option.room))
    usd = price_of(cycle, option.pool, one.spec).usd_per_hour * count / max(1, min(replicas, count * each))
    return option.stock.lost_recently(cycle.now_ns), usd, option.pool.pool


def _attempt(bought: Bought) -> Attempt:
    size = bought.option.stock.size
    return Attempt("buy", "", size, size + len(bought.machines))


def _admit(cycle: Cycle, bought: Bought) -> Waited | None:
    return cycle.admit(subject_of(bought.option.pool.pool), _attempt(bought))


def _order(cycle: Cycle, bought: Bought, waited: Waited) -> Scale:
    pool, stock, price = bought.option.pool, bought.option.stock, bought.price
    made, count = _attempt(bought), len(bought.machines)
    since_ns = min(want.since_ns for want in bought.wants.values())
    waited_s = (cycle.now_ns - since_ns) / NS_PER_S
    who = ", ".join(_needs(cycle, name, n) for name, n in bought.replicas.items())
    chosen = all(want.pools for want in bought.wants.values())
    why = "cost least there" if chosen else f"found no room for {waited_s:.0f} s, neither free nor by preemption"
    shape, start_s = bought.option.shape, stock.start_s or pool.start_s
    cheapest = f", the cheapest of {bought.choices} pools that fit" if bought.choices > 1 else ""
    coming = f"; {stock.coming} more are on their way" if stock.coming else ""
    lost = "; it lost machines lately" if stock.lost_ns else ""
    reason = (
        f"Scale pool {pool.pool} out from {made.before} to {made.after} machines: {who} {why}; "
        f"a {pool.instance_type} has {shape.gpus} {shape.model} for {price.usd_per_hour:.2f} USD an hour{cheapest}, "
        f"and is there in about {start_s:.0f} s{coming}{lost}"
    )
    evidence = (
        *(
            Evidence(name="replicas.without_room", value=float(n), unit="{replica}", record=bought.wants[name].proposal)
            for name, n in bought.replicas.items()
        ),
        Evidence(name="without_room", value=waited_s, unit="s"),
        Evidence(name="machines.coming", value=float(stock.coming), unit="{machine}"),
        Evidence(name="machine.price", value=price.usd_per_hour, unit="USD/h"),
        *price.evidence,
    )
    subject = subject_of(pool.pool)
    identity = cycle.issue(subject, made)
    stock.change = Change(
        identity, made.before, made.after, cycle.now_ns, cycle.expiry() + round(SEEN_S * NS_PER_S)
    )  # fmt: skip
    carbon_g, power_w = price.carbon_g_per_hour, price.power_w
    return Scale(
        id=identity,
        **cycle.common(subject, reason, 0.8, evidence, waited),
        expected=Effect(
            gpus=float(count * shape.gpus),
            cost_usd_per_hour=count * pool.price_usd_per_hour,
            power_w=None if power_w is None else count * power_w,
            carbon_g_per_hour=None if carbon_g is None else count * carbon_g,
        ),
        replicas=made.after,
        replicas_before=made.before,
    )


def _needs(cycle: Cycle, workload: str, replicas: int) -> str:
    noun = "replica" if replicas == 1 else "replicas"
    return f"{replicas} {noun} of {workload} (priority {cycle.priority(workload)})"
