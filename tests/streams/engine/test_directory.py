"""A tick is decided on the tables as they were when it began, whatever a reader knows by then."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, strategies as st
from tests.streams.engine.recorded import SMALL, TICKS, WORKER, Recorded, decisions, record, replay, restored
from tests.streams.engine.scene import CELL, CONFIG, FIRST, PERIOD_NS, START_NS, Agent, Out, inventory, spec, tick

from flyball_contracts.records import Allocation, DemandTick, Inventory, Outcome, Signal, TableOffsets, WorkloadSpec
from flyball_contracts.tables import Row, Tables
from flyball_contracts.topics import INVENTORY, OUTCOMES, SIGNALS, WORKLOADS
from flyball_streams.engine import Directory, Engine, Incoming
from flyball_streams.engine.directory import VERSIONS_KEPT
from flyball_streams.engine.node import NodeLane
from flyball_streams.engine.view import View

TABLES = {INVENTORY.name, WORKLOADS.name, SIGNALS.name, OUTCOMES.name}


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return record(SMALL, TICKS)


def of_tables(batch: Sequence[Incoming]) -> list[Incoming]:
    return [m for m in batch if m.topic in TABLES]


def test_in_a_backlog_of_a_fleet_that_obeys_the_decisions_are_those_of_their_time(recorded: Recorded) -> None:
    reported = [m for batch in recorded.batches for m in of_tables(batch)]
    others = [[m for m in batch if m.topic not in TABLES] for batch in recorded.batches]
    inventories = [m for m in reported if m.topic == INVENTORY.name]
    assert len(inventories) > 2 * len({m.key for m in inventories})
    assert decisions(replay([reported[::-1], *others])) == decisions(recorded.sent)


@pytest.mark.parametrize("cut", [17, 29])
def test_after_a_restart_lanes_go_on_with_the_tables_that_they_decided_on(recorded: Recorded, cut: int) -> None:
    """What compaction has deleted is in the snapshots, and what was said since does not count too soon."""
    engine = Engine(WORKER)
    replay(recorded.batches[:cut], engine)
    since = [m for batch in recorded.batches[cut:] for m in of_tables(batch)]
    newest = {(m.topic, m.key): m for batch in recorded.batches[:cut] for m in of_tables(batch)}
    changed = {(m.topic, m.key) for m in since}
    left = sorted((m for place, m in newest.items() if place not in changed), key=lambda m: m.offset)
    assert len(left) < len(newest)
    rest = [[m for m in batch if m.topic not in TABLES] for batch in recorded.batches[cut:]]
    assert decisions(replay(rest, restored(engine, [*left, *since]))) == decisions(recorded.sent[cut:])


SECOND_NS = PERIOD_NS
held = st.sampled_from((tuple[Allocation, ...](), (Allocation(workload="w", replica="0", devices=(0,)),)))
seconds = st.integers(0, 8).map(lambda s: START_NS + s * SECOND_NS)


def node_at(at: int, epoch: int, allocations: tuple[Allocation, ...], zone: str) -> Inventory:
    return inventory("n", 2, allocations, time_ns=at, epoch=epoch, zone=zone)


def spec_at(at: int, most: int, removed: bool) -> WorkloadSpec:
    return spec("w", time_ns=at, max_replicas=most, removed=removed)


def curve_at(at: int, g: float) -> Signal:
    return Signal(zone="DE", kind="carbon_intensity", published_ns=at, start_ns=0, step_s=3600.0, p50=(g,))


rows: st.SearchStrategy[Row] = st.one_of(
    st.builds(node_at, seconds, st.integers(1, 3), held, st.sampled_from(("DE", "FR"))),
    st.builds(spec_at, seconds, st.integers(1, 3), st.booleans()),
    st.builds(curve_at, seconds, st.sampled_from((1.0, 2.0))),
)


@given(st.lists(rows, max_size=12), st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(0, 4))
def test_a_view_is_the_fold_of_what_was_published_up_to_its_tick(
    reported: list[Row], steps: list[int], cut: int
) -> None:
    directory, stops = Directory(), sorted(steps)
    directory.apply(inventory("n", 2, time_ns=START_NS - 1))
    view = View(directory, CELL)
    for row in reported:
        directory.apply(row)
    for i, step in enumerate(stops):
        if i == cut:
            state, view = view.state(), View(directory, CELL)
            view.load(state)
        view.advance(tick(step))
        expected = Tables()
        for row in (inventory("n", 2, time_ns=START_NS - 1), *reported):
            if row_time(row) <= START_NS + step * SECOND_NS:
                expected.apply(row)
        assert (view.inventories, view.specs, view.signals) == (
            expected.inventories, expected.workloads, expected.signals,
        )  # fmt: skip
        here = expected.inventories["n"]
        assert view.held("w").replicas == len(here.allocations)
        assert view.zone_of("w", CELL) == here.zone
        assert view.nodes(CELL) == [here]


def row_time(row: Row) -> int:
    return row.published_ns if isinstance(row, Signal) else row.time_ns


def test_a_node_that_is_first_received_of_later_is_not_there_before() -> None:
    directory = Directory()
    directory.apply(inventory("old", time_ns=START_NS + 60 * SECOND_NS))  # older records of it were compacted away
    view = View(directory, CELL)
    view.advance(tick(0))
    directory.apply(inventory("new", time_ns=START_NS + 60 * SECOND_NS))
    view.advance(tick(1))
    assert [node.node for node in view.nodes(CELL)] == ["old"]
    view.advance(tick(60))
    assert [node.node for node in view.nodes(CELL)] == ["new", "old"]


def outcome(at: int, decision: str = "d") -> Outcome:
    return Outcome(
        id=f"{decision}/{at}", decision=decision, type="Scale", target=f"{CELL}/w", cell=CELL, workload="w",
        time_ns=START_NS + at * SECOND_NS, status="refused", mode="live", driver="simulated",
    )  # fmt: skip


def test_outcomes_count_once_from_their_time_on_though_they_came_before_the_lane() -> None:
    directory = Directory()
    for published in (outcome(2), outcome(5, "e"), outcome(2)):
        directory.apply(published)
    view = View(directory, CELL)
    assert view.advance(tick(1)) == []
    assert view.advance(tick(3)) == [outcome(2)]
    state, view = view.state(), View(directory, CELL)
    view.load(state)
    assert view.advance(tick(4)) == []
    assert view.advance(tick(5)) == [outcome(5, "e")]


def test_who_lives_in_another_time_is_received_at_once() -> None:
    directory = Directory()
    view = View(directory, CELL)
    view.advance(tick(0))
    for row in (spec("w", time_ns=START_NS + 400 * 86_400 * SECOND_NS), outcome(400 * 86_400)):
        directory.apply(row)
    assert view.advance(tick(1)) == [outcome(400 * 86_400)]
    assert view.spec("w") is not None


def test_a_tombstone_deletes_at_once_and_for_a_lane_that_comes_back_too() -> None:
    directory = Directory()
    for row in (inventory("n", time_ns=START_NS), spec("w", time_ns=START_NS)):
        directory.apply(row)
    view = View(directory, CELL)
    view.advance(tick(0))
    state = view.state()
    directory.forget(INVENTORY.name, "n")
    directory.forget(WORKLOADS.name, "w")
    later = View(directory, CELL)
    later.load(state)
    for one in (view, later, View(directory, CELL)):
        one.advance(tick(1))
        assert (one.nodes(CELL), one.workloads(CELL)) == ([], [])
    directory.apply(spec("w", time_ns=START_NS))
    view.advance(tick(2))
    assert view.spec("w") is not None


def test_what_belongs_to_another_cell_is_not_in_a_view() -> None:
    directory = Directory()
    for row in (inventory("n", time_ns=START_NS), inventory("m", cell="other", time_ns=START_NS)):
        directory.apply(row)
    view = View(directory, CELL)
    view.advance(tick(0))
    directory.apply(inventory("n", cell="other", time_ns=START_NS + SECOND_NS))
    assert [node.node for node in view.nodes(CELL)] == ["n"]
    view.advance(tick(1))
    assert view.nodes(CELL) == []
    assert {type(row) for row in view.inventories.values()} == {Inventory}


def test_what_lies_beyond_the_offsets_of_a_tick_does_not_count_though_it_is_older() -> None:
    directory = Directory()
    directory.apply(spec("w", time_ns=START_NS, max_replicas=1))
    then = directory.offsets
    directory.apply(spec("w", time_ns=START_NS + SECOND_NS, max_replicas=2))
    view = View(directory, CELL)
    seen: list[int] = []
    for index, offsets in enumerate((then, then, then, directory.offsets, then)):
        view.advance(tick(index), offsets)
        seen += [spec.max_replicas for spec in view.workloads(CELL)]
    assert seen == [1, 1, 1, 2, 2]


def test_a_tombstone_beyond_the_offsets_of_a_tick_deletes_nothing_yet() -> None:
    directory = Directory()
    directory.apply(spec("w", time_ns=START_NS))
    then = directory.offsets
    directory.forget(WORKLOADS.name, "w")
    view = View(directory, CELL)
    view.advance(tick(0), then)
    assert view.spec("w") is not None
    state, view = view.state(), View(directory, CELL)
    view.load(state)
    view.advance(tick(1), then)
    assert view.spec("w") is not None
    view.advance(tick(2))
    assert view.spec("w") is None


def test_a_node_that_was_added_again_is_not_removed_by_the_tombstone_before() -> None:
    """Where a view has no inventories, it says whose were removed; a snapshot keeps what was not taken."""
    directory = Directory()
    for name in "abc":
        directory.apply(inventory(name, time_ns=START_NS))
    view = View(directory, CELL, (WorkloadSpec,))
    view.advance(tick(0))
    for name in "ab":
        directory.forget(INVENTORY.name, name)
    between = directory.offsets
    directory.apply(inventory("a", epoch=2, time_ns=START_NS + SECOND_NS))
    early = View(directory, CELL, (WorkloadSpec,))
    early.load(view.state())
    early.advance(tick(1), between)
    assert early.take_removed() == ["a", "b"], "its return is beyond what counts"
    view.advance(tick(1))
    kept = View(directory, CELL, (WorkloadSpec,))
    kept.load(view.state())
    assert view.take_removed() == kept.take_removed() == ["b"]
    directory.forget(INVENTORY.name, "c")
    directory.read(INVENTORY.name, 0, 0)
    state = view.state()
    view.advance(tick(2))
    view.load(state)
    assert view.take_removed() == ["c"]


def test_offsets_that_were_not_read_yet_lose_nothing() -> None:
    directory = Directory()
    requested: TableOffsets = {WORKLOADS.name: (2,)}
    view = View(directory, CELL)
    view.advance(tick(0), requested)
    for index, name in enumerate("ab"):
        directory.apply(spec(name, time_ns=START_NS))
        view.advance(tick(index + 1), requested)
    assert [spec.workload for spec in view.workloads(CELL)] == ["a", "b"]
    assert view.offsets == requested


@pytest.mark.parametrize("away", [False, True])
def test_a_table_that_was_made_again_counts_from_its_beginning(away: bool) -> None:
    directory = Directory()
    for name in "abc":
        directory.apply(spec(name, time_ns=START_NS))
    view = View(directory, CELL)
    view.advance(tick(0))
    if away:
        state, directory = view.state(), Directory()
        view = View(directory, CELL)
        view.load(state)
    else:
        directory.read(WORKLOADS.name, 0, 0)
    directory.apply(spec("d", time_ns=START_NS), 0, 0)
    view.advance(tick(1), {WORKLOADS.name: (3,)})
    assert [spec.workload for spec in view.workloads(CELL)] == ["a", "b", "c", "d"]
    assert view.offsets == {WORKLOADS.name: (1,)}


def test_what_compaction_left_stands_for_what_it_deleted_where_a_lane_begins_with_a_backlog() -> None:
    directory = Directory()
    for offset, name in ((7, "old"), (9, "new")):
        directory.apply(spec(name, time_ns=START_NS), 0, offset)
    view = View(directory, CELL, base={WORKLOADS.name: (8,)})
    view.advance(tick(0), {WORKLOADS.name: (5,)})
    assert [spec.workload for spec in view.workloads(CELL)] == ["old"]


def test_a_backlog_is_read_with_the_inventories_of_its_time_however_often_a_node_changed() -> None:
    """Of a small cell as many are kept as a backlog may name, not the same few as of a large one."""
    changes = 2 * VERSIONS_KEPT
    agents = [Agent(inventory("n", 2, held, epoch=e, time_ns=START_NS + e * PERIOD_NS)) for e, held in took(changes)]
    directory = Directory()
    for agent in agents:
        directory.apply(agent.inventory)
    lane = NodeLane(0, CONFIG, directory, 1)
    frames = [f for e, agent in enumerate(agents) for f in agent.frames(e, seq=e, schemas=[1])]
    out = Out(lane.step(frames + Agent(agents[-1].inventory).frames(changes + CONFIG.lateness_ticks, schemas=[1])))
    shown = {d.tick.index - FIRST: [x.workload for x in d.demands] for d in out.of(DemandTick)}
    assert out.refusals() == []
    assert [shown[e] for e in range(changes)] == [[held[0].workload] for _, held in took(changes)]
    view = View(directory, CELL)
    view.advance(tick(1))
    assert [r.workload for r in view.replicas("w1")] == ["w1"]


def took(changes: int) -> Iterator[tuple[int, list[Allocation]]]:
    """Epochs of a node that runs another workload from each tick on."""
    return ((e, [Allocation(workload=f"w{e % 2}", replica=f"{e}", devices=(0,))]) for e in range(changes))
