"""Spreads calls that failed together, so that a platform that comes back does not get all of them at once."""

from zlib import crc32

_SHARE = 0.25


def longer(wait_s: float, *who: str) -> float:
    """``wait_s``, longer by up to a quarter; the extra depends only on ``who`` waits, so runs are reproducible."""
    return wait_s * (1.0 + _SHARE * crc32("/".join(who).encode()) / 2**32)
