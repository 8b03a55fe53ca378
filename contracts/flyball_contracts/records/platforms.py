"""Whether a platform answers its actuator."""

from flyball_contracts.records.base import Record, TimeNs


class PlatformStatus(Record, frozen=True, kw_only=True):
    """The circuit breaker of an actuator for a platform: published when it opens or closes, and each minute while open.

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
