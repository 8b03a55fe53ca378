"""Gives back what decisions still hold on a platform after they have ended.

An operation gives back what it holds when it ends. It cannot do so if its outcome stayed unknown, or if its actuator
was told to end it without the platform. So the actuator checks, at the start and every few minutes, what the platforms
hold for which decisions, and looks up in the outcomes topic whether these decisions have ended: no process follows a
decision that has ended. Several actuators may check at once: the platform changes an object only if it is still as it
was read.
"""

import logging
import time
from collections.abc import Callable
from threading import Event, Thread

from flyball_actuators.audit import Trail
from flyball_actuators.ledger import ends_of
from flyball_actuators.platforms import Abandoning, Held, PlatformError, Platforms
from flyball_actuators.platforms.calls import StoppedError, recording_calls
from flyball_contracts.errors import Stopped, TransportError
from flyball_contracts.kafka import Settings

_LOG = logging.getLogger(__name__)
EVERY_S = 300.0
AGAIN_S = 30.0
"""Wait after a check that failed."""
_SLACK_S = 120.0  # the clocks of platform, broker and actuator may differ by this much
_LEAVE_S = 1.0
_MS = 1_000


class GivingBack:
    """Checks in a thread of its own; in dry run, or without platforms whose operations hold something, it does nothing.

    ``stopped`` returns why nothing may be changed in a cell, and ``follows`` whether this actuator follows a decision.
    """

    def __init__(
        self,
        platforms: Platforms,
        trail: Trail,
        settings: Settings,
        partitions: Callable[[], int],
        stopped: Callable[[str], str],
        follows: Callable[[str], bool],
        *,
        live: bool,
    ) -> None:
        self._platforms = platforms.abandoning if live else []
        self._trail, self._settings, self._partitions = trail, settings, partitions
        self._stopped, self._follows = stopped, follows
        self._stop = Event()
        self._searched_s: dict[str, float] = {}
        self._problem = ""
        self._thread = Thread(target=self._run, name="giving-back", daemon=True)

    def start(self) -> None:
        """Start checking: at once, then every few minutes."""
        if self._platforms:
            self._thread.start()

    def close(self) -> None:
        """Stop the thread; a call in progress may outlast this, but no further call is made."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_LEAVE_S)

    def _run(self) -> None:
        wait_s = 0.0
        while not self._stop.wait(wait_s):
            try:
                problem = self._look()
            except Stopped:
                return
            except TransportError as error:
                problem = str(error)
            except Exception as error:  # if the thread ended unnoticed, nothing would be given back any more
                _LOG.exception("what ended decisions hold cannot be given back")
                problem = f"{type(error).__name__}: {error}"
            if problem and problem != self._problem and not self._stop.is_set():
                _LOG.warning("what ended decisions hold is not all given back: %s; it is tried again", problem)
            self._problem, wait_s = problem, AGAIN_S if problem else EVERY_S

    def _look(self) -> str:
        """Give back what may be given back; return why some of it could not be, empty if all was."""
        problem, found = "", list[tuple[str, Abandoning, Held]]()
        for name, platform in self._platforms:
            try:
                for thing in platform.held():
                    if not self._follows(thing.decision):
                        found.append((name, platform, thing))
            except PlatformError as error:
                problem = problem or str(error)
        if not found:
            self._searched_s = {}
            return problem
        now_s = time.time()
        since_s = {thing.decision: self._searched_s.get(thing.decision, thing.since_ns / 1e9) for _, _, thing in found}
        since_ms = round((min(since_s.values()) - _SLACK_S) * _MS)
        ends = ends_of(since_s.keys(), self._settings, self._partitions(), since_ms, self._stop)
        for name, platform, thing in found:
            last = ends.final.get(thing.decision)
            if last is None:  # the decision is in progress, or not ours
                if thing.decision not in ends.seen and thing.decision not in self._searched_s:
                    _LOG.warning(
                        "platform %s: %s is held for decision %s, of which the outcomes say nothing, so it stays as it "
                        "is; see whether another Flyball works on it, and if none does, open it by hand",
                        name, thing.name, thing.decision,
                    )  # fmt: skip
                continue
            try:
                if self._give_back(name, platform, thing, last.cell):
                    _LOG.warning(
                        "platform %s: %s is given back: decision %s held it, and is %s: %s",
                        name, thing.name, thing.decision, last.status, last.detail or last.answer,
                    )  # fmt: skip
            except (PlatformError, StoppedError) as error:
                problem = problem or str(error)
        self._searched_s = {decision: now_s for decision in since_s if decision not in ends.final}
        return problem

    def _give_back(self, name: str, platform: Abandoning, thing: Held, cell: str) -> bool:
        with recording_calls(
            lambda call: self._trail.called(thing.decision, name, call),
            lambda: "the actuator ends" if self._stop.is_set() else self._stopped(cell),
        ):
            return platform.give_back(thing)
