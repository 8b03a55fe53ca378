"""Whether a platform answers its actuator."""

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records.base import Record, TimeNs

REPEAT_NS = 60 * NS_PER_S
"""An open breaker is published again after this time."""


class PlatformStatus(Record, frozen=True, kw_only=True):
    """The circuit breaker of an actuator for a platform.

    It is published at the platform's first answer, when it opens or closes, and each minute while it is open. An open
    breaker that is no longer published is in an unknown state: its actuator may have ended.

    ``subject`` is ``platform:DRIVER/CELLS``, with the glob patterns of the ``cells`` that the platform serves. While
    the breaker is ``open``, since ``since_ns``, calls are held back after ``failures`` in a row without an answer;
    ``problem`` is the last failure. ``opened`` counts how often it has opened since the actuator was started.
    """

    id: str
    subject: str
    driver: str
    cells: str
    actuator: str
    time_ns: TimeNs
    open: bool
    since_ns: TimeNs
    failures: int
    opened: int
    problem: str = ""
