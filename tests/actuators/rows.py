"""Rows of the table of what platforms promise, from what the topics say that was done."""

from tests.actuators.loop import outcomes, read_all

from flyball_actuators.execution.effect import difference
from flyball_actuators.platforms.table import DRIVERS
from flyball_cli.platforms.observed import Row, rows
from flyball_cli.platforms.shown import HEADER as HEADER, cells
from flyball_contracts.codec import decode_message
from flyball_contracts.records import Migrate, Outcome, Preempt, Scale
from flyball_contracts.topics import DECISIONS

SEEN: dict[str, tuple[list[Scale | Migrate | Preempt], list[Outcome]]] = {}
"""Decisions and outcomes of this run, by driver; its table is printed at the end."""


def observed_row(bootstrap: str, driver: str) -> Row:
    """The row of a driver by what a broker's topics say, which must hold what it promises."""
    sent = [decode_message(DECISIONS.name, value, headers) for value, headers in read_all(bootstrap, DECISIONS.name)]
    decisions = [one for one in sent if isinstance(one, Scale | Migrate | Preempt)]
    found = outcomes(bootstrap)
    row, can = rows(decisions, found)[driver], DRIVERS[driver]
    assert row.verbs.keys() <= can.kinds, row
    otherwise = [difference(one.expected, one.observed) for one in found if one.status == "done" and one.observed]
    assert row.effect[0] == row.effect[1], (row, otherwise)
    assert row.effect[1] if can.kinds else row.planned, row  # one that only plans is seen to plan
    if can.promises.gang:
        assert row.gang[0] == row.gang[1], row
    before = SEEN.setdefault(driver, ([], []))
    before[0].extend(decisions)
    before[1].extend(found)
    return row


def table() -> list[tuple[str, ...]]:
    """What was seen in this run, row by row."""
    return [
        cells(driver, DRIVERS[driver], rows(decisions, found).get(driver), observed=True)
        for driver, (decisions, found) in SEEN.items()
    ]
