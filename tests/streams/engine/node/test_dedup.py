"""Every frame is used once, and every frame that never came is counted."""

from hypothesis import given, strategies as st

from flyball_streams.engine.node.dedup import WINDOW, Sequence


def start(seq: int = 0, *, boot: str = "b", epoch: int = 1, time_ns: int = 1000) -> Sequence:
    return Sequence(boot, epoch, seq, time_ns + seq, first=seq)


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[int, list[int]]:
    """First number, and later ones: some lost, some repeated, none moved further than the window."""
    first = draw(st.integers(0, 3))
    sent = range(first + 1, first + draw(st.integers(1, 150)))
    kept = [seq for seq in sent if draw(st.integers(0, 9))]
    again = [seq for seq in kept if not draw(st.integers(0, 5))]
    placed = [(seq + draw(st.integers(0, WINDOW // 2 - 1)), i, seq) for i, seq in enumerate(kept + again)]
    return first, [seq for _, _, seq in sorted(placed)]


@given(arrivals())
def test_a_set_says_the_same(case: tuple[int, list[int]]) -> None:
    first, order = case
    sequence = start(first)
    seen, gaps = {first}, 0
    for seq in order:
        verdict, missing = sequence.accept("b", 1, seq, 1000 + seq)
        assert verdict == ("duplicate" if seq in seen else "new")
        seen.add(seq)
        gaps += missing
    assert gaps == max(seen) - first + 1 - len(seen)


def test_a_frame_from_before_the_lane_began_is_used_and_closes_no_gap() -> None:
    sequence = start(10)
    assert sequence.accept("b", 1, 9, 1009) == ("new", 0)
    assert sequence.accept("b", 1, 9, 1009) == ("duplicate", 0)


def test_what_is_older_than_the_window_is_not_used_because_nobody_knows() -> None:
    sequence = start(0)
    sequence.accept("b", 1, WINDOW + 1, 2000)
    assert sequence.accept("b", 1, 1, 1001) == ("stale", 0)


def test_a_restarted_agent_is_received_and_what_it_lost_is_counted() -> None:
    sequence = start(500)
    assert sequence.accept("b", 2, 3, 2000) == ("new", 3)
    assert [sequence.accept("b", 2, seq, 2000) for seq in (0, 1, 2)] == [("new", -1)] * 3
    assert sequence.accept("b", 1, 501, 1501) == ("stale", 0)


def test_a_rebooted_node_is_received() -> None:
    assert start(500).accept("b2", 2, 0, 2000) == ("new", 0)


def test_an_agent_that_lost_its_count_of_starts_is_received() -> None:
    sequence = start(500, epoch=57)
    assert sequence.accept("b", 1, 0, 2000) == ("new", 0)
    assert sequence.accept("b", 57, 501, 2001) == ("stale", 0)  # the old run is over, whatever it still sends


def test_an_agent_that_always_starts_at_the_same_epoch_is_received() -> None:
    sequence = start(500)
    assert sequence.accept("b", 1, 0, 2000) == ("new", 0)
    assert sequence.accept("b", 1, 1, 2001) == ("new", 0)
    assert sequence.accept("b", 1, 1, 2001) == ("duplicate", 0)


def test_a_restart_with_the_clock_set_back_is_received() -> None:
    assert start(500).accept("b", 2, 0, 5) == ("new", 0)


def test_an_older_run_that_was_never_seen_is_stale() -> None:
    assert start(500, epoch=7).accept("b", 6, 3, 1000) == ("stale", 0)
