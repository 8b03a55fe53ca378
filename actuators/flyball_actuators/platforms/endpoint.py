"""The address of an HTTP server that a platform speaks to."""

from urllib.parse import SplitResult, urlsplit

from flyball_contracts.errors import ConfigError

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def checked(url: str, where: str, example: str) -> SplitResult:
    """The parts of an HTTP address; raises :class:`ConfigError`, with ``example`` as a remedy, where it is none."""
    try:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    except ValueError:
        pass
    raise ConfigError(f"{where}.url: {url!r} is not the address of an HTTP server; pass such as {example}")


def trusted(url: str, where: str, example: str) -> SplitResult:
    """The same, and :class:`ConfigError` where what is sent there would leave this machine without TLS."""
    parts = checked(url, where, example)
    if parts.scheme == "http" and not is_local(parts):
        raise ConfigError(f"{where}.url: {url}: commands and credentials leave this machine over TLS alone; use https")
    return parts


def is_local(parts: SplitResult) -> bool:
    """Whether the server is on this machine."""
    return parts.hostname in _LOOPBACK
