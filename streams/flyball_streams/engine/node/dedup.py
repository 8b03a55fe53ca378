"""Duplicates and gaps of the frames of one node, by ``(boot id, epoch, seq)``."""

from typing import Literal

import msgspec

Verdict = Literal["new", "duplicate", "stale"]
WINDOW = 64


class Sequence(msgspec.Struct):
    """Newest frame of a node, and which of the :data:`WINDOW` before it have been seen (bit i: ``seq - i``)."""

    boot_id: str
    epoch: int
    seq: int
    time_ns: int
    seen: int = 1

    def accept(self, boot_id: str, epoch: int, seq: int, time_ns: int) -> tuple[Verdict, int]:
        """Judge one frame; the number is how many frames are newly known to be missing (negative: one turned up).

        ``stale`` is a frame of an agent run that has been replaced.
        """
        if (boot_id, epoch) != (self.boot_id, self.epoch):
            if epoch < self.epoch or time_ns < self.time_ns:
                return "stale", 0
            self.boot_id, self.epoch, self.seq, self.time_ns, self.seen = boot_id, epoch, seq, time_ns, 1
            return "new", 0
        ahead = seq - self.seq
        if ahead > 0:
            self.seen = ((self.seen << ahead) | 1) & ((1 << WINDOW) - 1) if ahead < WINDOW else 1
            self.seq, self.time_ns = seq, max(time_ns, self.time_ns)
            return "new", ahead - 1
        if -ahead >= WINDOW or self.seen >> -ahead & 1:
            return "duplicate", 0
        self.seen |= 1 << -ahead
        return "new", -1
