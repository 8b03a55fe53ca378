"""Tokens and errors of requests, without the HTTP client: most nodes scrape nothing, and the client costs memory."""

import os
from collections.abc import Callable
from pathlib import Path

Token = Callable[[], str]


class FetchError(Exception):
    """A missing or unusable response; its text names the place and the remedy."""


class MissingError(FetchError):
    """The server has nothing at that place."""


def token_of(file: str) -> Token:
    """Function that returns the bearer token: the content of a file, read each time; none without a file.

    It raises :class:`FetchError` while the file cannot be read.
    """

    def read() -> str:
        try:
            token = Path(os.fspath(file)).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise FetchError(f"{file}: no token can be read there; check token_file and its permissions") from None
        if not token.isprintable():
            raise FetchError(f"{file}: holds characters that no HTTP header may have; put one token there")
        return token

    return read if file else lambda: ""
