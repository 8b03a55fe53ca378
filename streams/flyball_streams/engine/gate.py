"""Watermarks: when an event-time tick is complete.

A tick closes when every known source has reported it, or when it has waited in vain for the others: these are
*abandoned*. Three constants determine how long a tick waits for a source:

- ``lateness``, in ticks: the wait for a silent source. Nodes send as they measure, so a node is abandoned when the
  newest source is so many ticks past the tick. A lane may read a backlog, and then it still publishes everything, only
  later: it is abandoned when it was silent for so many ticks of *log time*, however far ahead the others are.
- ``PATIENCE_MS``, in log time: the longest wait for a lane while a backlog is read. When workers come back after
  minutes without any, some lanes publish their whole backlog before the others have started. So a tick that was behind
  when it first arrived waits for silent lanes as long as it was behind, if that is longer than ``lateness``, and no
  longer than this. A tick is behind by as much as its age in log time exceeds the least age of all ticks before it, in
  this hour of log time and the last: clocks that differ, or an event time that runs faster than log time, do not put a
  tick behind.
- ``confirm``, in messages: the wait for any source while one reports another time, ahead of all others or behind its
  own past. The other time counts after so many messages in a row, and as many again for each other source that ticks
  wait for and that does not agree, if no message of the old time is accepted meanwhile. Then time jumps; if it goes
  back, ticks that are open close first. So one wrong clock moves no cell, and a cell that was off for long goes on in
  the new time even if some of its nodes never return. With log time, it goes back only after ``lateness`` ticks of it:
  a lane that is restored from an old snapshot publishes the same ticks again.

A tick that closes without a known source names it as missing, and so do later ticks, until the source reports again or
is forgotten; no tick waits for it meanwhile. A message for a closed tick is *late*; one far ahead of all other sources
is *early*: its clock is wrong.

Log time is the timestamp of messages in the log (Kafka's ``CreateTime``), so it advances only with messages, and a
pause of all sources counts as a tick or a second at most, whichever is longer. If messages have no log time, ticks wait
for lanes in the same way as for nodes.

Nothing here reads a clock: time advances only with the data. With log time, ticks close message by message, so a log
that is read again in other batches closes the same ticks with the same messages in them. Frames of nodes have no such
order among each other: their ticks close between two batches.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Literal

import msgspec

from flyball_contracts.records import Tick

Arrival = Literal["ok", "late", "early"]
STAGGER = 3
"""Ticks of grace that each later stage adds: its first messages come in one burst from the stage before."""
MISSING_NAMED = 16
FORGET_TICKS = 3600
"""A source that was silent for this many ticks is forgotten, so that state does not grow with every node ever seen."""
PAUSE_MS = 1000
"""Most log time in ms that a pause of all sources counts for, unless ticks are longer."""
UNKNOWN_MS = -1
"""Log time of a message without a timestamp."""
PATIENCE_MS = 600_000
"""See above."""
AGES_MS = 3_600_000
"""Log time in ms after which a least age is replaced by the least since then."""
NO_AGE_MS = 1 << 62
LOG_APART_MS, LOG_CONFIRM = 120_000, 64
"""Log time goes back after ``LOG_CONFIRM`` consecutive messages that are more than ``LOG_APART_MS`` behind it, which is
longer than a retry can delay a message: the source that was ahead had a wrong clock, and has left or was corrected."""

NEVER = -1
"""``last_seen_ms`` of a source without an accepted message: it is not reported as missing."""


class Source(msgspec.Struct):
    """Newest tick of one source; ``abandoned`` while no tick waits for it.

    ``rejections`` counts its consecutive rejected messages. ``rejected_tick`` is the tick of the last of them, and
    ``accepted`` the value of :attr:`Gate.accepted` at that time; ``rejected_since_ms`` is the value of
    :attr:`Gate.log_elapsed_ms` at the first of them, and ``last_seen_ms`` its value at the last accepted message.
    """

    newest: int
    abandoned: bool = False
    rejections: int = 0
    rejected_tick: int = 0
    accepted: int = 0
    last_seen_ms: int = 0
    rejected_since_ms: int = 0


class Gate(msgspec.Struct):
    """Closes the ticks of one cell, in order; each of its sources reports in order.

    ``lateness`` and ``confirm`` are described above. ``max_ahead`` is how far ahead of all others a message may be,
    ``forget`` after how long an abandoned source is forgotten, both in ticks, as is ``grace``: no tick closes before
    the newest source is ``grace`` ticks past the first, so that all sources can become known. ``front`` is the newest
    accepted tick, ``accepted`` the number of accepted messages. ``reported`` are the open ticks, in order, ``waiting``
    is the number of sources that the first of them waits for (negative: to be counted), and ``closed_ticks`` are closed
    ticks that :meth:`close` has not returned yet. ``log_elapsed_ms`` is the elapsed log time, ``log_ms`` the newest log
    time, and ``log_back`` the number of messages in a row that were far behind it. ``behind_ms`` is by how much each of
    the ``reported`` ticks was behind when it first arrived, in ms of log time; ``least_ages_ms`` are the least ages of
    ticks in the hour of log time that began at ``ages_since_ms``, and in the hour before.
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
    accepted: int = 0
    late: int = 0
    waiting: int = -1
    log_ms: int = UNKNOWN_MS
    log_elapsed_ms: int = 0
    log_back: int = 0
    reported: list[int] = []
    behind_ms: list[int] = []
    least_ages_ms: tuple[int, int] = (NO_AGE_MS, NO_AGE_MS)
    ages_since_ms: int = 0
    closed_ticks: list[Tick] = []
    sources: dict[str, Source] = {}

    def expect(self, names: Iterable[str]) -> None:
        """Wait for these sources from the first tick on, before their first message."""
        for name in names:
            self.sources.setdefault(name, Source(self.closed))

    def arrive(self, name: str, index: int, log_ms: int = UNKNOWN_MS) -> Arrival:
        """Note that source ``name`` has reported tick ``index``; only ``ok`` messages may be used.

        ``log_ms`` is the message's log time in ms since the Unix epoch.
        """
        if log_ms < 0:
            return self._arrive(name, index)
        self._advance_log_time(log_ms)
        arrival = self._arrive(name, index)
        self._settle()
        return arrival

    def close(self) -> list[Tick]:
        """Return the ticks that have closed, oldest first; ticks without any report do not exist."""
        self._settle()
        closed_ticks, self.closed_ticks = self.closed_ticks, []
        return closed_ticks

    def _arrive(self, name: str, index: int) -> Arrival:
        source = self.sources.get(name)
        if index == self.front > self.closed and source is not None and not source.abandoned and not source.rejections:
            self.accepted += 1  # nearly all messages
            source.last_seen_ms = self.log_elapsed_ms
            if source.newest < self.reported[0] and self.waiting > 0:
                self.waiting -= 1
            source.newest = index
            return "ok"
        if source is None or self.front < 0:
            return self._join(name, index)
        if index <= self.closed:
            self.late += 1
            goes_back = index < source.newest and index < self.closed - self.lateness
            if not (goes_back and self._is_persistent(source, index) and self._is_no_repetition(source)):
                if source.abandoned and index > self.closed - self.lateness:  # it is back: the next tick waits for it
                    source.abandoned, source.last_seen_ms, self.waiting = False, self.log_elapsed_ms, -1
                    source.newest = max(source.newest, index)
                return "late"
            self._rewind(index)
        elif index > self.front + self.max_ahead and not self._is_persistent(source, index):
            return "early"
        if source.abandoned:
            source.abandoned = False
            self.waiting = -1
        self._accept(source, index)
        return "ok"

    def _settle(self) -> None:
        """Close complete ticks."""
        while self.reported:
            index = self.reported[0]
            if index <= self.joined_until and self.front < self.joined_until:
                return
            if self.waiting < 0:
                self.waiting = len([s for s in self.sources.values() if s.newest < index and not s.abandoned])
            if self.waiting and not self._abandon_late(index):
                return
            self.closed_ticks.append(self._tick(index))
            del self.reported[0], self.behind_ms[0]
            self.closed, self.waiting = index, -1
            self._forget()

    def _abandon_late(self, index: int) -> bool:
        """Abandon sources that a tick has waited for too long; return whether it waits for none now."""
        if self.log_ms < 0:
            if self.front < index + self.lateness:
                return False
            silent_since_ms = self.log_elapsed_ms
        else:
            patience_ms = max(self.lateness * self.period_ns // 1_000_000, min(self.behind_ms[0], PATIENCE_MS))
            silent_since_ms = self.log_elapsed_ms - patience_ms
            if silent_since_ms < 0:
                return False
        for source in self.sources.values():
            if source.newest < index and not source.abandoned and source.last_seen_ms <= silent_since_ms:
                source.abandoned = True
                self.waiting -= 1
        return not self.waiting

    def _advance_log_time(self, log_ms: int) -> None:
        """Advance log time; as producers' clocks differ slightly, only many messages in a row set it back."""
        self.log_back = self.log_back + 1 if log_ms < self.log_ms - LOG_APART_MS else 0
        if self.log_ms < 0:
            self.log_ms = log_ms
        elif self.log_back == LOG_CONFIRM:
            self.log_ms, self.log_back = log_ms, 0
            self.behind_ms = [0] * len(self.behind_ms)  # they were measured with the wrong time
        elif log_ms > self.log_ms:
            self.log_elapsed_ms += min(log_ms - self.log_ms, max(PAUSE_MS, self.period_ns // 1_000_000))
            self.log_ms = log_ms

    def _behind_by_ms(self, index: int) -> int:
        """By how much a tick that arrives now is behind, in ms of log time; notes its age among the least."""
        if self.log_ms < 0:
            return 0
        if self.log_elapsed_ms - self.ages_since_ms >= AGES_MS:
            self.least_ages_ms, self.ages_since_ms = (NO_AGE_MS, self.least_ages_ms[0]), self.log_elapsed_ms
        age_ms = self.log_ms - index * self.period_ns // 1_000_000
        least, before = self.least_ages_ms
        self.least_ages_ms = (min(least, age_ms), before)
        return max(0, age_ms - min(least, before))

    def _tick(self, index: int) -> Tick:
        late, self.late = self.late, 0
        missing = sorted([name for name, s in self.sources.items() if s.newest < index and s.last_seen_ms >= 0])
        return Tick(
            index=index,
            period_ns=self.period_ns,
            closed_by="watermark" if missing else "complete",
            missing=tuple(missing[:MISSING_NAMED]),
            late=late,
        )

    def _join(self, name: str, index: int) -> Arrival:
        if self.front < 0:
            # Which source is first is chance: others that are behind are still in time.
            self.closed = max(self.closed, index - 1 - self.lateness)
            self.joined_until = index + self.grace
            self.front = index
            for expected in self.sources.values():
                expected.newest = self.closed
        elif index <= self.closed:
            self.late += 1
            self.sources[name] = Source(index, abandoned=True, last_seen_ms=NEVER)
            return "late"
        elif index > self.front + self.max_ahead:
            unknown = Source(
                self.closed,
                abandoned=True,
                rejections=1,
                rejected_tick=index,
                accepted=self.accepted,
                last_seen_ms=NEVER,
            )
            self.sources[name] = unknown
            return "early"
        self.waiting = -1
        self._accept(self.sources.setdefault(name, Source(self.closed)), index)
        return "ok"

    def _accept(self, source: Source, index: int) -> None:
        if self.waiting > 0 and source.newest < self.reported[0] <= index:
            self.waiting -= 1
        source.newest, source.rejections, source.last_seen_ms = max(source.newest, index), 0, self.log_elapsed_ms
        at = bisect_left(self.reported, index)
        if at == len(self.reported) or self.reported[at] != index:
            self.reported.insert(at, index)
            self.behind_ms.insert(at, self._behind_by_ms(index))
            if at == 0:
                self.waiting = -1
        self.front = max(self.front, index)
        self.accepted += 1

    def _is_persistent(self, source: Source, index: int) -> bool:
        """Count a rejected message; return whether its source has persisted long enough to be accepted."""
        repeated = source.accepted == self.accepted and 0 <= index - source.rejected_tick <= self.max_ahead
        source.rejections = source.rejections + 1 if repeated else 1
        if not repeated:
            source.rejected_since_ms = self.log_elapsed_ms
        source.rejected_tick, source.accepted = index, self.accepted
        if source.rejections < self.confirm:
            return False
        disagreeing = sum(
            not (s.rejections and s.accepted == self.accepted and abs(s.rejected_tick - index) <= self.max_ahead)
            for s in self.sources.values()
            if not s.abandoned and s is not source
        )
        return source.rejections >= self.confirm * (1 + disagreeing)

    def _is_no_repetition(self, source: Source) -> bool:
        """Whether a source has gone back for longer than a restored lane takes to repeat what it had published."""
        lasted_ms = self.log_elapsed_ms - source.rejected_since_ms
        return self.log_ms < 0 or lasted_ms >= self.lateness * self.period_ns // 1_000_000

    def _rewind(self, index: int) -> None:
        self.closed_ticks += [self._tick(open) for open in self.reported]
        self.reported, self.behind_ms, self.waiting = [], [], -1
        self.least_ages_ms = (NO_AGE_MS, NO_AGE_MS)
        self.closed, self.front, self.joined_until = index - 1, index, -1
        for source in self.sources.values():
            source.newest = min(source.newest, index - 1)

    def _forget(self) -> None:
        long_ago = self.closed - self.forget
        for name, source in [(n, s) for n, s in self.sources.items() if s.abandoned and s.newest < long_ago]:
            if source.rejected_tick < long_ago:
                del self.sources[name]
            else:
                source.last_seen_ms = NEVER  # it still sends, but reports another time
