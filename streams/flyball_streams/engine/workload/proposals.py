"""The proposals of one tick: new ones in full, repeated ones by id."""

from collections.abc import Iterator

from flyball_contracts.records import Proposal, ProposalTick, Symptom, TableOffsets, Tick
from flyball_streams.engine.offsets import NO_OFFSETS

REPEAT_IN_FULL_TICKS = 30
"""A proposal is published in full again after this many ticks, for readers that have lost it."""
MOST_IN_ONE = 400
"""Most proposals in one message: some 2 kilobytes each, and brokers accept a megabyte."""


class Proposals:
    """Proposals of one lane in one tick; ``published`` has the tick in which each id was published in full."""

    def __init__(self, published: dict[str, int], index: int) -> None:
        self.new: dict[str, Proposal] = {}
        self.repeated: dict[str, int] = {}
        self.symptoms: list[Symptom] = []
        self._published, self._index = published, index

    def is_new(self, identity: str) -> bool:
        """Whether a proposal has to be published in full; if not, it counts as repeated."""
        first = self._published.get(identity)
        if first is None or not 0 <= self._index - first < REPEAT_IN_FULL_TICKS:
            return True
        self.repeated[identity] = first
        return False

    def published(self) -> dict[str, int]:
        """Published ids with their ticks, for the next tick."""
        return self.repeated | dict.fromkeys(self.new, self._index)

    def messages(
        self, cell: str, source: str, tick: Tick, table_offsets: TableOffsets = NO_OFFSETS
    ) -> Iterator[ProposalTick]:
        """Messages of the tick, with ``table_offsets``; the last one closes the tick."""
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
