"""Reading the small text files in which the kernel tells things."""

from collections.abc import Iterable
from pathlib import Path


def text_of(path: Path) -> str:
    """Content of a kernel file, empty where there is none or it may not be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def numbers(words: Iterable[str]) -> list[int]:
    """The words as integers, or an empty list when one is not."""
    try:
        return [int(word) for word in words]
    except ValueError:
        return []
