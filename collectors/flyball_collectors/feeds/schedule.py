"""Poll times and counts of one feed; pure except for the arguments."""

from collections.abc import Callable
from dataclasses import dataclass

from flyball_collectors.feeds.base import FeedError
from flyball_contracts.ids import NS_PER_S

RETRY_S = 5.0
RETRY_CAP_S = 900.0
"""The n-th wait after a failure is random, at most ``RETRY_S * 2**n`` and at most this."""
_MOST_DOUBLINGS = 30


@dataclass
class FeedCounts:
    """Counts of one feed in a run.

    ``polls`` ended in a response or ``failed``; of the curves received, ``sent`` were new, ``unchanged`` were not, and
    ``older`` were issued before one that was sent. ``stale`` counts how often the feed became stale, ``left_out`` the
    values that are in no curve.
    """

    polls: int = 0
    failed: int = 0
    sent: int = 0
    unchanged: int = 0
    older: int = 0
    stale: int = 0
    left_out: int = 0


class Schedule:
    """Due times of one feed on a monotonic clock, at first at once.

    ``random`` gives numbers in 0..1 for full jitter (Brooker, "Exponential Backoff And Jitter", AWS, 2015).
    """

    def __init__(self, period_s: float, random: Callable[[], float], now_ns: int) -> None:
        self.due_ns = now_ns
        self.failures = 0
        self._period_s = period_s
        self._random = random

    def succeeded(self, now_ns: int) -> None:
        """Poll again after a period; missed periods are skipped."""
        self.failures = 0
        period_ns = round(self._period_s * NS_PER_S)
        self.due_ns = max(self.due_ns + period_ns, now_ns + period_ns // 2)

    def failed(self, error: FeedError, now_ns: int) -> float:
        """Back off; return the seconds until the next poll."""
        self.failures += 1
        bound_s = min(RETRY_S * 2.0 ** min(self.failures, _MOST_DOUBLINGS), RETRY_CAP_S)
        wait_s = max(self._random() * bound_s, error.retry_after_s)
        if error.lasting:
            wait_s = max(wait_s, self._period_s)
        self.due_ns = now_ns + round(wait_s * NS_PER_S)
        return wait_s


class Freshness:
    """Whether a feed has had no newer curve for too long, in wall time.

    ``now_ns`` is the start of the feed: before its first curve it counts from there.
    """

    def __init__(self, stale_after_s: float | None, now_ns: int) -> None:
        self.stale = False
        self._after_s = stale_after_s
        self._issued_ns = now_ns

    def saw(self, issued_ns: int, *, first: bool) -> None:
        """Note when a curve was issued."""
        self._issued_ns = issued_ns if first else max(self._issued_ns, issued_ns)

    def age_s(self, now_ns: int) -> float:
        """Seconds since the newest curve was issued."""
        return (now_ns - self._issued_ns) / NS_PER_S

    def check(self, now_ns: int) -> bool | None:
        """``True`` when the feed has just become stale, ``False`` when it has just recovered, else ``None``."""
        stale = self._after_s is not None and self.age_s(now_ns) > self._after_s
        if stale == self.stale:
            return None
        self.stale = stale
        return stale
