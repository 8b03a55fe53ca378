"""Consoles for tables whose lines must stay whole."""

import sys

from rich.console import Console


def unwrapped_console() -> Console:
    """A console that wraps on a terminal as usual, and does not cut lines elsewhere."""
    return Console(soft_wrap=True) if sys.stdout.isatty() else Console(width=10_000)
