"""Secrets, which come from files or the environment and never stand in the configuration."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from flyball_contracts.errors import ConfigError

V = TypeVar("V")
_FILE = "file:"
_SECRET = re.compile(r"(^|\.)(password|passphrase|secret|key\.pem)$")


def secret(environ: Mapping[str, str], variable: str, key: str, *, in_header: bool = False) -> str:
    """Value of an environment variable, without a line end; one ``in_header`` must be valid in an HTTP header.

    Raises :class:`ConfigError`, which names ``key`` but never the value.
    """
    value = secret_if_given(environ, variable, key)
    if not value:
        raise ConfigError(
            f"{key}: the environment variable {variable} is not set; put the secret there, or into a file that "
            f"{variable}_FILE names"
        )
    if in_header and not (value.isascii() and value.isprintable()):
        raise ConfigError(f"{key}: the environment variable {variable} holds characters that no HTTP header may have")
    return value


def secret_if_given(environ: Mapping[str, str], variable: str, key: str) -> str:
    """Value of an environment variable, or the content of the file that ``VARIABLE_FILE`` names; empty without both."""
    value = environ.get(variable, "").strip("\r\n")
    path = environ.get(f"{variable}_FILE", "")
    return value if value or not path else _content(path, f"{key}: {variable}_FILE")


def inline_secret(client: Mapping[str, str]) -> str:
    """Name of a setting of librdkafka that is a secret and not the path of a file; empty if there is none."""
    return next(
        (name for name, value in client.items() if _SECRET.search(name) and not value.startswith(f"{_FILE}/")), ""
    )


def with_secrets(settings: Mapping[str, V]) -> dict[str, V | str]:
    """Settings of librdkafka with the contents of the files that secrets name as ``file:/PATH``, read now.

    Raises :class:`ConfigError`.
    """
    return {
        name: _content(value.removeprefix(_FILE), f"kafka.client: {name}")
        if _SECRET.search(name) and isinstance(value, str) and value.startswith(f"{_FILE}/")
        else value
        for name, value in settings.items()
    }


def _content(path: str, key: str) -> str:
    """A file's content without its line end."""
    try:
        value = Path(path).read_text(encoding="utf-8").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{key}: {path}: {reason}; put the secret there, where this user may read it") from error
    if not value:
        raise ConfigError(f"{key}: {path}: it is empty; put the secret there")
    return value
