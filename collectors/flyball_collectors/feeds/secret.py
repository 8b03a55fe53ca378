"""Secrets from the environment."""

from collections.abc import Mapping

from flyball_contracts.errors import ConfigError


def secret(environ: Mapping[str, str], variable: str, key: str) -> str:
    """Value of an environment variable; raises :class:`ConfigError` that names ``key`` but never the value."""
    value = environ.get(variable, "").strip()
    if not value:
        raise ConfigError(f"{key}: the environment variable {variable} is not set; put the secret there")
    if not (value.isascii() and value.isprintable()):
        raise ConfigError(f"{key}: the environment variable {variable} holds characters that no HTTP header may have")
    return value
