"""A tick loop without drift: ticks are the multiples of the period since the epoch, whatever reading costs."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from flyball_contracts.ids import NS_PER_S


class Clock(NamedTuple):
    """Two clocks in nanoseconds: the wall clock, which may be set, and a monotonic one."""

    wall_ns: Callable[[], int] = time.time_ns
    monotonic_ns: Callable[[], int] = time.monotonic_ns


class Tick(NamedTuple):
    """One tick.

    ``time_ns`` is a multiple of the period. ``period_ns`` is the time since the tick before, the period itself for the
    first. ``skipped`` counts the ticks in between that were missed because work or sleep took too long. ``jump_ns`` is
    how far the wall clock was set since the tick before, 0 within half a period.
    """

    time_ns: int
    period_ns: int
    skipped: int
    jump_ns: int


def ticks(period: Callable[[], int], clock: Clock, wait: Callable[[float], bool]) -> Iterator[Tick]:
    """Yield ticks until ``wait`` returns true, the first at the next multiple of the period.

    ``period`` returns the period in nanoseconds and is called again after each tick. ``wait`` sleeps for some seconds
    and returns true to stop: ``threading.Event.wait``.
    """
    period_ns = period()
    due_ns = (clock.wall_ns() // period_ns + 1) * period_ns
    last: tuple[int, int, int] | None = None  # tick, wall and monotonic time when it was taken
    while True:
        now_ns = clock.wall_ns()
        while now_ns < due_ns:
            if due_ns - now_ns > 2 * period_ns:  # the clock was set back: do not wait until it has caught up
                due_ns = (now_ns // period_ns + 1) * period_ns
            if wait((due_ns - now_ns) / NS_PER_S):
                return
            now_ns = clock.wall_ns()
        time_ns = now_ns // period_ns * period_ns
        monotonic_ns = clock.monotonic_ns()
        if last is None:
            yield Tick(time_ns, period_ns, 0, 0)
        else:
            last_ns, last_wall_ns, last_monotonic_ns = last
            passed_ns = monotonic_ns - last_monotonic_ns
            jump_ns = now_ns - last_wall_ns - passed_ns
            if 2 * abs(jump_ns) > period_ns:
                yield Tick(time_ns, max(passed_ns, 1), max(passed_ns // period_ns - 1, 0), jump_ns)
            else:
                yield Tick(time_ns, time_ns - last_ns, max((time_ns - last_ns) // period_ns - 1, 0), 0)
        last = time_ns, now_ns, monotonic_ns
        period_ns = period()
        due_ns = (time_ns // period_ns + 1) * period_ns
