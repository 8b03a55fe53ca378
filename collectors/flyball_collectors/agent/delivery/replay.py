"""Replay of the spool: which records are in flight to Kafka, and which have arrived."""

from collections.abc import Iterator

from flyball_collectors.spool import Record, Spool

_WINDOW = 500  # records on their way; also the most in a tick, so that a fleet whose Kafka is back does not flood it


class Replay:
    """Records in flight, at most ``window_bytes`` of them; the spool drops only records that have arrived, in order.

    Reports of records that are not in flight are ignored.
    """

    def __init__(self, spool: Spool, window_bytes: int) -> None:
        self._spool = spool
        self._window_bytes = window_bytes
        self._under_way: dict[int, int] = {}  # bytes by id
        self._bytes = 0
        self._arrived: set[int] = set()

    def due(self, window: int = _WINDOW) -> Iterator[Record]:
        """Records to send now, oldest first; call :meth:`sent` for each that was queued."""
        for record in self._spool.peek(window):
            if record.id in self._under_way or record.id in self._arrived:
                continue
            if self._under_way and self._bytes + len(record.payload) > self._window_bytes:
                return
            yield record

    def probe(self) -> Iterator[Record]:
        """One record to test whether a broker responds, if none is in flight."""
        if not self._under_way:
            yield from self.due(1)

    def sent(self, record: Record) -> None:
        """Note that ``record`` is in flight."""
        self._under_way[record.id] = len(record.payload)
        self._bytes += len(record.payload)

    def failed(self, id: int) -> None:
        """Note that a record did not arrive: it is due again."""
        self._bytes -= self._under_way.pop(id, 0)

    def restart(self) -> int:
        """Note that no report comes any more for the records in flight: they are due again; return their number."""
        count = len(self._under_way)
        self._under_way.clear()
        self._bytes = 0
        return count

    def arrived(self, id: int) -> bool:
        """Note that a record arrived, or never will; return whether it was in flight."""
        if id not in self._under_way:
            return False
        self.failed(id)
        self._arrived.add(id)
        last = None
        for record in self._spool.peek(len(self._arrived)):
            if record.id not in self._arrived:
                break
            last = record.id
        if last is not None:
            self._spool.ack(last)
            self._arrived = {id for id in self._arrived if id > last}
        return True
