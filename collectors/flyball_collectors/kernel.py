"""Reads the kernel's small text files."""

import os
from collections.abc import Iterable
from pathlib import Path

_CHUNK_BYTES = 1 << 16


def text_of(path: Path | str, most_bytes: int = 1 << 30) -> str:
    """Content of a kernel file, or its beginning; empty if it is absent or unreadable."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        chunks: list[bytes] = []
        while chunk := os.read(file, min(_CHUNK_BYTES, most_bytes)):
            chunks.append(chunk)
            most_bytes -= len(chunk)
        return b"".join(chunks).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(file)


def numbers(fields: Iterable[str]) -> list[int]:
    """The words as integers, or an empty list when one is not."""
    try:
        return [int(field) for field in fields]
    except ValueError:
        return []
