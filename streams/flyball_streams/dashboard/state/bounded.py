"""A mapping of bounded size."""

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """The ``limit`` entries written last, or those with the latest times; ``evicted`` counts the dropped ones.

    ``time`` gives an entry's time, which counts as of its first write. Iteration is from the oldest write to the
    newest.
    """

    def __init__(self, limit: int, time: Callable[[V], int] | None = None) -> None:
        self.limit = limit
        self.evicted = 0
        self._entries: dict[K, V] = {}
        self._time = time
        self._times: list[tuple[int, int, K]] = []
        self._writes = 0

    def __setitem__(self, key: K, value: V) -> None:
        if self._time is not None and key not in self._entries:
            self._writes += 1  # keys need not have an order
            heappush(self._times, (self._time(value), self._writes, key))
        self._entries.pop(key, None)
        self._entries[key] = value
        if len(self._entries) > self.limit:
            del self._entries[heappop(self._times)[2] if self._time is not None else next(iter(self._entries))]
            self.evicted += 1

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def get(self, key: K) -> V | None:
        """Value of a key, or ``None``."""
        return self._entries.get(key)

    def ensure(self, key: K, make: Callable[[], V]) -> V:
        """Value of a key, made if it is missing."""
        if key not in self._entries:
            self[key] = make()
        return self._entries[key]

    def nth_newest(self, place: int) -> K | None:
        """The key that has this many newer keys; ``None`` if there are too few keys."""
        return next(islice(reversed(self._entries), place, None), None)

    def pop(self, key: K) -> None:
        """Remove a key if present."""
        if self._entries.pop(key, None) is not None and self._time is not None:
            self._times = [entry for entry in self._times if entry[2] != key]
            heapify(self._times)

    def values(self) -> list[V]:
        """Values from the oldest write to the newest."""
        return list(self._entries.values())

    def items(self) -> list[tuple[K, V]]:
        """Entries from the oldest write to the newest."""
        return list(self._entries.items())

    def newest(self) -> list[V]:
        """Values from the newest write to the oldest."""
        return list(reversed(self._entries.values()))
