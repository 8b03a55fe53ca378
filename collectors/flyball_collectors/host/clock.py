"""Offset of this clock, by the kernel's NTP state."""

import ctypes
from pathlib import Path

from flyball_collectors.base import Values

_UNSYNCHRONISED, _NANOSECONDS = 0x0040, 0x2000  # bits of status
_TIME_ERROR = 5
_LONG = ctypes.c_long


class Timex(ctypes.Structure):
    """``struct timex`` of the kernel; all zero, it queries and sets nothing."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", _LONG), ("frequency", _LONG), ("max_error", _LONG), ("estimated_error", _LONG),
        ("status", ctypes.c_int),
        ("others", _LONG * 5), ("tick", _LONG), ("pps", _LONG * 2), ("shift", ctypes.c_int), ("pps_more", _LONG * 5),
        ("tai", ctypes.c_int), ("padding", ctypes.c_int * 11),
    )  # fmt: skip


def read_clock(_: Path) -> Values:
    """Offset of this clock in seconds while a time service controls it; always of the real clock, whatever the root."""
    try:
        adjtimex = ctypes.CDLL(None).adjtimex
    except AttributeError:  # not Linux
        return {}
    timex = Timex()
    return offset_of(timex, adjtimex(ctypes.byref(timex)))


def offset_of(timex: Timex, state: int) -> Values:
    """Offset of the kernel's answer: the correction still to be added, with the opposite sign."""
    if state < 0 or state == _TIME_ERROR or timex.status & _UNSYNCHRONISED:
        return {}
    return {"flyball.agent.clock.offset": -timex.offset / (1e9 if timex.status & _NANOSECONDS else 1e6)}
