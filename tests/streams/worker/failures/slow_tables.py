"""A worker's app whose tables take long to be read; it notes fetches, refreshes and steps in their order.

Usage: slow_tables.py CONFIG NOTES KIND, where KIND is ``embedded`` or ``kafka``.
"""

import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, cast

from tests.streams.worker.noting import Noting, run

from flyball_streams.worker.app import Worker
from flyball_streams.worker.fetch import Fetched

REFRESH_S = 0.3


class SlowTables(Noting):
    def refresh_tables(self) -> None:
        self.note({"refresh": "began"})
        time.sleep(REFRESH_S)
        self.note({"refresh": "ended"})

    def note_fetches(self, worker: Worker) -> None:
        fetch: Any = cast(Any, worker.app.transport).fetch
        take: Callable[[Callable[[], object]], Fetched] = fetch.take
        number = count()

        def noted_take(on_taken: Callable[[], object]) -> Fetched:
            fetch_number = next(number)

            def noted_on_taken() -> None:
                self.note({"fetch": fetch_number})
                on_taken()

            fetched = take(noted_on_taken)
            for tp, batch in fetched.batches.items():
                offsets = [m.offset for m in batch]
                self.note({"of_fetch": fetch_number, "place": [tp.topic, tp.partition], "fetched": offsets})
            return fetched

        fetch.take = noted_take


if __name__ == "__main__":
    path, notes, kind = sys.argv[1:]
    lanes = SlowTables(Path(notes), {})
    run(lanes, path, kind, lanes.note_fetches)
