"""Keeps the agent's resident memory small, on C libraries that have glibc's ``mallopt`` and ``malloc_trim``."""

import ctypes
import gc
from collections.abc import Callable

_M_TRIM_THRESHOLD, _M_ARENA_MAX = -1, -8
_ARENAS = 1
_KEPT_BYTES = 1 << 16
"""Free memory at the end of the arena that is kept; by default glibc keeps more with each large block that is freed."""


def share_one_arena() -> None:
    """Let threads that start from now on allocate from one arena: each of librdkafka's would keep its own free memory.

    The agent allocates too little for threads to wait for each other there. What is freed goes back to the system.
    """
    if mallopt := _of_libc("mallopt"):
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def give_back() -> None:
    """Give memory that only the start needed back to the system."""
    gc.collect()
    if trim := _of_libc("malloc_trim"):
        trim(0)


def _of_libc(name: str) -> Callable[..., int] | None:
    """A function of the C library, ``None`` where it has none of that name or is linked statically."""
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except OSError:
        return None
