"""State of a pool: how many machines it has, and the change that is under way.

The number of machines is what the platform last reported in an outcome, or what the inventories show if that is more;
an ordered machine counts from its decision on. So nothing is bought twice while machines start.
"""

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Inventory, Pool
from flyball_contracts.records.subjects import POOL
from flyball_streams.engine.cell.backoff import Backoff
from flyball_streams.engine.cell.pools.machines import Machines, Shape, seen_shape
from flyball_streams.engine.cell.reports import Report

UNDER_WAY_S = 3600.0
"""A change without a new report for this long counts as lost."""
SEEN_S = 60.0
"""Agents publish inventories twice a minute."""
RETRY_S = 1800.0
"""A pool that lost machines is the last choice for this long."""
UNKNOWN = -1


class Change(msgspec.Struct):
    """Decision ``id``: ``after`` machines instead of ``before``; ``victims`` are returned.

    It is under way until the inventories show it, it fails, or ``expires_ns``. ``report`` is the newest report on it.
    """

    id: str
    before: int
    after: int
    decided_ns: int
    expires_ns: int
    victims: tuple[str, ...] = ()
    report: Report = msgspec.field(default_factory=lambda: Report(""))

    @property
    def grows(self) -> bool:
        """Whether machines were bought."""
        return self.after > self.before


class Stock(msgspec.Struct):
    """The last known state of one pool.

    ``reported`` is the number of machines that the platform reported, less those lost since; :data:`UNKNOWN`: none
    reported. ``here`` are the nodes in the inventories, ``ready`` counts the schedulable ones, and ``empty`` maps empty
    nodes to the time since when they are empty. ``lost_ns`` is when machines were last lost, 0: never. ``model`` and
    ``gpus`` are the shape of a machine, and ``start_s`` is the start time of the newest machines, 0: none yet.
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
        """Machines of the pool once the change under way is done."""
        if self.change is not None:
            return max(self.change.after, len(self.here)) if self.change.grows else self.change.after
        return max(self.reported, len(self.here))

    @property
    def coming(self) -> int:
        """Machines that were bought and are not ready yet."""
        return max(0, self.change.after - self.ready) if self.change is not None and self.change.grows else 0

    def lost_recently(self, now_ns: int) -> bool:
        """Whether machines were lost recently without a decision to return them."""
        return 0 < self.lost_ns <= now_ns < self.lost_ns + round(RETRY_S * NS_PER_S)

    @property
    def shape(self) -> Shape | None:
        """GPU model and count of a machine; ``None``: unknown."""
        return Shape(self.model, self.gpus) if self.gpus else None


def subject_of(pool: str) -> str:
    """Subject of decisions about a pool."""
    return f"{POOL}{pool}"


def follow(
    stocks: dict[str, Stock], reports: dict[str, Report], backoff: Backoff, machines: Machines, now_ns: int
) -> None:
    """Update the stocks from reports and inventories."""
    for name in [name for name in stocks if name not in machines.pools]:
        del stocks[name]
    for name, pool in machines.pools.items():
        stock = stocks.setdefault(name, Stock())
        if stock.change is not None and stock.change.decided_ns > now_ns:
            stock.change = None  # decided before the cell's clock was set back
        _look(stock, pool, machines.nodes(name), now_ns)
        if stock.change is not None:
            _end(stock, stock.change, pool, reports, backoff, now_ns)


def _look(stock: Stock, pool: Pool, nodes: list[Inventory], now_ns: int) -> None:
    """Update a stock from the inventories; machines that vanished without a decision to return them are lost."""
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
    stock: Stock, change: Change, pool: Pool, reports: dict[str, Report], backoff: Backoff, now_ns: int
) -> None:  # fmt: skip
    """Apply the report on a change, and end it when it is over."""
    subject, report = subject_of(pool.pool), reports.pop(change.id, None)
    if report is not None:
        change.report = report
        if report.status == "done":
            change.expires_ns = now_ns + round(max(pool.start_s, SEEN_S) * NS_PER_S)
        elif not report.final:
            change.expires_ns = max(change.expires_ns, now_ns + round(UNDER_WAY_S * NS_PER_S))
    report = change.report
    nothing = report.final and report.status != "done"
    if not nothing and (stock.ready >= change.after if change.grows else len(stock.here) <= change.after):
        backoff.worked(subject, change.id)
        stock.reported = change.after
        stock.start_s = (now_ns - change.decided_ns) / NS_PER_S if change.grows else stock.start_s
    elif nothing or change.expires_ns <= now_ns:
        backoff.ended(subject, change.id, report.ending, now_ns if report.status else None)
        if report.replicas is not None:
            stock.reported = report.replicas
    else:
        return
    stock.change = None
