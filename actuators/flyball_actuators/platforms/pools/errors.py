"""What the answers of a cloud mean for a decision."""

import random
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from flyball_actuators.platforms.base import PlatformError, Rejected

T = TypeVar("T")
TRIES = 5
BACKOFF_S = (0.2, 3.0)


class Throttled(Exception):
    """The cloud did nothing, because too much is asked of it."""


def retry_throttled(call: Callable[[], T]) -> T:
    """Make a call, and make it again after a random wait while it is :class:`Throttled`.

    The n-th wait is at most ``BACKOFF_S[0] * 2**n`` and at most ``BACKOFF_S[1]``. Raises :class:`PlatformError` after
    ``TRIES`` tries.
    """
    for attempt in range(TRIES - 1):
        try:
            return call()
        except Throttled:
            time.sleep(random.uniform(0, min(BACKOFF_S[1], BACKOFF_S[0] * 2**attempt)))
    try:
        return call()
    except Throttled as error:
        raise PlatformError(f"{error}; throttled {TRIES} times") from error


class Remedies(NamedTuple):
    """What helps in one cloud: against a log-in that failed, a missing right, and a wrong request."""

    log_in: str
    right: str
    request: str


def rejected(status: int, message: str, scarcity: str, remedies: Remedies) -> Rejected:
    """Why a cloud did nothing, by the HTTP status of its answer; ``scarcity`` helps where it has none to give.

    Raises :class:`Throttled`, and :class:`PlatformError` where it is not known what the cloud did.
    """
    if status == 429:
        raise Throttled(message)
    if status >= 500 or not status:
        raise PlatformError(f"{message}: HTTP {status}")
    if scarcity:
        return Rejected("platform", f"{message}; {scarcity}")
    if status == 401:
        return Rejected("platform", f"{message}; {remedies.log_in}")
    if status == 403:
        return Rejected("platform", f"{message}; {remedies.right}")
    if status == 404:
        return Rejected("unknown_target", f"{message}; correct the pool in actuator.platforms")
    if status in (409, 412):
        return Rejected("conflict", f"{message}; decide again on what is there now")
    return Rejected("invalid", f"{message}; {remedies.request}")
