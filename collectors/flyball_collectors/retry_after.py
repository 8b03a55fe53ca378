"""The ``Retry-After`` header of a response (RFC 9110, 10.2.3)."""

from email.utils import parsedate_to_datetime

from flyball_contracts.ids import NS_PER_S


def retry_after_s(text: str | None, now_ns: int, longest_s: float) -> float | None:
    """Seconds to wait from ``now_ns`` on, in 0..``longest_s``; ``None`` if the header is absent or invalid."""
    if not text:
        return None
    try:
        wait_s = float(int(text)) if text.isdecimal() else parsedate_to_datetime(text).timestamp() - now_ns / NS_PER_S
    except (ValueError, OverflowError):
        return None
    return min(max(wait_s, 0.0), longest_s)
