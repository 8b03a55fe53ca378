"""The wishes of one tick: in full where they are new, by their ids where they were said before."""

from collections.abc import Iterator

from flyball_contracts.records import Proposal, ProposalTick, Tick

SAID_AGAIN_TICKS = 30
"""A wish is said in full again after so many ticks, for readers that have lost it."""
MOST_IN_ONE = 400
"""Wishes in one message: some 2 kilobytes each, and brokers take a megabyte."""


class Wishes:
    """What a lane wishes for in one tick, given the ids that it ``said`` in full before, each with the tick of that."""

    def __init__(self, said: dict[str, int], index: int) -> None:
        self.new: dict[str, Proposal] = {}
        self.again: dict[str, int] = {}
        self._said, self._index = said, index

    def is_new(self, identity: str) -> bool:
        """Whether a wish has to be said in full; if not it counts as said again."""
        first = self._said.get(identity)
        if first is None or not 0 <= self._index - first < SAID_AGAIN_TICKS:
            return True
        self.again[identity] = first
        return False

    def said(self) -> dict[str, int]:
        """Ids for the next tick."""
        return self.again | dict.fromkeys(self.new, self._index)

    def told(self, cell: str, source: str, tick: Tick) -> Iterator[ProposalTick]:
        """Messages of the tick, the last of which closes it."""
        new, again = list(self.new.values()), tuple(self.again)
        for part, first in enumerate(range(0, max(1, len(new)), MOST_IN_ONE)):
            yield ProposalTick(
                cell=cell,
                source=source,
                tick=tick,
                proposals=tuple(new[first : first + MOST_IN_ONE]),
                again=() if part else again,
                part=part,
                closes=first + MOST_IN_ONE >= len(new),
            )
