"""Duplicates and gaps of the frames of one node, by ``(boot id, epoch, seq)``."""

from typing import Literal, Self

import msgspec

from flyball_contracts.frame import Frame

Verdict = Literal["new", "duplicate", "stale"]
WINDOW = 64
_SEEN = (1 << WINDOW) - 1
RUNS_KEPT = 8


class Sequence(msgspec.Struct):
    """Newest frame of a node, and which of the :data:`WINDOW` before it have been seen (bit i: ``seq - i``).

    ``first`` is the least ``seq`` whose absence counts as a gap: the lane may have joined the run late. ``past`` are
    earlier runs of the agent.
    """

    boot_id: str
    epoch: int
    seq: int
    time_ns: int
    seen: int = 1
    first: int = 0
    past: list[tuple[str, int]] = []

    @classmethod
    def of(cls, frame: Frame) -> Self:
        """Return the sequence of a node after its first frame."""
        return cls(frame.boot_id, frame.epoch, frame.seq, frame.time_ns, first=frame.seq)

    def accept(self, boot_id: str, epoch: int, seq: int, time_ns: int) -> tuple[Verdict, int]:
        """Verdict on one frame, and the change in the number of missing frames (negative: a missing one arrived).

        ``stale`` is a frame of an earlier run of the agent, or one older than the window.
        """
        if seq == self.seq + 1 and epoch == self.epoch and boot_id == self.boot_id:  # nearly all frames
            self.seen = self.seen << 1 & _SEEN | 1
            self.seq = seq
            if time_ns > self.time_ns:
                self.time_ns = time_ns
            return "new", 0
        if epoch != self.epoch or boot_id != self.boot_id:
            # Epochs rise with each start, but an agent may lose its count; its clock may have been set back.
            newer = epoch > self.epoch or time_ns > self.time_ns
            if not newer or (boot_id, epoch) in self.past:
                return "stale", 0
            self.past = [*self.past, (self.boot_id, self.epoch)][-RUNS_KEPT:]
            return self._start(boot_id, epoch, seq, time_ns)
        ahead = seq - self.seq
        if ahead > 0:
            self.seen = ((self.seen << ahead) | 1) & _SEEN if ahead < WINDOW else 1
            self.seq, self.time_ns = seq, max(time_ns, self.time_ns)
            return "new", ahead - 1
        if time_ns > self.time_ns:  # no frame is older by number and newer by time: the agent lost its count
            return self._start(boot_id, epoch, seq, time_ns)
        if -ahead >= WINDOW:
            return "stale", 0
        if self.seen >> -ahead & 1:
            return "duplicate", 0
        self.seen |= 1 << -ahead
        return "new", -1 if seq > self.first else 0

    def _start(self, boot_id: str, epoch: int, seq: int, time_ns: int) -> tuple[Verdict, int]:
        self.boot_id, self.epoch, self.seq, self.time_ns, self.seen = boot_id, epoch, seq, time_ns, 1
        self.first = -1  # runs count from 0
        return "new", seq
