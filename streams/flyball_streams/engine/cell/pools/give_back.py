"""Returns machines that have been empty for a while."""

from collections.abc import Iterator

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Effect, Evidence, Pool, Scale
from flyball_streams.engine.cell.backoff import Attempt, Waited
from flyball_streams.engine.cell.cycle import Cycle
from flyball_streams.engine.cell.placement import Placement
from flyball_streams.engine.cell.pools.machines import Machines
from flyball_streams.engine.cell.pools.stock import SEEN_S, Change, Stock, subject_of

MOST_RETURNED = 4
"""Most machines that one decision returns: as many as the actuator allows in a small cell."""


def give_back(cycle: Cycle, machines: Machines) -> Iterator[Scale]:
    """Return empty machines: never below a pool's minimum, and none while a change of the pool is under way."""
    for name, pool in machines.pools.items():
        stock = cycle.memory.stocks.get(name)
        if stock is None:
            continue
        here = [n for n in machines.nodes(name) if n.agent != "stopped"]  # what runs there since is unknown
        idle = [n.node for n in here if not n.allocations and is_idle(cycle.placement, n.node)]
        stock.empty = {node: stock.empty.get(node, cycle.now_ns) for node in idle}
        if stock.change is not None or subject_of(name) in cycle.decided:
            continue
        rest_ns = round(cycle.config.pools.return_after_s * NS_PER_S)
        due = [node for node in idle if cycle.now_ns - stock.empty[node] >= rest_ns]
        count = min(len(due), stock.size - pool.min_machines, MOST_RETURNED)
        if count <= 0:
            continue
        victims = tuple(node for _, node in sorted((stock.empty[node], node) for node in due)[:count])
        made = Attempt("return", "", stock.size, stock.size - count)
        waited = cycle.admit(subject_of(name), made)
        if waited is not None:
            yield _order(cycle, pool, stock, made, victims, waited)


def is_idle(placement: Placement, node: str) -> bool:
    """Whether nothing runs on a node and nothing is reserved there."""
    known = placement.nodes.get(node)
    if known is None or any(known.base):
        return False
    rooms = set(known.models)
    return all(
        placement.free[model, node] == sum(m == model and u for m, u in zip(known.models, known.usable, strict=True))
        for model in rooms
        if (model, node) in placement.free
    )


def _order(
    cycle: Cycle, pool: Pool, stock: Stock, made: Attempt, victims: tuple[str, ...], waited: Waited
) -> Scale:  # fmt: skip
    subject, count = subject_of(pool.pool), made.before - made.after
    empty_s = min((cycle.now_ns - stock.empty[node]) / NS_PER_S for node in victims)
    identity = cycle.issue(subject, made)
    expires_ns = cycle.expiry() + round(SEEN_S * NS_PER_S)
    stock.change = Change(identity, made.before, made.after, cycle.now_ns, expires_ns, victims)
    reason = (
        f"Scale pool {pool.pool} in from {made.before} to {made.after} machines: nothing has run on "
        f"{', '.join(victims)} for {empty_s:.0f} s, and nobody lacks room that they could give"
    )
    evidence = (
        Evidence(name="machines.empty", value=float(count), unit="{machine}"),
        Evidence(name="empty", value=empty_s, unit="s"),
        Evidence(name="machine.price", value=pool.price_usd_per_hour, unit="USD/h"),
    )
    return Scale(
        id=identity,
        **cycle.common(subject, reason, 0.8, evidence, waited),
        expected=Effect(gpus=-float(count * stock.gpus), cost_usd_per_hour=-count * pool.price_usd_per_hour),
        replicas=made.after,
        replicas_before=made.before,
        victims=victims,
    )
