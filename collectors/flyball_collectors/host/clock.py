"""How far this clock is off, as the kernel's NTP state says."""

import ctypes
from pathlib import Path

from flyball_collectors.base import Values

_UNSYNCHRONISED, _NANOSECONDS = 0x0040, 0x2000  # bits of status
_TIME_ERROR = 5
_LONG = ctypes.c_long


class Timex(ctypes.Structure):
    """``struct timex`` of the kernel; all zero, it asks and sets nothing."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", _LONG), ("frequency", _LONG), ("max_error", _LONG), ("estimated_error", _LONG),
        ("status", ctypes.c_int),
        ("others", _LONG * 5), ("tick", _LONG), ("pps", _LONG * 2), ("shift", ctypes.c_int), ("pps_more", _LONG * 5),
        ("tai", ctypes.c_int), ("padding", ctypes.c_int * 11),
    )  # fmt: skip


def read_clock(_: Path) -> Values:
    """Offset of this clock in seconds while a time service keeps it; always the real clock, whatever the root."""
    try:
        adjtimex = ctypes.CDLL(None).adjtimex
    except AttributeError:  # not Linux
        return {}
    timex = Timex()
    return offset_of(timex, adjtimex(ctypes.byref(timex)))


def offset_of(timex: Timex, state: int) -> Values:
    """Offset that the kernel's answer means: what it still has to add, hence with the other sign."""
    if state < 0 or state == _TIME_ERROR or timex.status & _UNSYNCHRONISED:
        return {}
    return {"flyball.agent.clock.offset": -timex.offset / (1e9 if timex.status & _NANOSECONDS else 1e6)}
