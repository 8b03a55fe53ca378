"""When an event-time tick is whole.

A tick closes when every known source has reported it. A source that is behind is given up by one of two rules. Nodes
send as they measure, so a node is given up when the newest source is ``lateness`` ticks past the tick. A lane may be
behind because it reads a backlog, and then it says all that it has to say, only later: it is given up when it was
silent for ``lateness`` ticks of *log time*, however far ahead the others are. Log time is that of the messages in the
log (Kafka's ``CreateTime``), so it passes only while somebody speaks, and a pause of everybody counts for a second at
most. Where messages do not tell their log time, the first rule holds for lanes too.

A tick that closes without a known source names it as missing, and so do the ticks after it, until the source speaks
again or is forgotten; nobody waits for it meanwhile. A message for a closed tick is *late*; one far ahead of everybody
else is *early*: a clock that jumped, or a lie.

Nothing here reads a clock: time moves only with the data. Where log time is known, what closes is settled message by
message, so a log that is read again in other batches closes the same ticks with the same messages in them. Frames of
nodes have no such order among each other: their ticks close between two batches.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Literal

import msgspec

from flyball_contracts.records import Tick

Arrival = Literal["ok", "late", "early"]
STAGGER = 3
"""Ticks of grace that each later stage adds: its first marks come in one burst of the stage before."""
MISSING_NAMED = 16
FORGET_TICKS = 3600
"""A source that has been silent for so many ticks is forgotten: nodes come and go for ever."""
PAUSE_MS = 1000
"""What a pause of all sources counts in log time at most."""
UNKNOWN_MS = -1
"""Log time of a message that does not tell it."""


NEVER = -1
"""When a source spoke that never said anything of use: nobody misses it."""


class Source(msgspec.Struct):
    """Newest tick of one source; ``lapsed`` while nobody waits for it.

    ``claims`` counts its refused messages in a row, ``claimed`` is the tick of the last of them, and ``heard`` what
    :attr:`Gate.heard` was then. ``spoke_ms`` is what :attr:`Gate.passed_ms` was when it last said something of use.
    """

    newest: int
    lapsed: bool = False
    claims: int = 0
    claimed: int = 0
    heard: int = 0
    spoke_ms: int = 0


class Gate(msgspec.Struct):
    """Closes the ticks of one cell, in order, from the marks of its sources, each of which reports in order.

    ``lateness``, ``max_ahead``, ``grace`` and ``forget`` are in ticks: nothing closes before the newest source is
    ``grace`` ticks past the first, so that all have a chance to be known. ``front`` is the newest tick that was
    accepted, ``heard`` the number of messages that were; ``reported`` are the open ticks, in order, ``waiting`` the
    number of sources that the first of them waits for (below 0: to be counted), and ``whole`` the ticks that are
    closed and not taken yet. ``passed_ms`` is the log time that has passed, ``log_ms`` the newest that was told.

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
    forget: int = FORGET_TICKS
    closed: int = -1
    joined_until: int = -1
    front: int = -1
    heard: int = 0
    late: int = 0
    waiting: int = -1
    log_ms: int = UNKNOWN_MS
    passed_ms: int = 0
    reported: list[int] = []
    whole: list[Tick] = []
    sources: dict[str, Source] = {}

    def expect(self, names: Iterable[str]) -> None:
        """Wait for these sources from the first tick on, though they have not spoken yet."""
        for name in names:
            self.sources.setdefault(name, Source(self.closed))

    def arrive(self, name: str, index: int, log_ms: int = UNKNOWN_MS) -> Arrival:
        """Take note that ``name`` has reported tick ``index``; only ``ok`` messages may be used.

        ``log_ms`` is the message's log time in ms since the Unix epoch.
        """
        if log_ms < 0:
            return self._arrive(name, index)
        self._pass(log_ms)
        arrival = self._arrive(name, index)
        self._settle()
        return arrival

    def close(self) -> list[Tick]:
        """Ticks that have become whole, oldest first. Ticks that nobody reported do not exist."""
        self._settle()
        whole, self.whole = self.whole, []
        return whole

    def _arrive(self, name: str, index: int) -> Arrival:
        source = self.sources.get(name)
        if index == self.front > self.closed and source is not None and not source.lapsed and not source.claims:
            self.heard += 1  # nearly all messages
            source.spoke_ms = self.passed_ms
            if source.newest < self.reported[0] and self.waiting > 0:
                self.waiting -= 1
            source.newest = index
            return "ok"
        if source is None or self.front < 0:
            return self._join(name, index)
        if index <= self.closed:
            self.late += 1
            back = index < source.newest and index < self.closed - self.lateness
            if not (back and self._insists(source, index)):
                return "late"
            self._go_back(index)
        elif index > self.front + self.max_ahead and not self._insists(source, index):
            return "early"
        if source.lapsed:
            source.lapsed = False
            self.waiting = -1
        self._accept(source, index)
        return "ok"

    def _settle(self) -> None:
        """Close what is whole."""
        while self.reported:
            index = self.reported[0]
            if index <= self.joined_until and self.front < self.joined_until:
                return
            if self.waiting < 0:
                self.waiting = sum(s.newest < index and not s.lapsed for s in self.sources.values())
            if self.waiting and not self._gives_up(index):
                return
            self.whole.append(self._tick(index))
            del self.reported[0]
            self.closed, self.waiting = index, -1
            self._forget()

    def _gives_up(self, index: int) -> bool:
        """Give up sources that a tick has waited for too long; whether it waits for nobody now."""
        if self.log_ms < 0:
            if self.front < index + self.lateness:
                return False
            silent_since = self.passed_ms
        else:
            silent_since = self.passed_ms - self.lateness * self.period_ns // 1_000_000
            if silent_since < 0:
                return False
        for source in self.sources.values():
            if source.newest < index and not source.lapsed and source.spoke_ms <= silent_since:
                source.lapsed = True
                self.waiting -= 1
        return not self.waiting

    def _pass(self, log_ms: int) -> None:
        """Let log time pass; it never goes back, for producers' clocks are not quite the same."""
        if self.log_ms < 0:
            self.log_ms = log_ms
        elif log_ms > self.log_ms:
            self.passed_ms += min(log_ms - self.log_ms, PAUSE_MS)
            self.log_ms = log_ms

    def _tick(self, index: int) -> Tick:
        late, self.late = self.late, 0
        missing = sorted(name for name, s in self.sources.items() if s.newest < index and s.spoke_ms >= 0)
        return Tick(
            index=index,
            period_ns=self.period_ns,
            closed_by="watermark" if missing else "complete",
            missing=tuple(missing[:MISSING_NAMED]),
            late=late,
        )

    def _join(self, name: str, index: int) -> Arrival:
        if self.front < 0:
            # Who is first is chance: others may be behind, and are in time all the same.
            self.closed = max(self.closed, index - 1 - self.lateness)
            self.joined_until = index + self.grace
            self.front = index
            for expected in self.sources.values():
                expected.newest = self.closed
        elif index <= self.closed:
            self.late += 1
            self.sources[name] = Source(index, lapsed=True, spoke_ms=NEVER)
            return "late"
        elif index > self.front + self.max_ahead:
            stranger = Source(self.closed, lapsed=True, claims=1, claimed=index, heard=self.heard, spoke_ms=NEVER)
            self.sources[name] = stranger
            return "early"
        self.waiting = -1
        self._accept(self.sources.setdefault(name, Source(self.closed)), index)
        return "ok"

    def _accept(self, source: Source, index: int) -> None:
        if self.waiting > 0 and source.newest < self.reported[0] <= index:
            self.waiting -= 1
        source.newest, source.claims, source.spoke_ms = max(source.newest, index), 0, self.passed_ms
        at = bisect_left(self.reported, index)
        if at == len(self.reported) or self.reported[at] != index:
            self.reported.insert(at, index)
            if at == 0:
                self.waiting = -1
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
        self.whole += [self._tick(open) for open in self.reported]
        self.reported, self.waiting = [], -1
        self.closed, self.front, self.joined_until = index - 1, index, -1
        for source in self.sources.values():
            source.newest = min(source.newest, index - 1)

    def _forget(self) -> None:
        long_ago = self.closed - self.forget
        for name, source in [(n, s) for n, s in self.sources.items() if s.lapsed and s.newest < long_ago]:
            if source.claimed < long_ago:
                del self.sources[name]
            else:
                source.spoke_ms = NEVER  # it speaks, of another time
