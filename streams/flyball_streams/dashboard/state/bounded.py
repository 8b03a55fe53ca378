"""A mapping of bounded size."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """The ``limit`` entries written last; ``evicted`` counts the dropped ones.

    Iteration is from the oldest write to the newest.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.evicted = 0
        self._entries: dict[K, V] = {}

    def __setitem__(self, key: K, value: V) -> None:
        self._entries.pop(key, None)
        self._entries[key] = value
        if len(self._entries) > self.limit:
            del self._entries[next(iter(self._entries))]
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
        self._entries.pop(key, None)

    def values(self) -> list[V]:
        """Values from the oldest write to the newest."""
        return list(self._entries.values())

    def items(self) -> list[tuple[K, V]]:
        """Entries from the oldest write to the newest."""
        return list(self._entries.items())

    def newest(self) -> list[V]:
        """Values from the newest write to the oldest."""
        return list(reversed(self._entries.values()))
