"""32-bit counters of bytes, which a fast link wraps many times between two reads."""

from collections.abc import Callable

from flyball_collectors.base import NAN

_TURN = 1 << 32


class Wraps:
    """One counter, extended beyond 32 bits.

    The number of wraps since the previous read follows from the rate, if another source has it. Without one the
    increase is known only if the link, at ``fastest`` bytes per second, could not wrap it.
    """

    def __init__(self, fastest: Callable[[], float | None]) -> None:
        self._fastest = fastest
        self._last: int | None = None
        self._last_s = 0.0
        self._total = 0.0

    def total(self, low: int, now_s: float, rate: float | None) -> float:
        """Bytes since the first read by the lower 32 bits and the mean ``rate`` since the last; NaN if unknown."""
        last, passed_s = self._last, now_s - self._last_s
        self._last, self._last_s = low, now_s
        if last is None:
            return self._total
        increase = (low - last) % _TURN
        if rate is not None:
            increase += max(0, round((rate * passed_s - increase) / _TURN)) * _TURN
        else:
            fastest = self._fastest()
            if fastest is None or fastest * passed_s >= _TURN:
                return NAN
        self._total += increase
        return self._total
