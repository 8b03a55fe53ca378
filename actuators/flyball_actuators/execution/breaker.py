"""A circuit breaker for each platform: a platform that does not respond gets few calls, one at a time."""

import logging
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from flyball_actuators.execution.jitter import longer
from flyball_actuators.platforms import PlatformError
from flyball_actuators.platforms.calls import StoppedError

_LOG = logging.getLogger(__name__)
FAILURES = 5
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0

P = ParamSpec("P")
T = TypeVar("T")


class Breaker:
    """Opens after :data:`FAILURES` calls in a row without an answer, and closes with the first answer after that.

    While it is open, one probe at a time is admitted, after a wait that doubles from :data:`FIRST_WAIT_S` to
    :data:`LONGEST_WAIT_S` seconds; the probes of several actuators (``instance``) are spread. A refusal by the platform
    is an answer. ``opened`` counts how often it has opened. Any thread may call.
    """

    def __init__(self, name: str, instance: str, monotonic: Callable[[], float]) -> None:
        self.opened = 0
        self.has_answered = False
        self._name, self._instance, self._monotonic = name, instance, monotonic
        self._lock = threading.Lock()
        self._failures = 0
        self._problem = ""
        self._wait_s = 0.0
        self._next_s = 0.0
        self._probing = False

    @property
    def closed(self) -> bool:
        """Whether all calls are admitted."""
        return self._failures < FAILURES

    @property
    def failures(self) -> tuple[int, str]:
        """Calls in a row without an answer, and the last failure."""
        with self._lock:
            return self._failures, self._problem

    @property
    def why(self) -> str:
        """Why no call is made now, with the remedy."""
        return (
            f"platform {self._name} gave no answer {self._failures} times in a row, so calls are held back, and one is "
            f"tried every {self._wait_s:g} s; check that it runs and can be reached; its last failure: {self._problem}"
        )

    @property
    def admits(self) -> bool:
        """Whether an observation may be made now: the breaker is closed, or a probe is due."""
        return self.closed or (not self._probing and self._monotonic() >= self._next_s)

    def look(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Make a call that changes nothing; :class:`PlatformError` if none is admitted now."""
        with self._lock:
            if not self.admits:
                raise PlatformError(self.why)
            self._probing = not self.closed
        return self.call(function, *arguments, **named)

    def call(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Make a call and count whether it was answered."""
        try:
            answer = function(*arguments, **named)
        except StoppedError:  # shows nothing about the platform
            with self._lock:
                self._probing = False
            raise
        except Exception as error:
            self._failed(str(error) or type(error).__name__)
            raise
        self._answered()
        return answer

    def _failed(self, problem: str) -> None:
        with self._lock:
            was_closed = self.closed
            self._failures += 1
            self._problem = problem
            if self.closed:
                return
            if was_closed or self._probing:
                self._wait_s = FIRST_WAIT_S if was_closed else min(2 * self._wait_s, LONGEST_WAIT_S)
                self._next_s = self._monotonic() + longer(self._wait_s, self._instance, self._name)
            self._probing = False
            self.opened += was_closed
        if was_closed:
            _LOG.warning("%s", self.why)

    def _answered(self) -> None:
        with self._lock:
            was_closed = self.closed
            self._failures, self._probing, self.has_answered = 0, False, True
        if not was_closed:
            _LOG.warning("platform %s answers again", self._name)
