"""The endpoint of a cloud, where it is not the public one."""

from urllib.parse import urlsplit

from flyball_contracts.errors import ConfigError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def checked(url: str, where: str) -> str:
    """An endpoint that may be spoken to: over TLS, or on this machine; :class:`ConfigError` for any other."""
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known, parts = False, urlsplit("")
    if not known:
        raise ConfigError(f"{where}.url: {url!r} is no endpoint; pass such as https://ec2.example, or leave it out")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise ConfigError(f"{where}.url: {url}: credentials leave this machine over TLS alone; use https")
    return url


def local(url: str) -> bool:
    """Whether an endpoint is on this machine, without TLS."""
    return url.startswith("http://")
