"""Rows of a table on one screen: the first and the last, and how many are between them."""

from collections.abc import Iterable
from itertools import islice

from rich.console import RenderableType
from rich.table import Table

EDGE = 8
"""Rows at each end of a long table."""
Row = tuple[RenderableType, ...]


def fill(table: Table, rows: Iterable[Row]) -> Table:
    """Add rows to a table; of more than twice :data:`EDGE` those at the ends, with a note between."""
    every = [*rows]
    ends = every if len(every) <= 2 * EDGE else [*islice(every, EDGE), _between(table, len(every)), *every[-EDGE:]]
    for row in ends:
        table.add_row(*row)
    return table


def _between(table: Table, count: int) -> Row:
    note = f"... {count - 2 * EDGE} more, see --json"
    return (note, *("" for _ in table.columns[1:]))
