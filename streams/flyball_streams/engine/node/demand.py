"""The demand of a tick, shared out to the partitions of the demand topic."""

from collections.abc import Iterable, Iterator, Sequence

from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Arrivals, Demand, DemandTick, TableOffsets, Tick
from flyball_streams.engine.offsets import NOWHERE

MOST_IN_ONE = 1000
"""Workloads in one message: some 200 bytes each, 700 with their features, and brokers take a megabyte."""


def shared_out(
    demands: Iterable[Demand],
    partitions: int,
    cell: str,
    source: str,
    tick: Tick,
    arrivals: Sequence[Arrivals] = (),
    table_offsets: TableOffsets = NOWHERE,
) -> Iterator[DemandTick]:
    """Yield what each partition's reader has to know of a tick; for those without demand, that there was none."""
    doors: dict[int, list[Arrivals]] = {}
    for one in arrivals:
        doors.setdefault(partition_of(one.workload.encode(), partitions), []).append(one)
    mine: list[list[Demand]] = [[] for _ in range(partitions)]
    for demand in demands:
        mine[partition_of(demand.workload.encode(), partitions)].append(demand)
    for partition, all_of_it in enumerate(mine):
        parts = max(1, -(-len(all_of_it) // MOST_IN_ONE))
        for part in range(parts):
            yield DemandTick(
                cell=cell,
                source=source,
                tick=tick,
                partition=partition,
                demands=tuple(all_of_it[part * MOST_IN_ONE : (part + 1) * MOST_IN_ONE]),
                part=part,
                parts=parts,
                arrivals=() if part or partition not in doors else tuple(doors[partition]),
                table_offsets=table_offsets,
            )
