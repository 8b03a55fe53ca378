"""Secrets from the environment."""

from collections.abc import Mapping

from flyball_contracts.errors import ConfigError


def secret(environ: Mapping[str, str], variable: str, key: str, *, in_header: bool = False) -> str:
    """Value of an environment variable, without a line end; one ``in_header`` must be valid in an HTTP header.

    Raises :class:`ConfigError`, which names ``key`` but never the value.
    """
    value = environ.get(variable, "").strip("\r\n")
    if not value:
        raise ConfigError(f"{key}: the environment variable {variable} is not set; put the secret there")
    if in_header and not (value.isascii() and value.isprintable()):
        raise ConfigError(f"{key}: the environment variable {variable} holds characters that no HTTP header may have")
    return value
