"""A partition goes from one actuator to another in the middle of its work; the platforms say who told them what."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from tests.actuators.handing_over import Group
from tests.actuators.loop import (
    PARTITIONS,
    committed,
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
from tests.brokers.embedded import EmbeddedBroker

from flyball_contracts.codec import Message, record_message
from flyball_contracts.partitioner import partition_of
from flyball_contracts.records import Outcome, SubjectState
from flyball_contracts.records.commands.outcomes import OutcomeStatus
from flyball_contracts.simulated import Operation
from flyball_contracts.topics import DEAD_LETTERS

CELLS = tuple(next(c for c in map("cell-{}".format, range(9)) if partition_of(c.encode(), 2) == p) for p in (0, 1))
WORK = ("probe", "begun", "asked", "next")


@pytest.fixture
def group(
    embedded_broker: Callable[..., EmbeddedBroker], unique: Callable[[str], str], tmp_path: Path
) -> Iterator[Group]:
    with ExitStack() as stack:
        servers = {cell: PlatformServer(cell) for cell in CELLS}
        for server in servers.values():
            stack.callback(server.close)
        made = Group(embedded_broker(PARTITIONS).bootstrap, unique("actuator"), tmp_path, servers, WORK)
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
            wait_for(ended(bootstrap, 6), "the last words")
    assert server.log == ["new"], "nothing is begun in the old partition"
    assert statuses_of(bootstrap, "runs") == ["accepted", "running", "done"]
    assert statuses_of(bootstrap, "sent") == ["accepted", "running", "done"]
    assert statuses_of(bootstrap, "claimed") == ["accepted", "refused stale"]
    assert statuses_of(bootstrap, "ended")[:3] == ["accepted", "running", "done"]
    assert set(statuses_of(bootstrap, "ended")[3:]) <= {"done"}
    assert statuses_of(bootstrap, "fresh") == ["refused stale"]
    assert statuses_of(bootstrap, "new") == ["accepted", "running", "done"]
    for name in ("claimed", "fresh"):
        assert "partitions were added" in of(bootstrap, name, "refused").detail


def test_a_decision_in_both_partitions_is_carried_out_in_one_and_both_are_committed(
    bootstrap: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    group = unique("actuator")
    publish(bootstrap, spec("chat"))
    with platform_server(chat=4) as server:
        server.answering.clear()
        with running(live(bootstrap, group, tmp_path, server)):
            assert server.calls == [], "nothing is looked at before there is a decision"
            publish(bootstrap, scale())
            wait_for(lambda: len(server.calls) > 0, "the first look")
            publish(bootstrap, record_message(scale(), "/test")._replace(partition=OLD))
            wait_for(lambda: len(read_all(bootstrap, DEAD_LETTERS.name)) == 1, "the dead letter of one of them")
            server.answering.set()
            wait_for(ended(bootstrap, 1), "the last word")
            wait_for(lambda: committed(bootstrap, group) == 2, "the commits")
        assert server.log == ["d1"]
    assert statuses_of(bootstrap, "d1") == ["accepted", "running", "done"]
