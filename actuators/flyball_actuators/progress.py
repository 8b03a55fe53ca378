"""How far each partition of the decisions is worked off, and how far its offsets may be committed."""


class Progress:
    """Offsets that were read and have not had their last word yet, by partition."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self._open: dict[int, dict[int, None]] = {}
        self._committed: dict[int, int] = {}

    def read(self, partition: int, offset: int) -> None:
        """A message was read; messages of a partition come in order."""
        self._next[partition] = offset + 1
        self._open.setdefault(partition, {})[offset] = None
        self._committed.setdefault(partition, offset)

    def done(self, partition: int, offset: int) -> None:
        """Its last word is written; false memory of a partition given up meanwhile does nothing."""
        self._open.get(partition, {}).pop(offset, None)

    def unsettled(self, partition: int) -> int:
        """How many messages wait for their last word."""
        return len(self._open.get(partition, {}))

    def span(self, partition: int) -> int:
        """How many offsets lie between what may be committed and what was read."""
        return self._next.get(partition, 0) - self.commit_to().get(partition, 0)

    def commit_to(self) -> dict[int, int]:
        """Offset that each partition may be committed to: of the first message without a last word."""
        return {p: next(iter(self._open.get(p, {})), end) for p, end in self._next.items()}

    def ahead(self) -> bool:
        """Whether more may be committed than is."""
        return any(self._committed.get(p, -1) < offset for p, offset in self.commit_to().items())

    def committed(self, partition: int, offset: int) -> None:
        """The broker has taken a commit."""
        if partition in self._next:
            self._committed[partition] = max(offset, self._committed.get(partition, 0))

    def position(self) -> dict[int, int]:
        """Offset of the next message of each partition."""
        return dict(self._next)

    def forget(self, partition: int) -> None:
        """A partition is another's now."""
        for table in (self._next, self._open, self._committed):
            table.pop(partition, None)
