"""Progress of each partition of the decisions, and the offsets that may be committed."""


class Progress:
    """Offsets by partition that were read and have no final outcome yet."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self._open: dict[int, dict[int, None]] = {}
        self._committed: dict[int, int] = {}

    def read(self, partition: int, offset: int) -> None:
        """Note a message that was read; messages of a partition come in order."""
        self._next[partition] = offset + 1
        self._open.setdefault(partition, {})[offset] = None
        self._committed.setdefault(partition, offset)

    def done(self, partition: int, offset: int) -> None:
        """Note that the final outcome of a message is written; does nothing for a partition that was given up."""
        self._open.get(partition, {}).pop(offset, None)

    def span(self, partition: int) -> int:
        """Number of offsets between the committable one and the next to read."""
        return self._next.get(partition, 0) - self.commit_to().get(partition, 0)

    def commit_to(self) -> dict[int, int]:
        """Offset to which each partition may be committed: its first message without a final outcome."""
        return {p: next(iter(self._open.get(p, {})), end) for p, end in self._next.items()}

    def ahead(self) -> bool:
        """Whether more may be committed than has been."""
        return any(self._committed.get(p, -1) < offset for p, offset in self.commit_to().items())

    def committed(self, partition: int, offset: int) -> None:
        """Note an accepted commit."""
        if partition in self._next:
            self._committed[partition] = max(offset, self._committed.get(partition, 0))

    def position(self) -> dict[int, int]:
        """Offset of the next message of each partition."""
        return dict(self._next)

    def forget(self, partition: int) -> None:
        """Drop a partition that another process now owns."""
        for table in (self._next, self._open, self._committed):
            table.pop(partition, None)
