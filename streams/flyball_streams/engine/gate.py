"""When an event-time tick is whole.

A tick closes when every known source has reported it, or when the newest source has moved past it by
the allowed lateness; then the silent ones are named and waited for no longer, until they speak again. A message
for a closed tick is *late*; one far ahead of everybody else is *early*: a clock that jumped, or a lie.
Nothing here reads a clock: time moves only with the data.
"""

from typing import Literal

import msgspec

from flyball_contracts.records import Tick

Arrival = Literal["ok", "late", "early"]
TRUSTED = 1 << 60
"""``max_ahead`` for sources that are lanes: they do not lie about time."""
STAGGER = 3
"""Ticks of grace that each later stage adds: its first marks come in one burst of the stage before."""
MISSING_NAMED = 16


class Source(msgspec.Struct):
    """Newest tick of one source; ``lapsed`` while nobody waits for it.

    ``claims`` counts successive messages that were refused because of their time; ``claimed`` is the last of them.
    """

    newest: int
    lapsed: bool = False
    claims: int = 0
    claimed: int = 0


class Gate(msgspec.Struct):
    """Closes the ticks of one cell, in order, from the marks of its sources.

    ``lateness``, ``max_ahead`` and ``grace`` are in ticks: nothing closes before the newest source is ``grace`` ticks
    past the first, so that all have a chance to be known. A jump in time is believed when ``confirm`` messages in a
    row of one source insist on it and no other source contradicts them. ``front`` is the newest tick of the sources
    that are waited for: kept, because to look it up among thousands at each message would cost more than the models.
    """

    period_ns: int
    lateness: int
    max_ahead: int
    grace: int
    confirm: int = 5
    closed: int = -1
    joined_until: int = -1
    front: int = -1
    late: int = 0
    reported: set[int] = set()
    sources: dict[str, Source] = {}

    def arrive(self, name: str, index: int) -> Arrival:
        """Take note that ``name`` has reported tick ``index``; only ``ok`` messages may be used."""
        source = self.sources.get(name)
        if source is None:
            return self._join(name, index)
        if index <= self.closed and not self._went_back(source, index):
            return "late"
        if index > self.front + self.max_ahead and not self._believe(name, source, index):
            return "early"
        self.reported.add(index)
        source.newest = max(source.newest, index)
        self.front = max(self.front, source.newest)
        source.lapsed = False
        source.claims = 0
        return "ok"

    def close(self) -> list[Tick]:
        """Ticks that are whole now, oldest first. Ticks that nobody reported do not exist."""
        done: list[Tick] = []
        while True:
            if not self.reported:
                return done
            index = min(self.reported)
            if index <= self.joined_until and self.front < self.joined_until:
                return done
            silent = sorted(name for name, s in self.sources.items() if not s.lapsed and s.newest < index)
            if silent and self.front < index + self.lateness:
                return done
            for name in silent:
                self.sources[name].lapsed = True
            done.append(
                Tick(
                    index=index,
                    period_ns=self.period_ns,
                    closed_by="watermark" if silent else "complete",
                    missing=tuple(silent[:MISSING_NAMED]),
                    late=self.late,
                )
            )
            self.reported.discard(index)
            self.closed = index
            self.late = 0

    def _join(self, name: str, index: int) -> Arrival:
        if not self.sources:
            self.closed = max(self.closed, index - 1)
            self.joined_until = index + self.grace
        elif index <= self.closed:
            self.late += 1
            self.sources[name] = Source(index, lapsed=True)
            return "late"
        elif index > self.front + self.max_ahead:
            self.sources[name] = Source(self.closed, lapsed=True, claims=1, claimed=index)
            return "early"
        self.sources[name] = Source(index)
        self.front = max(self.front, index)
        self.reported.add(index)
        return "ok"

    def _went_back(self, source: Source, index: int) -> bool:
        """Count a late message; when the only living source insists on an older time, go back with it."""
        self.late += 1
        source.claims = source.claims + 1 if index >= source.claimed else 1
        source.claimed = index
        alone = all(s is source or s.lapsed for s in self.sources.values())
        if alone and source.claims >= self.confirm and index < self.closed - self.lateness:
            source.newest = self.front = index
            self.closed = index - 1
            self.reported.clear()
            return True
        return False

    def _believe(self, name: str, source: Source, index: int) -> bool:
        """Say whether a jump ahead is real: repeated, and no other source still runs on the old time."""
        source.claims = source.claims + 1 if index >= source.claimed else 1
        source.claimed = index
        if source.claims < self.confirm:
            return False
        others = [s for other, s in self.sources.items() if other != name and not s.lapsed]
        return all(s.claims and abs(s.claimed - index) <= self.max_ahead for s in others)
