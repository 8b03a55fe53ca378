"""Maps errors of cloud APIs to rejections, and retries throttled calls."""

import random
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from flyball_actuators.platforms.base import PlatformError, Rejected

T = TypeVar("T")
TRIES = 5
BACKOFF_S = (0.2, 3.0)


class Throttled(Exception):
    """The cloud throttled a call and did nothing."""


def retry_throttled(call: Callable[[], T]) -> T:
    """Make a call, and repeat it after a random wait while it is :class:`Throttled`.

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
    """A cloud's remedies for a failed login, a missing permission, and a wrong request."""

    log_in: str
    right: str
    request: str


def rejected(status: int, message: str, scarcity: str, remedies: Remedies) -> Rejected:
    """Rejection by HTTP status; ``scarcity`` is the remedy if the cloud lacks capacity, empty otherwise.

    Raises :class:`Throttled`, and :class:`PlatformError` if the effect of the call is unknown.
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
