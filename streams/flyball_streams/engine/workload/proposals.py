"""The proposals of one tick: in full where they are new, by their ids where they were published before."""

from collections.abc import Iterator

from flyball_contracts.records import Proposal, ProposalTick, Symptom, TableOffsets, Tick
from flyball_streams.engine.offsets import NO_OFFSETS

REPEAT_IN_FULL_TICKS = 30
"""A proposal is published in full again after so many ticks, for readers that have lost it."""
MOST_IN_ONE = 400
"""Proposals in one message: some 2 kilobytes each, and brokers take a megabyte."""


class Proposals:
    """Proposals of one lane in one tick; ``published`` has the tick in which each id was published in full."""

    def __init__(self, published: dict[str, int], index: int) -> None:
        self.new: dict[str, Proposal] = {}
        self.repeated: dict[str, int] = {}
        self.symptoms: list[Symptom] = []
        self._published, self._index = published, index

    def is_new(self, identity: str) -> bool:
        """Whether a proposal has to be published in full; if not it counts as repeated."""
        first = self._published.get(identity)
        if first is None or not 0 <= self._index - first < REPEAT_IN_FULL_TICKS:
            return True
        self.repeated[identity] = first
        return False

    def published(self) -> dict[str, int]:
        """Ids for the next tick."""
        return self.repeated | dict.fromkeys(self.new, self._index)

    def messages(
        self, cell: str, source: str, tick: Tick, table_offsets: TableOffsets = NO_OFFSETS
    ) -> Iterator[ProposalTick]:
        """Messages of the tick, the last of which closes it; ``table_offsets`` are how far the tables count."""
        new, repeated = list(self.new.values()), tuple(self.repeated)
        for part, first in enumerate(range(0, max(1, len(new)), MOST_IN_ONE)):
            yield ProposalTick(
                cell=cell,
                source=source,
                tick=tick,
                proposals=tuple(new[first : first + MOST_IN_ONE]),
                repeated=() if part else repeated,
                part=part,
                closes=first + MOST_IN_ONE >= len(new),
                table_offsets=table_offsets,
                symptoms=() if part else tuple(self.symptoms),
            )
