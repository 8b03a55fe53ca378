r"""The record format of ``/dev/kmsg``: ``priority,sequence,microseconds,flags[,...];text``.

See Documentation/ABI/testing/dev-kmsg of the kernel. Lines that begin with a blank belong to the record before and
hold its properties; bytes that cannot be printed are written as ``\xNN`` and stay so.
"""

from typing import NamedTuple

_SEVERITIES = 8  # the priority is severity + 8 * facility, as in syslog


class LogRecord(NamedTuple):
    """One record; ``time_us`` counts from the boot."""

    priority: int
    sequence: int
    time_us: int
    text: str

    @property
    def by_kernel(self) -> bool:
        """Whether the kernel wrote it: records of processes have another facility."""
        return self.priority < _SEVERITIES


def parse_record(line: bytes) -> LogRecord | None:
    """Record of a line, ``None`` for an invalid one."""
    head, semicolon, text = line.partition(b";")
    fields = head.split(b",")
    if not semicolon or len(fields) < 4 or not all(field.isdigit() for field in fields[:3]):
        return None
    priority, sequence, time_us = (int(field) for field in fields[:3])
    return LogRecord(priority, sequence, time_us, text.decode("utf-8", "replace"))
