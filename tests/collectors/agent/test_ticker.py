"""The tick loop under a clock that the tests turn: nothing here sleeps."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from hypothesis import given, strategies as st

from flyball_collectors.agent.ticker import Clock, Tick, ticks

S = 1_000_000_000
START_NS = 1_700_000_000 * S + 123_456_789


class FakeTime:
    """Two clocks that only `pass_ns` and `wait` move; `wait` ends the loop after `waits` calls."""

    def __init__(self, start_ns: int = START_NS) -> None:
        self.wall_ns = start_ns
        self.monotonic_ns = 0
        self.clock = Clock(lambda: self.wall_ns, lambda: self.monotonic_ns)

    def pass_ns(self, by_ns: int) -> None:
        self.wall_ns += by_ns
        self.monotonic_ns += by_ns

    def wait(self, seconds: float) -> bool:
        assert seconds > 0
        self.pass_ns(round(seconds * S))
        return False


def run(time: FakeTime, period_ns: int, work: list[Callable[[], None]]) -> list[Tick]:
    """Ticks of a loop that does one piece of work after each."""
    seen: list[Tick] = []
    for tick, piece in zip(ticks(lambda: period_ns, time.clock, time.wait), work, strict=False):
        assert tick.time_ns <= time.wall_ns < tick.time_ns + period_ns
        seen.append(tick)
        piece()
    return seen


@given(
    period_ns=st.integers(S // 100, 10 * S),
    start_ns=st.integers(1, 2**61),
    work_ns=st.lists(st.integers(0, 40 * S), min_size=1, max_size=40),
)
def test_ticks_lie_on_multiples_and_account_for_all_time(period_ns: int, start_ns: int, work_ns: list[int]) -> None:
    time = FakeTime(start_ns)
    seen = run(time, period_ns, [partial(time.pass_ns, by_ns) for by_ns in work_ns])
    assert len(seen) == len(work_ns)
    assert start_ns < seen[0].time_ns <= start_ns + period_ns
    for before, tick in pairwise(seen):
        assert tick.time_ns % period_ns == 0
        assert tick.period_ns == tick.time_ns - before.time_ns == (tick.skipped + 1) * period_ns
        assert tick.jump_ns == 0
    # Work shorter than a period skips nothing, so the loop cannot drift.
    if all(by_ns < period_ns for by_ns in work_ns):
        assert sum(tick.skipped for tick in seen) == 0


def test_waking_early_waits_again() -> None:
    time = FakeTime()
    waits: list[float] = []

    def short_wait(seconds: float) -> bool:
        waits.append(seconds)
        return time.wait(seconds / 2 if seconds > 1e-3 else seconds)

    tick = next(ticks(lambda: S, time.clock, short_wait))
    assert tick.time_ns == START_NS // S * S + S
    assert len(waits) > 5


def test_it_ends_when_the_wait_reports_it() -> None:
    time = FakeTime()
    assert list(ticks(lambda: S, time.clock, lambda seconds: True)) == []


def test_a_clock_set_back_by_an_hour_does_not_stop_the_ticks() -> None:
    time = FakeTime()

    def set_back() -> None:
        time.pass_ns(S // 10)
        time.wall_ns -= 3600 * S

    first, second, third = run(time, S, [set_back, lambda: None, lambda: None])
    assert second.time_ns == first.time_ns - 3600 * S + S
    assert second.jump_ns == -3600 * S
    assert 0 < second.period_ns <= S
    assert (third.time_ns, third.jump_ns) == (second.time_ns + S, 0)


def test_a_clock_set_forward_is_a_jump_and_a_pause_is_not() -> None:
    time = FakeTime()

    def set_forward() -> None:
        time.wall_ns += 60 * S

    def pause() -> None:
        time.pass_ns(60 * S)

    _, jumped, paused = run(time, S, [set_forward, pause, lambda: None])
    assert (jumped.jump_ns, jumped.skipped) == (60 * S, 0)
    assert jumped.period_ns < 2 * S
    assert (paused.jump_ns, paused.skipped, paused.period_ns) == (0, 59, 60 * S)
