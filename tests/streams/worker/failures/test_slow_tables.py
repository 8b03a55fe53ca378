"""Tables that take long to be read: a step waits for the refresh that its batches need, and not for all later ones."""

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.streams.worker.rig import Rig, lines, wait_until

from flyball_contracts.codec import Message
from flyball_contracts.topics import TELEMETRY
from flyball_streams.worker.host import REFRESH_S
from flyball_streams.worker.run import WATCHDOG_S
from flyball_streams.worker.tables import ENDS_S

BATCHES = 20
FEW = 4
"""Most refreshes from one step to the next: one in progress, one behind it, and what ends beside the step."""
MANY = 20


def ended(notes: list[Any]) -> int:
    return sum(note.get("refresh") == "ended" for note in notes)


def test_a_step_waits_for_the_refreshes_that_its_batches_need(embedded_rig: Callable[..., Rig], tmp_path: Path) -> None:
    rig, file = embedded_rig(), tmp_path / "notes"
    process = rig.python("tests.streams.worker.failures.slow_tables", str(rig.path), str(file), "embedded")
    wait_until(lambda: any("begin" in note for note in lines(file)), "the worker has its partitions")

    def enough() -> bool:
        process.check()
        for i in range(20):
            rig.send([Message(TELEMETRY.name, str(i).encode(), b"x", [])])
            time.sleep(0.005)
        found = lines(file)
        return sum("offsets" in note for note in found) >= BATCHES or ended(found) >= MANY

    wait_until(enough, "steps or refreshes")
    process.kill()
    check_waits(lines(file))
    check_order(lines(file))


def check_waits(notes: list[Any]) -> None:
    """Each step waited for a few refreshes."""
    first = next(i for i, note in enumerate(notes) if "fetch" in note)
    steps = [i for i, note in enumerate(notes) if "offsets" in note]
    assert steps, f"no step within {ended(notes)} refreshes"
    waited = [ended(notes[before:after]) for before, after in pairwise([first, *steps])]
    assert max(waited) <= FEW, waited


def check_order(notes: list[Any]) -> None:
    """Each batch was stepped after a refresh had ended that began after the batch was fetched."""
    fetched_at: dict[tuple[str, int, int], int] = {}
    fetch_at: dict[int, int] = {}
    began, read = -1, -1  # places in the notes at which the current refresh began, and the last one that ended
    stepped = 0
    for i, note in enumerate(notes):
        if "fetch" in note:
            fetch_at[note["fetch"]] = i
        elif "fetched" in note:
            topic, partition = note["place"]
            fetched_at |= {(topic, partition, offset): fetch_at[note["of_fetch"]] for offset in note["fetched"]}
        elif "refresh" in note:
            began, read = (i, read) if note["refresh"] == "began" else (began, began)
        elif "offsets" in note:
            stepped += 1
            assert all(fetched_at[note["topic"], note["partition"], offset] < read for offset in note["offsets"])
    assert stepped


def test_the_watchdog_waits_longer_than_a_step_for_its_tables() -> None:
    assert 2 * (REFRESH_S + ENDS_S) < WATCHDOG_S
