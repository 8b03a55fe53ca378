"""Partitions the demand of a tick for the demand topic."""

from collections.abc import Iterable, Iterator, Sequence

from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Arrivals, Demand, DemandTick, TableOffsets, Tick
from flyball_streams.engine.offsets import NO_OFFSETS

MOST_BYTES = 700_000
WORKLOAD_BYTES, REPLICA_BYTES = 700, 120
"""One message has at most ``MOST_BYTES`` of demand, as brokers accept a megabyte. A workload with features takes
``WORKLOAD_BYTES``, and each of its replicas ``REPLICA_BYTES``."""


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
        of_parts = _parts(own)
        for part, demands_of_part in enumerate(of_parts):
            yield DemandTick(
                cell=cell,
                source=source,
                tick=tick,
                partition=partition,
                demands=tuple(demands_of_part),
                part=part,
                parts=len(of_parts),
                arrivals=() if part or partition not in arrivals_of else tuple(arrivals_of[partition]),
                table_offsets=table_offsets,
            )


def _parts(demands: Iterable[Demand]) -> list[list[Demand]]:
    """Parts that fit into a message each; at least one."""
    parts: list[list[Demand]] = [[]]
    size = 0
    for demand in demands:
        mine = WORKLOAD_BYTES
        if demand.latencies:  # once a minute
            mine += REPLICA_BYTES * sum(len(found.replicas) for found in demand.latencies)
        if parts[-1] and size + mine > MOST_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(demand)
        size += mine
    return parts
