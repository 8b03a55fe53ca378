"""How long this process may be sure that its partitions are its own.

A process that was stopped for longer than its session has been replaced without knowing it. The broker takes a commit
only of a member of the group's present generation, and gives partitions to nobody else until the member was silent for
a session. So from the moment at which an accepted commit was *sent*, for a session less a margin, nobody else owns
them. The clock is one that goes on while the machine sleeps.

Where partitions are added to the decisions, a cell may get another one, and with it another owner, while the one before
still acts. So the proof also runs out :data:`TOPICS_S` after the topics were last seen to be the same, and who begins
with more partitions than the group had stands back for :data:`STAND_BACK_S`, which is longer.
"""

import math
import time
from collections import deque
from collections.abc import Callable

MARGIN = 0.3
TOPICS_S = 6.0
STAND_BACK_S = 10.0


def boot_s() -> float:
    """Seconds since the machine was started, with the time that it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lease:
    """Proof of membership that runs out; ``session_s`` is the group's session time-out."""

    def __init__(self, session_s: float, clock: Callable[[], float] = boot_s) -> None:
        self.length_s = session_s * (1.0 - MARGIN)
        self._clock = clock
        self._until_s = -1.0
        self._topics_until_s = math.inf  # until somebody looks at them
        self._asked_s: deque[float] = deque()

    def valid(self) -> bool:
        """Whether nobody else can have the partitions now."""
        return self._clock() < min(self._until_s, self._topics_until_s)

    def topics_seen(self, asked_s: float) -> None:
        """The topics are as they were when this began; they were asked about at ``asked_s``. Any thread may call."""
        self._topics_until_s = asked_s + TOPICS_S

    def due(self) -> bool:
        """Whether it is time for another proof: after a third of its length, and seldom while one is under way."""
        now_s = self._clock()
        if self._asked_s:
            return now_s >= self._asked_s[-1] + self.length_s
        return now_s >= self._until_s - self.length_s * 2 / 3

    @property
    def asking(self) -> bool:
        """Whether a commit is under way."""
        return bool(self._asked_s)

    def asked(self) -> None:
        """A commit is being sent."""
        self._asked_s.append(self._clock())

    def answered(self, accepted: bool) -> None:
        """The broker has answered the oldest commit that is under way."""
        if self._asked_s:
            asked_s = self._asked_s.popleft()
            if accepted:
                self._until_s = max(self._until_s, asked_s + self.length_s)

    def lost(self) -> None:
        """The partitions were taken away."""
        self._until_s = -1.0
