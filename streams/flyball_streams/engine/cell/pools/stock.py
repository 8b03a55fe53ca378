"""What is remembered of a pool: how many machines it has, what is on its way, and what became of that.

The number of machines is the platform's last word, as outcomes tell it, or what the inventories show where that is
more; a machine that was ordered counts from the decision on. So nothing is bought twice while machines start.
"""

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Inventory, Pool
from flyball_contracts.records.pools import PREFIX
from flyball_streams.engine.cell.backoff import Backoff
from flyball_streams.engine.cell.heard import Heard
from flyball_streams.engine.cell.pools.machines import Machines, Shape, seen_shape

UNDER_WAY_S = 3600.0
"""A change of which nothing more is heard for so long is not believed to end."""
SEEN_S = 60.0
"""Agents say what there is twice a minute."""
RETRY_S = 1800.0
"""A pool that lost machines is the last to be bought from for so long."""
UNKNOWN = -1


class Change(msgspec.Struct):
    """Decision ``id``: ``after`` machines instead of ``before``, of which ``victims`` go; with the newest word on it.

    It is on its way until the inventories show it, it comes to nothing, or ``expires_ns``.
    """

    id: str
    before: int
    after: int
    decided_ns: int
    expires_ns: int
    victims: tuple[str, ...] = ()
    status: Heard = msgspec.field(default_factory=lambda: Heard(""))

    @property
    def grows(self) -> bool:
        """Whether machines were bought."""
        return self.after > self.before


class Stock(msgspec.Struct):
    """One pool as it was seen last.

    ``reported`` is the number of machines by the platform, less those lost since; :data:`UNKNOWN`: it reported none.
    ``here`` are the nodes that are there, ``ready`` those of them on which work may be placed, ``empty`` since when
    nothing runs on them. ``lost_ns`` is when machines were lost last, 0: never. ``model`` and ``gpus`` are the shape of
    a machine, and ``start_s`` is how long those took to come that came last; 0: none came yet.
    """

    reported: int = UNKNOWN
    change: Change | None = None
    here: list[str] = []
    ready: int = 0
    empty: dict[str, int] = {}
    lost_ns: int = 0
    model: str = ""
    gpus: int = 0
    start_s: float = 0.0

    @property
    def size(self) -> int:
        """Machines that there are once what was decided is done."""
        if self.change is not None:
            return max(self.change.after, len(self.here)) if self.change.grows else self.change.after
        return max(self.reported, len(self.here))

    @property
    def coming(self) -> int:
        """Machines that were bought and on which nothing can be placed yet."""
        return max(0, self.change.after - self.ready) if self.change is not None and self.change.grows else 0

    def lost_lately(self, now_ns: int) -> bool:
        """Whether machines were lost that nobody had returned, not long ago."""
        return 0 < self.lost_ns <= now_ns < self.lost_ns + round(RETRY_S * NS_PER_S)

    @property
    def shape(self) -> Shape | None:
        """What a machine has; ``None``: nobody knows."""
        return Shape(self.model, self.gpus) if self.gpus else None


def subject_of(pool: str) -> str:
    """What decisions about a pool are about."""
    return f"{PREFIX}{pool}"


def follow(
    stocks: dict[str, Stock], heard: dict[str, Heard], backoff: Backoff, machines: Machines, now_ns: int
) -> None:
    """Take outcomes and inventories in."""
    for name in [name for name in stocks if name not in machines.pools]:
        del stocks[name]
    for name, pool in machines.pools.items():
        stock = stocks.setdefault(name, Stock())
        if stock.change is not None and stock.change.decided_ns > now_ns:
            stock.change = None  # decided before the cell's clock was set back
        _look(stock, pool, machines.nodes(name), now_ns)
        if stock.change is not None:
            _end(stock, stock.change, pool, heard, backoff, now_ns)


def _look(stock: Stock, pool: Pool, nodes: list[Inventory], now_ns: int) -> None:
    """See which machines are there; those that went though nobody returned them are lost."""
    here = [node.node for node in nodes]
    lost = len(set(stock.here).difference(here))
    if lost and (stock.change is None or stock.change.grows):
        stock.lost_ns = now_ns
        if stock.reported != UNKNOWN:
            stock.reported = max(len(here), stock.reported - lost)
    stock.here, stock.ready = here, sum(node.schedulable for node in nodes)
    stock.empty = {name: since for name, since in stock.empty.items() if name in here and since <= now_ns}
    shape = Shape(pool.gpu_model, pool.gpus) if pool.gpus else seen_shape(nodes)
    if shape is not None:
        stock.model, stock.gpus = shape


def _end(
    stock: Stock, change: Change, pool: Pool, heard: dict[str, Heard], backoff: Backoff, now_ns: int
) -> None:  # fmt: skip
    """See what became of a change."""
    subject, said = subject_of(pool.pool), heard.pop(change.id, None)
    if said is not None:
        change.status = said
        if said.status == "done":
            change.expires_ns = now_ns + round(max(pool.start_s, SEEN_S) * NS_PER_S)
        elif not said.final:
            change.expires_ns = max(change.expires_ns, now_ns + round(UNDER_WAY_S * NS_PER_S))
    status = change.status
    nothing = status.final and status.status != "done"
    if not nothing and (stock.ready >= change.after if change.grows else len(stock.here) <= change.after):
        backoff.worked(subject, change.id)
        stock.reported = change.after
        stock.start_s = (now_ns - change.decided_ns) / NS_PER_S if change.grows else stock.start_s
    elif nothing or change.expires_ns <= now_ns:
        backoff.ended(subject, change.id, status.words, now_ns if status.status else None)
        if status.replicas is not None:
            stock.reported = status.replicas
    else:
        return
    stock.change = None
