"""A history of everything since its first entry, in bounded memory."""

from bisect import bisect_right
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")
_RECENT = 32


class Thinned(Generic[T]):
    """Values by time: at most ``limit``, and the most recent ones in addition.

    When it is full, every second entry is dropped and the distance between later entries doubles: the older the
    history, the coarser. Times need not come in order; a repeated time replaces its value.
    """

    def __init__(self, limit: int = 240) -> None:
        self._limit = limit
        self._step_ns = 0
        self._kept: dict[int, T] = {}
        self._recent: deque[tuple[int, T]] = deque(maxlen=_RECENT)

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, time_ns: int, value: T) -> None:
        """Add a value; one too close to the last kept one is kept among the recent ones only."""
        if not self._recent or time_ns >= self._recent[-1][0]:
            self._recent.append((time_ns, value))
        last = next(reversed(self._kept), None)
        if time_ns in self._kept or last is None or time_ns - last >= self._step_ns:
            self._kept[time_ns] = value
        if last is not None and time_ns < last:
            self._kept = dict(sorted(self._kept.items()))
        if len(self._kept) > self._limit:
            times = list(self._kept)
            for time in times[1::2]:
                del self._kept[time]
            self._step_ns = 2 * max(self._step_ns, (times[-1] - times[0]) // len(times))

    def items(self) -> list[tuple[int, T]]:
        """All values by time."""
        return sorted({**self._kept, **dict(self._recent)}.items())

    def latest(self) -> T | None:
        """The value at the newest time."""
        return self._recent[-1][1] if self._recent else None

    def at(self, time_ns: int) -> T | None:
        """The newest value at or before a time."""
        known = self.items()
        place = bisect_right(known, time_ns, key=lambda entry: entry[0])
        return known[place - 1][1] if place else None
