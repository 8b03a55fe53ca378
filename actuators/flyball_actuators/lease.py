"""How long this process may assume that its partitions are its own.

A process that was suspended for longer than its session has been replaced without knowing. The broker accepts a commit
only from a member of the group's present generation, and reassigns partitions only after the member was silent for a
session. So for one session, less a margin, from when an accepted commit was *sent*, no other process owns them. The
clock also runs while the machine is suspended.

When partitions are added to the decisions, a cell may move to another partition and owner while the former owner still
acts. So the lease also ends :data:`TOPICS_S` after the topics were last seen unchanged, and an actuator that starts
with more partitions than the group had waits for :data:`STAND_BACK_S`, which is longer.
"""

import math
import time
from collections import deque
from collections.abc import Callable

MARGIN = 0.3
TOPICS_S = 6.0
STAND_BACK_S = 10.0


def boot_s() -> float:
    """Seconds since the machine started, including time suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lease:
    """Time-limited proof of group membership; ``session_s`` is the group's session timeout."""

    def __init__(self, session_s: float, clock: Callable[[], float] = boot_s) -> None:
        self.length_s = session_s * (1.0 - MARGIN)
        self._clock = clock
        self._until_s = -1.0
        self._topics_until_s = math.inf  # until they are first described
        self._sent_s: deque[float] = deque()

    def valid(self) -> bool:
        """Whether it is certain that no other process owns the partitions now."""
        return self._clock() < min(self._until_s, self._topics_until_s)

    def topics_seen(self, sent_s: float) -> None:
        """Note that the topics were unchanged when requested at ``sent_s``; thread-safe."""
        self._topics_until_s = sent_s + TOPICS_S

    def due(self) -> bool:
        """Whether a commit is due: after a third of the lease, and rarely while one is pending."""
        now_s = self._clock()
        if self._sent_s:
            return now_s >= self._sent_s[-1] + self.length_s
        return now_s >= self._until_s - self.length_s * 2 / 3

    @property
    def commit_pending(self) -> bool:
        """Whether a commit has no answer yet."""
        return bool(self._sent_s)

    def commit_sent(self) -> None:
        """Note that a commit is being sent."""
        self._sent_s.append(self._clock())

    def commit_answered(self, accepted: bool) -> None:
        """Note the broker's answer to the oldest pending commit."""
        if self._sent_s:
            sent_s = self._sent_s.popleft()
            if accepted:
                self._until_s = max(self._until_s, sent_s + self.length_s)

    def lost(self) -> None:
        """Note that the partitions were taken away."""
        self._until_s = -1.0
