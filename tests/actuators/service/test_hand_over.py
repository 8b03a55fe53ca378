"""A partition goes from one actuator to another in the middle of its work; the platforms say who told them what."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from tests.actuators.handing_over import TOKEN
from tests.actuators.loop import (
    DEADLINE_S,
    PARTITIONS,
    ended,
    live,
    of,
    outcomes,
    publish,
    read_all,
    running,
    statuses_of,
    wait_for,
)
from tests.actuators.platform_server import PlatformServer, platform_server
from tests.actuators.samples import CELL, NOW, scale, spec

from flyball_contracts.codec import Message, record_message
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Outcome, SubjectState
from flyball_contracts.records.commands.outcomes import OutcomeStatus
from flyball_contracts.simulated import Operation
from flyball_contracts.topics import DEAD_LETTERS
from flyball_streams.broker import EmbeddedBroker

ROOT = Path(__file__).resolve().parents[3]
CELLS = tuple(next(c for c in map("cell-{}".format, range(9)) if partition_of(c.encode(), 2) == p) for p in (0, 1))
WORK = ("probe", "begun", "asked", "next")


class Group:
    """Actuators of one group as processes, two cells in a partition each, and a platform for each cell."""

    def __init__(self, broker: EmbeddedBroker, group: str, folder: Path, servers: dict[str, PlatformServer]) -> None:
        self.address, self.group, self.folder, self.servers = broker.bootstrap, group, folder, servers
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.sent: list[str] = []
        self.probes = 0
        for cell, server in servers.items():
            names = [f"{work}-{cell}" for work in WORK]
            publish(self.address, *(spec(name, cell=cell) for name in names))
            for name in names:
                server.has(name, 4)

    def start(self, name: str) -> None:
        folders = os.pathsep.join(str(ROOT / part) for part in ("", "contracts", "actuators", "streams"))
        files = [str(self.folder / f"{what}-{name}") for what in ("ledger", "kill")]
        sites = [f"{cell}={server.url}" for cell, server in self.servers.items()]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.actuators.handing_over", self.address, self.group, *files, *sites],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": folders, TOKEN: name}, stdout=log, stderr=log,
            )  # fmt: skip

    def decide(self, work: str, *cells: str, number: int = 0) -> list[str]:
        """Scale a workload of each cell; the ids of the decisions."""
        decisions = [
            scale(f"{work}{number}-{cell}", workload=f"{work}-{cell}", before=4, after=5, cell=cell) for cell in cells
        ]
        publish(self.address, *decisions)
        self.sent += [decision.id for decision in decisions]
        return [decision.id for decision in decisions]

    def spoke(self, decision: str, *, final: bool = False) -> set[str]:
        """Which processes said something of a decision, or its last word."""
        pids = {str(process.pid): name for name, process in self.processes.items()}
        found = [o for o in outcomes(self.address) if o.decision == decision and (o.final or not final)]
        return {pids[o.actuator.split("/")[1]] for o in found}

    def ended_by(self, decision: str) -> str:
        """Which process said the last word of a decision, empty before it."""
        return next(iter(self.spoke(decision, final=True)), "")

    def owners(self, wanted: set[str]) -> dict[str, str]:
        """Which process has which cell, once these have one each."""
        owners: dict[str, str] = {}

        def found() -> bool:
            self.probes += 1
            probes = self.decide("probe", *CELLS, number=self.probes)
            wait_for(lambda: all(map(self.ended_by, probes)), "the last words of probes")
            owners.update(zip(CELLS, map(self.ended_by, probes), strict=True))
            return set(owners.values()) == wanted

        wait_for(found, f"partitions of {wanted}")
        return owners

    def told(self, cell: str) -> list[tuple[str, str]]:
        """What the platform of a cell was told, and by whom."""
        server = self.servers[cell]
        return [*zip(server.log, server.callers, strict=True)]

    def settled(self) -> bool:
        return {o.decision for o in outcomes(self.address) if o.final} == set(self.sent)

    def close(self) -> str:
        """End all, and give what they logged."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(DEADLINE_S)
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


@pytest.fixture
def group(
    embedded_broker: Callable[..., EmbeddedBroker], unique: Callable[[str], str], tmp_path: Path
) -> Iterator[Group]:
    with ExitStack() as stack:
        servers = {cell: PlatformServer(cell) for cell in CELLS}
        for server in servers.values():
            stack.callback(server.close)
        made = Group(embedded_broker(PARTITIONS), unique("actuator"), tmp_path, servers)
        try:
            yield made
        finally:
            for server in servers.values():
                server.let_go()
            made.close()


@pytest.mark.parametrize("how", ["the other joins", "it leaves", "it is killed"])
def test_who_loses_a_partition_submits_nothing_more_and_the_next_ends_its_work(group: Group, how: str) -> None:
    """When its partition goes, ``begun`` runs on the platform, and the look at ``asked`` has no answer yet."""
    group.start("a")
    owners = group.owners({"a"})
    if how != "the other joins":
        group.start("b")
        owners = group.owners({"a", "b"})
    cells = [cell for cell in CELLS if owners[cell] == "a"]
    for server in group.servers.values():
        server.held = True
    begun = group.decide("begun", *CELLS)
    wait_for(lambda: all("running" in statuses_of(group.address, id_) for id_ in begun), "the operations")
    before = {cell: len(group.told(cell)) for cell in CELLS}
    for server in group.servers.values():
        server.stalled.add("a")
    group.decide("asked", *cells)
    wait_for(lambda: all(f"GET /v1/workloads/asked-{c}" in group.servers[c].calls for c in cells), "the looks")
    if how == "the other joins":
        group.start("b")
    elif how == "it leaves":
        group.processes["a"].terminate()
    else:
        group.processes["a"].send_signal(signal.SIGKILL)
    wait_for(lambda: any((f"asked0-{cell}", "b") in group.told(cell) for cell in cells), "the successor")
    moved = next(cell for cell in cells if (f"asked0-{cell}", "b") in group.told(cell))
    for server in group.servers.values():  # what the former owner has waited for comes now
        server.let_go()
    (last,) = group.decide("next", moved)
    wait_for(lambda: (last, "b") in group.told(moved), "the next decision")
    for server in group.servers.values():
        server.held = False
    wait_for(group.settled, "the last words")
    log = group.close()

    assert group.spoke(f"asked0-{moved}") == {"b"}, log
    assert {by for _, by in group.told(moved)[before[moved] :]} == {"b"}, log
    assert (f"begun0-{moved}", "a") in group.told(moved)[: before[moved]], log
    assert group.ended_by(f"begun0-{moved}") == "b", log
    for cell, server in group.servers.items():
        of_cell = sorted(id_ for id_ in group.sent if id_.endswith(cell))
        assert sorted(server.effects) == of_cell, log
        assert sorted(server.log) == of_cell, log
    lasts = {msgspec.json.encode(outcome) for outcome in outcomes(group.address) if outcome.final}
    assert len(lasts) == len(group.sent), log
    assert {outcome.status for outcome in outcomes(group.address) if outcome.final} == {"done"}, log


def said_before(decision: str, status: OutcomeStatus) -> Message:
    """What the former owner said of a decision, in the partition that its cell had then."""
    outcome = Outcome(
        id=f"{decision}-{status}", decision=decision, type="Scale", target=f"{CELL}/{decision}", cell=CELL,
        workload=decision, time_ns=NOW, status=status, mode="live", driver="simulated", actuator="gone/1/0",
        before=SubjectState(replicas=4, ready=4, version="1"), operation=decision if status == "running" else "",
        expected=SubjectState(replicas=6, ready=6),
    )  # fmt: skip
    return record_message(outcome, "/test")._replace(partition=OLD)


NAMES = ("runs", "sent", "claimed", "ended", "fresh")
OLD = 1 - partition_of(CELL.encode(), 2)


def test_what_was_begun_in_a_cell_s_old_partition_is_ended_there_and_nothing_is_begun(
    bootstrap: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Partitions were added, and the cell has another one now. A mock broker adds none: this is what it leaves."""
    publish(bootstrap, *map(spec, NAMES), spec("chat"))
    with platform_server(**dict.fromkeys(NAMES, 4), chat=4) as server:
        for name in ("runs", "sent"):  # the platform was told; of the second it had not said so yet
            before = server.workloads[name]
            server.operations[name] = Operation(
                id=name, workload=name, status="running", detail="on its way", submitted_ns=NOW, before=before,
                expected=before, observed=before,
            )  # fmt: skip
        before_that: dict[str, tuple[OutcomeStatus, ...]] = {
            "runs": ("accepted", "running"), "sent": ("accepted",), "claimed": ("accepted",),
            "ended": ("accepted", "running", "done"),
        }  # fmt: skip
        for name, statuses in before_that.items():
            publish(bootstrap, *(said_before(name, status) for status in statuses))
        old = [record_message(scale(name, workload=name), "/test")._replace(partition=OLD) for name in NAMES]
        with running(live(bootstrap, unique("actuator"), tmp_path, server)):
            publish(bootstrap, *old, scale("new"))
            wait_for(lambda: "running" in statuses_of(bootstrap, "sent"), "what the platform knows of it")
            for name in ("runs", "sent"):
                server.finish(name, replicas=6)
            wait_for(ended(bootstrap, 5), "the last words")
            wait_for(lambda: len(read_all(bootstrap, DEAD_LETTERS.name)) == 1, "the dead letter")
    assert server.log == ["new"], "nothing is begun in the old partition"
    assert statuses_of(bootstrap, "runs") == ["accepted", "running", "done"]
    assert statuses_of(bootstrap, "sent") == ["accepted", "running", "done"]
    assert statuses_of(bootstrap, "claimed") == ["accepted", "refused stale"]
    assert statuses_of(bootstrap, "ended")[:3] == ["accepted", "running", "done"]
    assert set(statuses_of(bootstrap, "ended")[3:]) <= {"done"}
    assert statuses_of(bootstrap, "fresh") == []
    assert statuses_of(bootstrap, "new") == ["accepted", "running", "done"]
    assert "another one now; it was not started; decide again" in of(bootstrap, "claimed", "refused").detail
    ((_, headers),) = read_all(bootstrap, DEAD_LETTERS.name)
    assert headers
