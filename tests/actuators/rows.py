"""Rows of the table of what platforms promise, from what the topics say that was done.

With ``$FLYBALL_PLATFORMS_SEEN`` each test leaves what it saw in that folder, for the table of a whole run:
``python -m tests.actuators.rows FOLDER`` prints it, and fails where a promise was never seen.
"""

import os
import sys
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from tests.actuators.loop import outcomes, read_all

from flyball_actuators.execution.effect import difference
from flyball_actuators.platforms.base import Capabilities
from flyball_actuators.platforms.table import DRIVERS
from flyball_cli.platforms.observed import Row, rows
from flyball_cli.platforms.shown import HEADER as HEADER, entries
from flyball_contracts.codec import decode_message
from flyball_contracts.records import AnyDecision, Check, Migrate, Outcome, Preempt, Scale
from flyball_contracts.topics import DECISIONS

FOLDER_VARIABLE = "FLYBALL_PLATFORMS_SEEN"
NEEDS: Mapping[str, tuple[str, ...]] = {
    "kubernetes": ("FLYBALL_CONTROLPLANE",),
    "autoscaler": ("FLYBALL_CONTROLPLANE",),
    "kueue": ("FLYBALL_CONTROLPLANE", "FLYBALL_KUEUE"),
    "karpenter": ("FLYBALL_CONTROLPLANE", "FLYBALL_KARPENTER"),
    "slurm": ("FLYBALL_SLURM",),
    "docker": ("FLYBALL_DOCKER",),
}
"""What the tests of a driver need; CI says of each that is absent that it was not tried."""


class Seen(msgspec.Struct, frozen=True):
    """Decisions and outcomes of one test."""

    driver: str
    decisions: list[Scale | Migrate | Preempt | Check]
    outcomes: list[Outcome]


SEEN: list[Seen] = []
"""What this process has seen; its table is printed at the end."""


def observed_row(bootstrap: str, driver: str) -> Row:
    """The row of a driver by what a broker's topics say, which must hold what it promises."""
    sent = [decode_message(DECISIONS.name, value, headers) for value, headers in read_all(bootstrap, DECISIONS.name)]
    decisions = [one for one in sent if isinstance(one, Scale | Migrate | Preempt | Check)]
    found = outcomes(bootstrap)
    row, can = rows(decisions, found)[driver], DRIVERS[driver]
    assert row.verbs.keys() <= can.kinds, row
    otherwise = [difference(one.expected, one.observed) for one in found if one.status == "done" and one.observed]
    assert row.effect[0] == row.effect[1], (row, otherwise)
    for promised, (held, tried) in (
        (can.promises.gang, row.gang),
        (can.promises.victims, row.victims),
        (can.promises.rollback, row.rollback),
    ):
        assert held == tried or not promised, row
    seen = Seen(driver, decisions, found)
    SEEN.append(seen)
    if folder := os.environ.get(FOLDER_VARIABLE):
        (Path(folder) / f"{driver}-{uuid.uuid4().hex}.json").write_bytes(msgspec.json.encode(seen))
    return row


def unseen(can: Capabilities, row: Row) -> list[str]:
    """What a driver promises and was never seen to keep."""
    promises = can.promises
    return [
        *(kind for kind in sorted(can.kinds) if not row.verbs.get(kind, (0, 0))[0]),
        *(
            name
            for name, promised, times in (
                ("dry run", True, row.planned),
                ("victims", promises.victims, row.victims[0]),
                ("checkpoint", promises.checkpoint != "none", row.checkpoints),
                ("rollback", promises.rollback, row.rollback[0]),
                ("gang", promises.gang, row.gang[0]),
                ("scrub", promises.scrub, 0),
                ("effect", bool(can.kinds), row.effect[0]),
            )
            if promised and not times
        ),
    ]


def merged(seen: Iterable[Seen]) -> dict[str, Row]:
    """The row of each driver by all tests, each of which has its own ids of decisions."""
    of: dict[str, tuple[list[AnyDecision], list[Outcome]]] = {}
    for i, one in enumerate(seen):
        decisions, found = of.setdefault(one.driver, ([], []))
        decisions += [msgspec.structs.replace(decision, id=f"{i}/{decision.id}") for decision in one.decisions]
        found += [msgspec.structs.replace(outcome, decision=f"{i}/{outcome.decision}") for outcome in one.outcomes]
    judged = {driver: rows(decisions, found) for driver, (decisions, found) in of.items()}
    return {driver: made[driver] for driver, made in judged.items() if driver in made}


def table(seen: Mapping[str, Row]) -> list[str]:
    """The head and a line for each driver that was seen."""
    shown = [entries(driver, can, seen[driver], observed=True) for driver, can in DRIVERS.items() if driver in seen]
    return [" | ".join(cell.replace("\n", ", ") for cell in row) for row in (HEADER, *shown)]


def main(folder: Path) -> int:
    """Print the table of a whole run; 1 if a promise of a driver that was to be tried was never seen."""
    seen = merged(msgspec.json.decode(path.read_bytes(), type=Seen) for path in sorted(folder.glob("*.json")))
    missing = {
        driver: unseen(can, seen.get(driver, Row(driver=driver)))
        for driver, can in DRIVERS.items()
        if driver in seen or all(map(os.environ.get, NEEDS.get(driver, ())))
    }
    lines = [f"{driver}: promised and never seen: {', '.join(names)}" for driver, names in missing.items() if names]
    sys.stdout.write("\n".join([*table(seen), *lines, ""]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
