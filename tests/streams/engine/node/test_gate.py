"""When a tick is whole: in order, once, and not held up or misled by any sender."""

import msgspec
from hypothesis import given, strategies as st

from flyball_contracts.records import Tick
from flyball_streams.engine.gate import AGES_MS, FORGET_TICKS, LOG_APART_MS, LOG_CONFIRM, PATIENCE_MS, Gate

LATENESS = 3
NAMES = ("a", "b", "c", "d")


def gate(confirm: int = 5) -> Gate:
    return Gate(10, LATENESS, max_ahead=50, grace=LATENESS, confirm=confirm)


def arrive(g: Gate, *arrivals: tuple[str, int]) -> list[str]:
    return [g.arrive(name, index) for name, index in arrivals]


def running(*names: str, until: int = 10) -> Gate:
    """A gate at which these sources have reported all ticks up to ``until``."""
    g = gate()
    arrive(g, *((name, i) for i in range(until + 1) for name in names))
    assert [t.index for t in g.close()] == list(range(until + 1))
    return g


@st.composite
def interleavings(draw: st.DrawFn) -> tuple[int, int, list[tuple[str, int]]]:
    """Sources that each report every tick in order, nobody further ahead of the slowest than the lateness."""
    sources, ticks = draw(st.integers(1, 4)), draw(st.integers(LATENESS + 1, 12))
    position = [0] * sources
    order: list[tuple[str, int]] = []
    while any(p < ticks for p in position):
        may = [i for i, p in enumerate(position) if p < ticks and p - min(position) < LATENESS]
        chosen = draw(st.sampled_from(may))
        order.append((NAMES[chosen], position[chosen]))
        position[chosen] += 1
    return sources, ticks, order


@given(interleavings(), st.lists(st.booleans(), min_size=1))
def test_ticks_close_in_order_once_and_complete_whatever_the_order_of_arrival(
    case: tuple[int, int, list[tuple[str, int]]], closings: list[bool]
) -> None:
    _, ticks, order = case
    g = gate()
    done: list[Tick] = []
    for i, (name, index) in enumerate(order):
        assert g.arrive(name, index) == "ok"
        if closings[i % len(closings)]:
            done += g.close()
    done += g.close()
    assert done == [Tick(index=i, period_ns=10) for i in range(ticks)]


arbitrary = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 400)), max_size=120)


@given(arbitrary)
def test_whatever_is_accepted_closes_once_and_nothing_else_does(arrivals: list[tuple[str, int]]) -> None:
    g = gate(confirm=1000)  # nobody insists for so long, so time never goes back
    accepted: set[int] = set()
    late = 0
    done: list[Tick] = []
    for name, index in arrivals:
        verdict = g.arrive(name, index)
        late += verdict == "late"
        if verdict == "ok":
            accepted.add(index)
        done += g.close()
    indexes = [t.index for t in done]
    assert indexes == sorted(set(indexes))
    assert {*indexes, *g.reported} == accepted
    assert sum(t.late for t in done) + g.late == late


@given(arbitrary, st.sets(st.integers(0, 120)))
def test_a_gate_restored_in_midstream_goes_on_as_before(arrivals: list[tuple[str, int]], cuts: set[int]) -> None:
    kept, restored = gate(), gate()
    for i, (name, index) in enumerate(arrivals):
        if i in cuts:
            restored = msgspec.msgpack.decode(msgspec.msgpack.encode(restored), type=Gate)
        assert kept.arrive(name, index) == restored.arrive(name, index)
        assert kept.close() == restored.close()
    assert kept == restored


def test_nothing_closes_before_everybody_could_be_known() -> None:
    g = gate()
    for i in range(LATENESS):
        g.arrive("a", i)
        assert g.close() == []
    g.arrive("b", 0)
    g.arrive("a", LATENESS)
    assert [t.index for t in g.close()] == [0]


def test_a_source_that_joins_a_little_behind_the_first_is_in_time() -> None:
    g = gate()
    assert arrive(g, ("a", 10), ("b", 10 - LATENESS)) == ["ok", "ok"]


def test_a_silent_source_is_named_until_it_speaks_again_and_waited_for_no_longer() -> None:
    g = running("a", "b")
    arrive(g, *(("a", i) for i in range(11, 11 + LATENESS)))
    assert g.close() == []  # still waited for
    g.arrive("a", 11 + LATENESS)
    first, *rest = g.close()
    assert (first.index, first.closed_by, first.missing) == (11, "watermark", ("b",))
    assert [(t.closed_by, t.missing) for t in rest] == [("watermark", ("b",))] * LATENESS
    arrive(g, ("b", 15), ("a", 15))
    assert [(t.closed_by, t.missing) for t in g.close()] == [("complete", ())]


def test_a_source_that_comes_back_is_waited_for_again() -> None:
    g = running("a", "b")
    arrive(g, *(("a", i) for i in range(11, 20)))
    g.close()
    assert arrive(g, ("b", 20), ("a", 20), ("a", 21)) == ["ok"] * 3
    assert [t.index for t in g.close()] == [20]
    g.arrive("b", 21)
    assert [t.index for t in g.close()] == [21]


def test_what_comes_after_its_tick_closed_is_late_and_counted_in_the_next() -> None:
    g = running("a", "b")
    assert arrive(g, ("b", 9), ("a", 10), ("stranger", 3)) == ["late"] * 3
    arrive(g, ("a", 11), ("b", 11))
    (tick,) = g.close()
    assert (tick.index, tick.late) == (11, 3)


def test_a_clock_that_runs_ahead_moves_no_tick_while_others_are_received() -> None:
    g = running("a", "b", "liar")
    for i in range(11, 200):
        assert arrive(g, ("liar", 5000 + i), ("a", i), ("b", i)) == ["early", "ok", "ok"]
    assert g.close()[-1].index == 199


def test_a_clock_that_ran_ahead_once_is_welcome_when_it_is_right_again() -> None:
    g = running("a", "b")
    assert arrive(g, ("b", 500), ("a", 11), ("b", 11)) == ["early", "ok", "ok"]
    assert [(t.index, t.closed_by) for t in g.close()] == [(11, "complete")]


def test_a_jump_is_believed_when_its_only_source_insists() -> None:
    g = running("a")
    jump = [("a", 5000 + i) for i in range(6)]
    assert arrive(g, *jump) == ["early"] * 4 + ["ok"] * 2
    assert [t.index for t in g.close()] == [5004, 5005]


def test_all_sources_may_jump_together() -> None:
    g = running("a", "b")
    jump = [(name, 5000 + i) for i in range(8) for name in ("a", "b")]
    assert arrive(g, *jump).count("early") == 8
    assert [t.index for t in g.close()] == [5004, 5005, 5006, 5007]


def test_a_cell_goes_on_after_a_long_silence_though_a_node_never_comes_back() -> None:
    g = running("a", "dead")
    verdicts = arrive(g, *(("a", 5000 + i) for i in range(12)))
    assert verdicts == ["early"] * 9 + ["ok"] * 3  # twice as long, because no other node confirms it
    assert g.close() == []
    g.arrive("a", 5000 + 12)
    assert g.close()[0].missing == ("dead",)


def test_a_clock_set_back_is_followed_when_nobody_contradicts_and_open_ticks_close_first() -> None:
    g = running("n|1", "n|2", "n|3", until=1000)
    g.arrive("n|1", 1001)  # one node sends three layouts
    verdicts = arrive(g, *((name, i) for i in range(100, 110) for name in ("n|1", "n|2", "n|3")))
    assert verdicts.count("late") == 12
    assert [t.index for t in g.close()] == [1001, *range(104, 110)]


def test_a_backlog_that_arrives_late_does_not_turn_time_back() -> None:
    g = running("a", "b")
    arrive(g, *(("a", i) for i in range(11, 300)))
    g.close()
    assert set(arrive(g, *(("b", i) for i in range(11, 200)))) == {"late"}
    assert g.closed == 299


def test_ticks_that_nobody_reported_do_not_exist() -> None:
    g = running("a")
    assert arrive(g, ("a", 20), ("a", 40)) == ["ok", "ok"]
    assert [t.index for t in g.close()] == [20, 40]


def test_sources_that_are_gone_for_good_are_forgotten() -> None:
    g = running("a", "gone")
    arrive(g, *(("a", i) for i in range(11, 20)))
    g.close()
    assert "gone" in g.sources
    arrive(g, *(("a", i) for i in range(20, FORGET_TICKS + 100, 40)))
    g.close()
    assert set(g.sources) == {"a"}


PERIOD_MS = 1000


def lanes(*expected: str) -> Gate:
    """A gate of lanes, whose messages tell their log time; ``LATENESS`` ticks are as many seconds of it."""
    g = Gate(PERIOD_MS * 1_000_000, LATENESS, max_ahead=1000, grace=2)
    g.expect(expected)
    return g


def published(g: Gate, *messages: tuple[str, int, int]) -> list[str]:
    """Verdicts on messages: name, tick, and log time in ms."""
    return [g.arrive(name, index, log_ms) for name, index, log_ms in messages]


def closed(g: Gate) -> list[tuple[int, tuple[str, ...]]]:
    return [(t.index, t.missing) for t in g.close()]


def test_a_lane_that_reads_a_backlog_is_waited_for_however_far_the_others_are() -> None:
    g = lanes()
    published(g, *((name, i, i) for i in range(4) for name in ("a", "b")))
    g.close()
    published(g, *(("a", i, 10 + i) for i in range(4, 600)))  # ten minutes within 0.6 s
    assert closed(g) == []
    assert set(published(g, *(("b", i, 700 + i) for i in range(4, 600)))) == {"ok"}
    assert closed(g) == [(i, ()) for i in range(4, 600)]


def test_a_lane_that_says_nothing_while_others_speak_is_given_up_and_missed() -> None:
    g = lanes()
    published(g, *((name, i, i * PERIOD_MS) for i in range(4) for name in ("a", "b")))
    g.close()
    published(g, *(("a", i, i * PERIOD_MS) for i in range(4, 4 + LATENESS - 1)))
    assert closed(g) == []
    published(g, ("a", 6, 6 * PERIOD_MS))
    assert closed(g) == [(i, ("b",)) for i in (4, 5, 6)]
    published(g, ("a", 7, 7 * PERIOD_MS))
    assert closed(g) == [(7, ("b",))]
    assert published(g, ("b", 7, 7 * PERIOD_MS), ("b", 8, 8 * PERIOD_MS), ("a", 8, 8 * PERIOD_MS)) == [
        "late",
        "ok",
        "ok",
    ]
    assert closed(g) == [(8, ())]


def test_a_lane_that_was_restored_from_an_old_snapshot_and_repeats_its_ticks_does_not_turn_time_back() -> None:
    g = lanes()
    published(g, *((name, i, i * PERIOD_MS) for i in range(600) for name in ("a", "b")))
    g.close()
    repeated = published(g, *(("a", i, 600 * PERIOD_MS + i) for i in range(400, 600)))  # b is away meanwhile
    assert set(repeated) == {"late"}
    assert published(g, *((name, 600, 601 * PERIOD_MS) for name in ("a", "b"))) == ["ok", "ok"]
    assert closed(g) == [(600, ())]


def test_lanes_whose_clocks_were_set_back_are_followed_once_that_has_lasted() -> None:
    g = lanes()
    published(g, *((name, i, i * PERIOD_MS) for i in range(600) for name in ("a", "b")))
    g.close()
    verdicts = published(g, *((name, i, (500 + i) * PERIOD_MS) for i in range(100, 120) for name in ("a", "b")))
    assert verdicts[: 2 * LATENESS] == ["late"] * 2 * LATENESS
    assert verdicts[-20:] == ["ok"] * 20
    assert closed(g)[-1] == (119, ())


BEHIND_MS = 30 * PERIOD_MS
"""How long nobody published, in the tests of a backlog."""


def after_a_pause() -> Gate:
    """A gate whose lanes were all off for :data:`BEHIND_MS`, after ten ticks in time."""
    g = lanes()
    published(g, *((name, i, i * PERIOD_MS) for i in range(10) for name in ("a", "b")))
    assert closed(g) == [(i, ()) for i in range(10)]
    return g


def test_the_ticks_of_a_backlog_wait_for_a_lane_that_starts_later() -> None:
    g = after_a_pause()
    began = 10 * PERIOD_MS + BEHIND_MS
    published(g, *(("a", i, began + i) for i in range(10, 40)))  # the whole backlog
    published(g, *(("a", 40 + i, began + i * PERIOD_MS) for i in range(20)))
    assert closed(g) == [], "b has been silent for far longer than the lateness"
    assert set(published(g, *(("b", i, began + 20 * PERIOD_MS + i) for i in range(10, 60)))) == {"ok"}
    assert closed(g) == [(i, ()) for i in range(10, 60)]


def test_a_lane_that_stays_away_is_given_up_after_as_long_as_the_backlog_was() -> None:
    g = after_a_pause()
    began = 10 * PERIOD_MS + BEHIND_MS
    published(g, *(("a", i, began + i) for i in range(10, 40)))
    # The pause counts for one second, in which b was silent already.
    published(g, *(("a", 40 + i, began + i * PERIOD_MS) for i in range(28)))
    assert closed(g) == []
    published(g, *(("a", 68 + i, began + (28 + i) * PERIOD_MS) for i in range(3)))
    assert [missing for _, missing in closed(g)] == [("b",)] * 61


def test_patience_has_an_end() -> None:
    g = after_a_pause()
    began = 10 * PERIOD_MS + 10 * PATIENCE_MS
    behind = began // PERIOD_MS
    published(g, *(("a", i, began + i) for i in range(10, behind, 100)))
    published(g, *(("a", behind + i, began + i * PERIOD_MS) for i in range(PATIENCE_MS // PERIOD_MS + 2)))
    assert closed(g)[0] == (10, ("b",))


def test_a_lane_is_given_up_as_soon_where_event_time_runs_faster() -> None:
    g, speed = lanes(), 60
    published(g, *((name, i, i * PERIOD_MS // speed) for i in range(600) for name in ("a", "b")))
    assert closed(g) == [(i, ()) for i in range(600)]
    given_up = 600 + (LATENESS + 1) * speed
    published(g, *(("a", i, i * PERIOD_MS // speed) for i in range(600, given_up)))
    assert closed(g) == [(i, ("b",)) for i in range(600, given_up)]


def test_a_clock_that_is_wrong_by_as_much_for_all_is_no_backlog() -> None:
    g = lanes()
    wrong_ms = 7 * AGES_MS
    published(g, *((name, i, i * PERIOD_MS) for i in range(10) for name in ("a", "b")))
    late = [
        (name, i, wrong_ms + i * PERIOD_MS) for i in range(10, 10 + 3 * AGES_MS // PERIOD_MS) for name in ("a", "b")
    ]
    published(g, *late)
    assert closed(g)[-1][1] == ()
    after = late[-1][1]
    published(g, *(("a", after + i, late[-1][2] + i * PERIOD_MS) for i in range(1, 2 + LATENESS)))
    assert closed(g)[0] == (after + 1, ("b",)), "the lateness alone counts again"


def test_one_message_with_a_clock_that_is_ahead_does_not_stop_the_log_time() -> None:
    g, ahead_ms = after_a_pause(), AGES_MS
    published(g, ("a", 10, 10 * PERIOD_MS + ahead_ms), ("b", 10, 10 * PERIOD_MS))
    assert closed(g) == [(10, ())]
    known_by = 10 + LOG_CONFIRM
    published(g, *(("a", i, i * PERIOD_MS) for i in range(11, known_by + LATENESS - 1)))
    assert closed(g) == []
    published(g, *(("a", i, i * PERIOD_MS) for i in range(known_by + LATENESS - 1, known_by + LATENESS + 1)))
    assert closed(g) == [(i, ("b",)) for i in range(11, known_by + LATENESS + 1)]


def test_messages_that_were_sent_again_do_not_set_the_log_time_back() -> None:
    g = after_a_pause()
    ahead_ms = 2 * LOG_APART_MS
    published(g, *(("a", i, i * PERIOD_MS + ahead_ms) for i in range(10, 12)))
    for i in range(
        12, 12 + 2 * LOG_CONFIRM
    ):  # each second one is far behind, and each other one tells that all is well
        published(g, ("b", i, i * PERIOD_MS), ("a", i, i * PERIOD_MS + ahead_ms))
    assert g.log_ms == (11 + 2 * LOG_CONFIRM) * PERIOD_MS + ahead_ms
    assert closed(g)[-1] == (11 + 2 * LOG_CONFIRM, ())


def test_a_pause_of_everybody_counts_for_a_second() -> None:
    g = lanes()
    published(g, *((name, i, i * PERIOD_MS) for i in range(4) for name in ("a", "b")))
    g.close()
    published(g, ("a", 4, 900_000), ("b", 4, 900_010), ("a", 5, 900_020))
    assert closed(g) == [(4, ())]


def test_with_long_ticks_the_time_between_them_is_no_pause() -> None:
    g = Gate(10 * PERIOD_MS * 1_000_000, LATENESS, max_ahead=1000, grace=2)
    at = [(name, i, i * 10 * PERIOD_MS) for i in range(4) for name in ("a", "b")]
    published(g, *at)
    g.close()
    published(g, *(("a", i, i * 10 * PERIOD_MS) for i in range(4, 4 + LATENESS)))
    assert closed(g)[0] == (4, ("b",))


def test_lanes_that_are_known_to_be_there_are_waited_for_before_they_speak() -> None:
    g = lanes("a", "b", "gone")
    published(g, *(("a", i, 10 * i) for i in range(60)))  # the whole backlog
    assert closed(g) == []
    assert set(published(g, *(("b", i, 600 + 10 * i) for i in range(60)))) == {"ok"}
    assert closed(g) == []
    published(g, *((name, 60 + i, 1200 + i * PERIOD_MS) for i in range(4) for name in ("a", "b")))
    assert closed(g) == [(i, ("gone",)) for i in range(64)]


def test_a_lane_that_is_gone_is_missed_until_it_is_forgotten() -> None:
    g = lanes()
    g.forget = 20
    published(g, *((name, i, i * PERIOD_MS) for i in range(4) for name in ("a", "b")))
    published(g, *(("a", i, i * PERIOD_MS) for i in range(4, 40)))
    missed = [index for index, missing in closed(g) if missing]
    published(g, *(("a", i, i * PERIOD_MS) for i in range(40, 50)))
    assert missed == list(range(4, 25))
    assert closed(g) == [(i, ()) for i in range(40, 50)]


logged = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 60), st.integers(0, 2500)), max_size=60)


@given(logged, st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)))
def test_how_the_log_is_cut_into_batches_changes_nothing(
    messages: list[tuple[str, int, int]], one: set[int], other: set[int]
) -> None:
    def run(cuts: set[int]) -> tuple[list[str], list[Tick]]:
        g, verdicts, ticks, now_ms = lanes("a", "b"), list[str](), list[Tick](), 0
        for i, (name, index, gap_ms) in enumerate(messages):
            now_ms += gap_ms
            verdicts += published(g, (name, index, now_ms))
            if i in cuts:
                ticks += g.close()
        return verdicts, ticks + g.close()

    assert run(one) == run(other)


def test_a_source_that_was_given_up_is_waited_for_again_though_others_were_first() -> None:
    g = running("a", "b")
    arrive(g, *(("a", i) for i in range(11, 31)))
    assert [t.missing for t in g.close()][-1] == ("b",)
    arrive(g, ("a", 31))
    assert [t.index for t in g.close()][-1] == 31, "nobody waits for b"
    assert g.arrive("b", 31) == "late"
    arrive(g, ("a", 32))
    assert g.close() == [], "b is back"
    assert g.arrive("b", 32) == "ok"
    assert g.close() == [Tick(index=32, period_ns=10, late=1)]


def test_a_source_that_is_far_behind_is_not_waited_for() -> None:
    g = running("a", "b")
    arrive(g, *(("a", i) for i in range(11, 31)))
    g.close()
    assert g.arrive("b", 30 - LATENESS) == "late"
    arrive(g, ("a", 31))
    assert [t.index for t in g.close()] == [31]
