"""The latest reading of each layout, with counters accumulated since the agent started."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_collectors.base import Reading
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import Layout, layout_of
from flyball_contracts.records import Inventory, NodeEvent

_STALE_PERIODS = 3
_STALE_NS = 30 * NS_PER_S  # at least: the first frame of a layout does not know its period


class Framed(NamedTuple):
    """A reading in the inventory's order, and the time that its counters cover."""

    reading: Reading
    period_ns: int


class Block(NamedTuple):
    """One layout at one moment, ``[rows, metrics]``.

    ``values`` are gauges as read and counters since ``starts_ns`` of their row, NaN where the reading had none. No row
    starts later than ``time_ns``, although the clock may be set back. ``increases`` are the reading itself, whose
    counters are the increase in ``period_ns``.
    """

    layout: Layout
    time_ns: int
    period_ns: int
    keys: tuple[Hashable, ...]
    starts_ns: NDArray[np.int64]
    values: NDArray[np.float64]
    increases: NDArray[np.float32]
    totals: NDArray[np.float64]


class View(NamedTuple):
    """Everything to export at one moment; immutable. ``xids`` is the last XID of each device that had one."""

    time_ns: int
    inventory: Inventory
    blocks: tuple[Block, ...]
    xids: dict[str, int]


class Latest:
    """Keeps the view up to date; one thread calls :meth:`take`, any may read ``view``."""

    def __init__(self) -> None:
        self.view: View | None = None
        self._blocks: dict[int, Block] = {}
        self._passed_ns: dict[int, int] = {}
        self._xids: dict[str, int] = {}

    def take(
        self,
        time_ns: int,
        passed_ns: int,
        frames: Sequence[Framed],
        inventory: Inventory,
        events: Sequence[NodeEvent] = (),
    ) -> None:
        """Add one tick; ``passed_ns`` is monotonic.

        A layout without a frame for three of its periods, and at least 30 s, is no longer exported.
        """
        for framed in frames:
            schema = framed.reading.schema
            keys = _keys(layout_of(schema), inventory)
            if len(keys) != len(framed.reading.values):  # it has more or fewer rows than the inventory
                continue
            self._blocks[schema] = _next(self._blocks.get(schema), framed, keys, time_ns)
            self._passed_ns[schema] = passed_ns
        for event in events:
            if event.kind == "xid" and event.device and event.code is not None:
                self._xids = {**self._xids, event.device: event.code}
        fresh = (
            block
            for schema, block in self._blocks.items()
            if passed_ns - self._passed_ns[schema] <= max(_STALE_PERIODS * block.period_ns, _STALE_NS)
            and block.keys == _keys(block.layout, inventory)
        )
        self.view = View(time_ns, inventory, tuple(fresh), self._xids)


def _next(before: Block | None, framed: Framed, keys: tuple[Hashable, ...], time_ns: int) -> Block:
    layout = layout_of(framed.reading.schema)
    increases = framed.reading.values.copy()
    totals = np.zeros(increases.shape)
    starts_ns = np.full(len(keys), time_ns, np.int64)
    if before is not None and before.keys == keys:
        totals[:], starts_ns[:] = before.totals, np.minimum(before.starts_ns, time_ns)
    elif before is not None:
        rows = {key: row for row, key in enumerate(before.keys)}
        for row, key in enumerate(keys):
            if key in rows:
                totals[row], starts_ns[row] = before.totals[rows[key]], min(before.starts_ns[rows[key]], time_ns)
    totals += np.nan_to_num(increases)
    counts = np.array([metric.instrument == "counter" for metric in layout.metrics])
    values = np.where(counts & ~np.isnan(increases), totals, _plain(increases))
    return Block(layout, time_ns, framed.period_ns, keys, starts_ns, values, increases, totals)


def _plain(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """The shortest decimal numbers with the same float32 value: 82.2 and not 82.19999694824219."""
    wide = values.astype(np.float64)
    size = np.abs(wide)
    rounded = (size < 1e6) & (size > 1e-12)  # larger ones are whole numbers for all that float32 knows
    scale = 10.0 ** (6 - np.floor(np.log10(np.where(rounded, size, 1.0))))
    return np.where(rounded, np.round(wide * scale) / scale, wide)


def _keys(layout: Layout, inventory: Inventory) -> tuple[Hashable, ...]:
    """Keys that identify a frame's rows, whatever their place."""
    match layout.rows:
        case "device":
            return tuple(device.id for device in inventory.devices)
        case "allocation":
            return tuple((allocation.workload, allocation.replica) for allocation in inventory.allocations)
        case "numa":
            return tuple(node.id for node in inventory.numa)
        case "gateway":
            return tuple((gateway.workload, gateway.name) for gateway in inventory.gateways)
        case "host":
            return ("",)
