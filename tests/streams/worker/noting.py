"""A worker's app around a stand-in for the lanes: it notes what comes and starts where it is told.

Usage: noting.py CONFIG NOTES RESUME, where RESUME is JSON: [[topic, partition, offset], ...].
"""

import json
import logging
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import faust
from faust.types import TP
from tests.streams.worker.rig import PARTITIONS

from flyball_contracts.config import Config, load_config
from flyball_streams.engine import Incoming
from flyball_streams.worker.app import Worker
from flyball_streams.worker.faust_private import run_on_embedded_broker


class Noting:
    def __init__(self, notes: Path, resume: dict[TP, int]) -> None:
        self.notes = notes
        self.places = resume
        self.progress = 0

    def resume(self, assigned: Collection[TP]) -> dict[TP, int]:
        return {tp: offset for tp, offset in self.places.items() if tp in assigned}

    def begin(self, starts: Mapping[TP, int]) -> None:
        self.note({"begin": sorted([tp.topic, tp.partition, offset] for tp, offset in starts.items())})

    def ahead(self, lags: Mapping[TP, int]) -> set[TP]:
        return set()

    def changed(self) -> set[str]:
        return set()

    def save(self) -> None:
        self.note({"saved": True})

    def rest(self) -> bool:
        return False

    def offset(self, topic: str, partition: int) -> int | None:
        return None

    def refresh_tables(self) -> None:
        pass

    def step(self, batches: Sequence[tuple[TP, Sequence[Incoming]]]) -> None:
        for tp, batch in batches:
            self.note({"topic": tp.topic, "partition": tp.partition, "offsets": [m.offset for m in batch]})

    def note(self, what: dict[str, Any]) -> None:
        with self.notes.open("a") as file:
            file.write(json.dumps(what) + "\n")


def hide_once(topic: str) -> None:
    """Let metadata lack a topic while partitions are assigned for the first time, as while a broker starts."""
    cluster: Any = import_module("aiokafka.cluster").ClusterMetadata
    group: Any = import_module("aiokafka.consumer.group_coordinator").GroupCoordinator
    assigned, known = group._perform_assignment, cluster.partitions_for_topic
    hides = [True]

    def partitions_for_topic(self: Any, name: str) -> Any:
        return None if hides[0] and name == topic else known(self, name)

    async def perform_assignment(self: Any, response: Any) -> Any:
        try:
            return await assigned(self, response)
        finally:
            hides[0] = False

    cluster.partitions_for_topic, group._perform_assignment = partitions_for_topic, perform_assignment


def run(host: Noting, path: str, kind: str, prepare: Callable[[Worker], object] = lambda worker: None) -> None:
    """Run a worker's app with these lanes until it is terminated; ``kind`` is ``embedded`` or ``kafka``."""
    logging.basicConfig(level="INFO")
    if kind == "embedded":
        run_on_embedded_broker()
    with tempfile.TemporaryDirectory() as scratch:
        worker = Worker(
            load_config(Path(path), Config),
            cast(Any, host),
            PARTITIONS,
            Path(scratch),
            session_s=3.0 if kind == "embedded" else 10.0,
        )
        prepare(worker)
        runner = faust.Worker(worker.app, override_logging=False, redirect_stdouts=False, quiet=True)
        runner.spinner = None
        runner.execute_from_commandline()


def main() -> None:
    path, notes, resume, kind, *hidden = sys.argv[1:]
    if hidden:
        hide_once(hidden[0])
    places = {TP(topic, partition): offset for topic, partition, offset in json.loads(resume)}
    run(Noting(Path(notes), places), path, kind)


if __name__ == "__main__":
    main()
