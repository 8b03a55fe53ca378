"""Common base of all records.

Times are nanoseconds since the Unix epoch (UTC) as ``int``, durations are seconds as ``float``, ratios lie in 0..1, and
money is USD. Records are frozen, reject unknown types, and ignore unknown *fields*, so that an old reader accepts a
newer writer's records.
"""

from typing import Annotated

import msgspec

from flyball_contracts.ids import MAX_TIME_NS

TimeNs = Annotated[int, msgspec.Meta(ge=0, le=MAX_TIME_NS, extra_json_schema={"format": "int64"})]
StepS = Annotated[float, msgspec.Meta(ge=0.001, le=1e9)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
TableOffsets = dict[str, tuple[Offset, ...]]
"""For each table's topic, the first unread offset of each partition."""


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Base of every JSON record on a topic."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the values nested inside records."""


class Evidence(Part, frozen=True, kw_only=True):
    """One number that supports a conclusion, with the record it was read from.

    ``unit`` is UCUM; ``record`` is the id of a record, or empty if the number comes from a setting.
    """

    name: str
    value: float
    unit: str = "1"
    expected: float | None = None
    record: str = ""


class Tick(Part, frozen=True, kw_only=True):
    """One event-time tick and what closed it.

    ``index * period_ns`` is its start. ``closed_by`` is ``complete`` when every known source reported and
    ``watermark`` when the others had moved past the allowed lateness; then ``missing`` names the silent sources.
    ``late`` counts the messages refused since the tick before because their tick had closed.
    """

    index: Annotated[int, msgspec.Meta(ge=0, le=MAX_TIME_NS)]
    period_ns: Annotated[int, msgspec.Meta(ge=1, le=MAX_TIME_NS)]
    closed_by: str = "complete"
    missing: tuple[str, ...] = ()
    late: int = 0

    @property
    def end_ns(self) -> int:
        """First nanosecond after the tick."""
        return (self.index + 1) * self.period_ns
