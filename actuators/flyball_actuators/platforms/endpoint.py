"""Addresses of the HTTP servers that platforms connect to."""

from urllib.parse import SplitResult, urlsplit

from flyball_contracts.errors import ConfigError
from flyball_contracts.security import clear


def checked(url: str, where: str, example: str) -> SplitResult:
    """Parse an HTTP address; raises :class:`ConfigError`, with ``example`` in the remedy, for anything else."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass
    raise ConfigError(f"{where}.url: {url!r} is not the address of an HTTP server; pass such as {example}")


def trusted(url: str, where: str, example: str) -> SplitResult:
    """As :func:`checked`; also raises :class:`ConfigError` for a remote server without TLS."""
    parts = checked(url, where, example)
    if parts.scheme == "http" and not is_local(parts):
        raise ConfigError(f"{where}.url: {url}: commands and credentials leave this machine over TLS alone; use https")
    return parts


def is_local(parts: SplitResult) -> bool:
    """Whether the server is on this machine."""
    return clear.is_local(parts.hostname)
