"""The circuit breakers of an actuator, by platform, and what it reports of them."""

from collections.abc import Callable

from flyball_actuators.execution.breaker import Breaker
from flyball_actuators.platforms import Served
from flyball_contracts.ids import record_id
from flyball_contracts.records import PlatformStatus

AGAIN_S = 60.0
"""An open breaker is reported again after this time."""


class _Kept:
    """A breaker, and what was last reported of it."""

    def __init__(self, served: Served, monotonic: Callable[[], float]) -> None:
        self.cells = ",".join(served.cells)
        self.driver = served.platform.name
        self.breaker = Breaker(self.driver, monotonic)
        self.open = False
        self.since_ns = 0
        self.at_s = 0.0


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
            found = self._kept[key] = _Kept(served, self._monotonic)
        return found.breaker

    @property
    def opened(self) -> int:
        """How often platforms were found not to answer."""
        return sum(kept.breaker.opened for kept in self._kept.values())

    def due(self, clock: Callable[[], int]) -> list[PlatformStatus]:
        """Reports that are due: of breakers that have opened or closed, and of those that are still open."""
        return [self._report(kept, clock()) for kept in self._kept.values() if self._is_due(kept)]

    def _is_due(self, kept: _Kept) -> bool:
        is_open = not kept.breaker.closed
        return is_open != kept.open or (is_open and self._monotonic() >= kept.at_s + AGAIN_S)

    def _report(self, kept: _Kept, now_ns: int) -> PlatformStatus:
        failures, problem = kept.breaker.failures
        is_open = not kept.breaker.closed
        kept.since_ns = kept.since_ns if is_open == kept.open else now_ns
        kept.open, kept.at_s = is_open, self._monotonic()
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
