"""Tables of inventories, workloads, pools, signals, outcomes and responses, all folded by one rule.

Of two records with one key the newer one counts: by the record's own time, and then by their bytes. So readers agree,
in whatever order partitions reached them. Two kinds have a rule besides: an inventory's epoch decides between records
of one time, and a final outcome of a decision is never replaced by one that is not final, whatever the clocks of two
actuators.

A message without a value is a tombstone: it deletes the earlier records of its key. It has no event time, so it counts
from when it is read, in the order of its partition. A workload that its owner removed is a record with ``removed``,
which stays, so that an older one does not bring it back.
"""

from typing import Final, TypeAlias

import msgspec

from flyball_contracts.records import Inventory, Outcome, Pool, Record, Signal, WorkloadSpec
from flyball_contracts.records.responses import Acknowledgement, AnyResponse, Label, Readmission, Silence
from flyball_contracts.topics import INVENTORY, OUTCOMES, POOLS, RESPONSES, SIGNALS, WORKLOADS

TABLES = (INVENTORY, WORKLOADS, POOLS, SIGNALS, OUTCOMES, RESPONSES)
"""Topics that are tables, by their attribute of :class:`Tables`."""
MOST_OUTCOMES = 10_000
Row: TypeAlias = Inventory | WorkloadSpec | Pool | Signal | Outcome | AnyResponse
ROWS: Final = (Inventory, WorkloadSpec, Pool, Signal, Outcome, Acknowledgement, Silence, Label, Readmission)
_STAGES = {"accepted": 0, "running": 1}
_encode = msgspec.json.Encoder().encode


def time_of(row: Row) -> int:
    """Event time from which a row counts, in ns."""
    return row.published_ns if isinstance(row, Signal) else row.time_ns


def supersedes(new: Row, old: Row) -> bool:
    """Whether ``new`` replaces ``old``, which has its kind and key; never true of two equal records."""
    rank, old_rank = _rank(new), _rank(old)
    return rank > old_rank or (rank == old_rank and new != old and _encode(new) > _encode(old))


class Tables:
    """Rows by their key: node, workload, pool, zone and kind, decision, response.

    Removed workloads are among ``workloads``.

    ``most_outcomes`` bounds the outcomes; those read first are dropped.
    """

    def __init__(self, most_outcomes: int = MOST_OUTCOMES) -> None:
        self.inventories: dict[str, Inventory] = {}
        self.workloads: dict[str, WorkloadSpec] = {}
        self.pools: dict[str, Pool] = {}
        self.signals: dict[tuple[str, str], Signal] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.responses: dict[str, AnyResponse] = {}
        self._most_outcomes = most_outcomes

    def apply(self, record: Record) -> bool:
        """Apply one record; return whether it changed a table. Records of other kinds change none."""
        if not isinstance(record, ROWS) or not self.takes(record):
            return False
        if isinstance(record, Inventory):
            self.inventories[record.node] = record
        elif isinstance(record, WorkloadSpec):
            self.workloads[record.workload] = record
        elif isinstance(record, Pool):
            self.pools[record.pool] = record
        elif isinstance(record, Signal):
            self.signals[record.zone, record.kind] = record
        elif isinstance(record, AnyResponse):
            self.responses[record.key] = record
        else:
            self.outcomes[record.decision] = record
            while len(self.outcomes) > self._most_outcomes:
                del self.outcomes[next(iter(self.outcomes))]
        return True

    def takes(self, row: Row) -> bool:
        """Whether a row would change its table."""
        known = self._known(row)
        return known is None or supersedes(row, known)

    def forget(self, topic: str, key: str) -> bool:
        """Apply a tombstone: delete the rows with this message key of a topic; return whether there were any.

        Outcomes have no tombstones: their key is a target, and they are kept by time.
        """
        if topic == INVENTORY.name:
            return self.inventories.pop(key, None) is not None
        if topic == WORKLOADS.name:
            return self.workloads.pop(key, None) is not None
        if topic == POOLS.name:
            return self.pools.pop(key, None) is not None
        if topic == RESPONSES.name:
            return self.responses.pop(key, None) is not None
        if topic == SIGNALS.name:
            found = [curve for curve in self.signals if curve[0] == key]
            for curve in found:
                del self.signals[curve]
            return bool(found)
        return False

    def spec(self, workload: str) -> WorkloadSpec | None:
        """Specification of a workload, ``None`` when there is none or it was removed."""
        spec = self.workloads.get(workload)
        return None if spec is None or spec.removed else spec

    def _known(self, row: Row) -> Row | None:
        if isinstance(row, Inventory):
            return self.inventories.get(row.node)
        if isinstance(row, WorkloadSpec):
            return self.workloads.get(row.workload)
        if isinstance(row, Pool):
            return self.pools.get(row.pool)
        if isinstance(row, Signal):
            return self.signals.get((row.zone, row.kind))
        if isinstance(row, AnyResponse):
            return self.responses.get(row.key)
        return self.outcomes.get(row.decision)


def _rank(row: Row) -> tuple[int, ...]:
    if isinstance(row, Inventory):
        return (row.time_ns, row.epoch)
    if isinstance(row, Outcome):
        return (row.final, row.time_ns, _STAGES.get(row.status, 2))
    return (time_of(row),)
