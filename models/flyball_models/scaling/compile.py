"""Compilation of policies to machine code by numba, without the interpreter's lock.

Cached code must not outlive its source, and numba checks only the file of the function itself. So steps are not cached;
only the entry points that call them are, under a key that includes :func:`sources`.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba  # pyright: ignore[reportMissingTypeStubs]

P = ParamSpec("P")
R = TypeVar("R")
_njit: Any = cast("Any", numba).njit


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function of numbers and arrays; it may be called from other compiled functions."""
    return cast("Callable[P, R]", _njit(nogil=True)(function))


def kept(function: Callable[P, R]) -> Callable[P, R]:
    """Compile and cache on disk; called functions must be in the same file, or :func:`sources` in the closure.

    If the cache cannot be written, as on a read-only file system, it is compiled for this process alone.
    """
    try:
        return cast("Callable[P, R]", _njit(cache=True, nogil=True)(function))
    except RuntimeError:
        return compiled(function)


def sources(*more: Path) -> int:
    """Hash of all files of the policies and of `more`: a closure over it is recompiled when one of them changes.

    The constants that policies share with the worker's columns are in the folder beside theirs.
    """
    here = Path(__file__).parent
    paths = (*sorted(here.glob("*.py")), *sorted((here.parent / "sizing").glob("*.py")), *more)
    text = b"".join(path.read_bytes() for path in paths)
    return int.from_bytes(hashlib.sha256(text).digest()[:6], "big")
