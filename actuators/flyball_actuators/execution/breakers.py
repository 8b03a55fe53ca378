"""The circuit breakers of an actuator, by platform, and the actuator's reports about them."""

from collections.abc import Callable

from flyball_actuators.execution.breaker import Breaker
from flyball_actuators.platforms import Served
from flyball_contracts.ids import record_id
from flyball_contracts.records import PlatformStatus
from flyball_contracts.records.platforms import REPEAT_NS


class _Kept:
    """A breaker, and what was last reported about it."""

    def __init__(self, served: Served, instance: str, monotonic: Callable[[], float]) -> None:
        self.cells = ",".join(served.cells)
        self.driver = served.platform.name
        self.breaker = Breaker(self.driver, instance, monotonic)
        self.open = False
        self.since_ns = 0
        self.at_ns: int | None = None


class Breakers:
    """A breaker for each platform that was used; ``instance`` is the actuator's name."""

    def __init__(self, instance: str, monotonic: Callable[[], float]) -> None:
        self._instance, self._monotonic = instance, monotonic
        self._kept: dict[int, _Kept] = {}

    def of(self, served: Served) -> Breaker:
        """The breaker of a platform."""
        key = id(served.platform)
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = _Kept(served, self._instance, self._monotonic)
        return found.breaker

    @property
    def opened(self) -> int:
        """How often platforms were found not to answer."""
        return sum(kept.breaker.opened for kept in self._kept.values())

    def due(self, clock: Callable[[], int]) -> list[PlatformStatus]:
        """Reports that are due: of a first answer, and of breakers that have opened or closed or are still open."""
        return [self._report(kept, clock()) for kept in self._kept.values() if self._is_due(kept, clock)]

    @staticmethod
    def _is_due(kept: _Kept, clock: Callable[[], int]) -> bool:
        is_open = not kept.breaker.closed
        if kept.at_ns is None:
            return is_open or kept.breaker.has_answered  # another actuator may have left it open
        return is_open != kept.open or (is_open and not 0 <= clock() - kept.at_ns < REPEAT_NS)

    def _report(self, kept: _Kept, now_ns: int) -> PlatformStatus:
        failures, problem = kept.breaker.failures
        is_open = not kept.breaker.closed
        if kept.at_ns is None or is_open != kept.open:
            kept.since_ns = now_ns
        kept.open, kept.at_ns = is_open, now_ns
        subject = f"platform:{kept.driver}/{kept.cells}"
        return PlatformStatus(
            id=record_id("PlatformStatus", subject, self._instance, now_ns),
            subject=subject,
            driver=kept.driver,
            cells=kept.cells,
            actuator=self._instance,
            time_ns=now_ns,
            open=is_open,
            since_ns=kept.since_ns,
            failures=failures,
            opened=kept.breaker.opened,
            problem=problem if is_open else "",
        )
