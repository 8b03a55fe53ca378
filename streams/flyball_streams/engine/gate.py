"""When an event-time tick is whole.

A tick closes when every known source has reported it, or when the newest source has moved past it by
the allowed lateness; then the silent ones are named and waited for no longer, until they speak again. A message
for a closed tick is *late*; one far ahead of everybody else is *early*: a clock that jumped, or a lie.
Nothing here reads a clock: time moves only with the data.
"""

from bisect import bisect_left
from typing import Literal

import msgspec

from flyball_contracts.records import Tick

Arrival = Literal["ok", "late", "early"]
STAGGER = 3
"""Ticks of grace that each later stage adds: its first marks come in one burst of the stage before."""
MISSING_NAMED = 16
FORGET_TICKS = 3600
"""A source that has been silent for so many ticks is forgotten: nodes come and go for ever."""


class Source(msgspec.Struct):
    """Newest tick of one source; ``lapsed`` while nobody waits for it.

    ``claims`` counts its refused messages in a row, ``claimed`` is the tick of the last of them, and ``heard`` what
    :attr:`Gate.heard` was then.
    """

    newest: int
    lapsed: bool = False
    claims: int = 0
    claimed: int = 0
    heard: int = 0


class Gate(msgspec.Struct):
    """Closes the ticks of one cell, in order, from the marks of its sources, each of which reports in order.

    ``lateness``, ``max_ahead`` and ``grace`` are in ticks: nothing closes before the newest source is ``grace`` ticks
    past the first, so that all have a chance to be known. ``front`` is the newest tick that was accepted, ``heard``
    the number of messages that were; ``reported`` are the open ticks, in order.

    A source that jumps ahead, or back behind its own past, is believed when it insists: ``confirm`` messages in a
    row, and as many again for each other source that is waited for and does not say the same, while nobody was
    heard in the old time. So a lying clock moves nobody, and a cell that was away for long goes on in the new time
    though some of its nodes never come back. When time goes back, the ticks still open close first.
    """

    period_ns: int
    lateness: int
    max_ahead: int
    grace: int
    confirm: int = 5
    closed: int = -1
    joined_until: int = -1
    front: int = -1
    heard: int = 0
    late: int = 0
    reported: list[int] = []
    abandoned: list[int] = []
    sources: dict[str, Source] = {}

    def arrive(self, name: str, index: int) -> Arrival:
        """Take note that ``name`` has reported tick ``index``; only ``ok`` messages may be used."""
        source = self.sources.get(name)
        if source is None:
            return self._join(name, index)
        if index == self.front > self.closed and not source.lapsed and not source.claims:  # nearly all messages
            source.newest = index
            self.heard += 1
            return "ok"
        if index <= self.closed:
            self.late += 1
            back = index < source.newest and index < self.closed - self.lateness
            if not (back and self._insists(source, index)):
                return "late"
            self._go_back(index)
        elif index > self.front + self.max_ahead and not self._insists(source, index):
            return "early"
        source.newest = max(source.newest, index)
        source.lapsed = False
        source.claims = 0
        self._accept(index)
        return "ok"

    def close(self) -> list[Tick]:
        """Ticks that are whole now, oldest first. Ticks that nobody reported do not exist."""
        done = [self._tick(index, []) for index in self.abandoned]
        self.abandoned = []
        while self.reported:
            index = self.reported[0]
            if index <= self.joined_until and self.front < self.joined_until:
                break
            silent = sorted(name for name, s in self.sources.items() if not s.lapsed and s.newest < index)
            if silent and self.front < index + self.lateness:
                break
            for name in silent:
                self.sources[name].lapsed = True
            done.append(self._tick(index, silent))
            del self.reported[0]
            self.closed = index
        if done:
            self._forget()
        return done

    def _tick(self, index: int, silent: list[str]) -> Tick:
        late, self.late = self.late, 0
        return Tick(
            index=index,
            period_ns=self.period_ns,
            closed_by="watermark" if silent else "complete",
            missing=tuple(silent[:MISSING_NAMED]),
            late=late,
        )

    def _join(self, name: str, index: int) -> Arrival:
        if not self.sources:
            # Who is first is chance: others may be behind, and are in time all the same.
            self.closed = max(self.closed, index - 1 - self.lateness)
            self.joined_until = index + self.grace
            self.front = index
        elif index <= self.closed:
            self.late += 1
            self.sources[name] = Source(index, lapsed=True)
            return "late"
        elif index > self.front + self.max_ahead:
            self.sources[name] = Source(self.closed, lapsed=True, claims=1, claimed=index, heard=self.heard)
            return "early"
        self.sources[name] = Source(index)
        self._accept(index)
        return "ok"

    def _accept(self, index: int) -> None:
        at = bisect_left(self.reported, index)
        if at == len(self.reported) or self.reported[at] != index:
            self.reported.insert(at, index)
        self.front = max(self.front, index)
        self.heard += 1

    def _insists(self, source: Source, index: int) -> bool:
        """Count a refused message, and say whether its source is to be believed now."""
        repeated = source.heard == self.heard and 0 <= index - source.claimed <= self.max_ahead
        source.claims = source.claims + 1 if repeated else 1
        source.claimed, source.heard = index, self.heard
        if source.claims < self.confirm:
            return False
        silent = sum(
            not (s.claims and s.heard == self.heard and abs(s.claimed - index) <= self.max_ahead)
            for s in self.sources.values()
            if not s.lapsed and s is not source
        )
        return source.claims >= self.confirm * (1 + silent)

    def _go_back(self, index: int) -> None:
        self.abandoned += self.reported
        self.reported = []
        self.closed, self.front, self.joined_until = index - 1, index, -1
        for source in self.sources.values():
            source.newest = min(source.newest, index - 1)

    def _forget(self) -> None:
        long_ago = self.closed - FORGET_TICKS
        gone = [name for name, s in self.sources.items() if s.lapsed and max(s.newest, s.claimed) < long_ago]
        for name in gone:
            del self.sources[name]
