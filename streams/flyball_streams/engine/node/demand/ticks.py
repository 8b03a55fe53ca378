"""Partitions the demand of a tick for the demand topic."""

from collections.abc import Iterable, Iterator, Sequence

from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Arrivals, Demand, DemandTick, TableOffsets, Tick
from flyball_streams.engine.offsets import NO_OFFSETS

MOST_IN_ONE = 1000
"""Most workloads in one message: some 200 bytes each, 700 with features, and brokers accept a megabyte."""


def demand_ticks(
    demands: Iterable[Demand],
    partitions: int,
    cell: str,
    source: str,
    tick: Tick,
    arrivals: Sequence[Arrivals] = (),
    table_offsets: TableOffsets = NO_OFFSETS,
) -> Iterator[DemandTick]:
    """Yield the messages of a tick for each partition; a partition without demand gets an empty one."""
    arrivals_of: dict[int, list[Arrivals]] = {}
    for one in arrivals:
        arrivals_of.setdefault(partition_of(one.workload.encode(), partitions), []).append(one)
    by_partition: list[list[Demand]] = [[] for _ in range(partitions)]
    for demand in demands:
        by_partition[partition_of(demand.workload.encode(), partitions)].append(demand)
    for partition, own in enumerate(by_partition):
        parts = max(1, -(-len(own) // MOST_IN_ONE))
        for part in range(parts):
            yield DemandTick(
                cell=cell,
                source=source,
                tick=tick,
                partition=partition,
                demands=tuple(own[part * MOST_IN_ONE : (part + 1) * MOST_IN_ONE]),
                part=part,
                parts=parts,
                arrivals=() if part or partition not in arrivals_of else tuple(arrivals_of[partition]),
                table_offsets=table_offsets,
            )
