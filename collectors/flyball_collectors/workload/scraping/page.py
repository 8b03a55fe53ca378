"""Finds the needed lines of a Prometheus or OpenMetrics page.

A page of an inference server has some thousand lines, of which a few dozen matter: they are found by name before
anything is parsed, so that reading is cheap enough for an agent.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

# Possessive throughout: no text may cost more than a look at each of its characters.
_LABEL = re.compile(r'\s*+([A-Za-z_][A-Za-z0-9_.:]*+)\s*+=\s*+"((?:[^"\\]|\\.)*+)"\s*+(?:,|$)')
_SAMPLE = re.compile(
    r'[ \t]*+(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*+")*+)\})?+[ \t]*+([^\s{}"]++)'  # labels and value
    r"(?:[ \t]++[-+.\d]\S*+)?+(?:[ \t]++#.*+)?+[ \t]*+"  # time and exemplar
)
_ESCAPED = re.compile(r"\\(.)")
_VALUE = re.compile(r"[+-]?(?:(?:\d++\.?\d*+|\.\d++)(?:[eE][+-]?\d++)?|inf(?:inity)?|nan)", re.IGNORECASE)
_ANY_SAMPLE = re.compile(r"^[A-Za-z_:{]", re.MULTILINE)
_SHOWN = 80


class PageError(Exception):
    """An invalid page; its text names the line."""


class Sample(NamedTuple):
    """One value of a series."""

    name: str
    labels: Mapping[str, str]
    value: float


class Reader:
    """Reads the samples with some ``names`` from pages."""

    def __init__(self, names: Iterable[str]) -> None:
        one_of = "|".join(re.escape(name) for name in sorted(set(names), reverse=True))
        self._wanted = re.compile(rf"^[ \t]*+({one_of})(?=[ \t{{])(.*?)\r?$", re.MULTILINE) if one_of else None

    def read(self, page: str, *, may_lack: bool = False) -> list[Sample]:
        """Samples in the order of the page, timestamps and exemplars left out.

        Raises :class:`PageError` for an invalid line, and for a page that has samples but none of these, unless it
        ``may_lack`` them: some servers show a series from its first event on.
        """
        found = [self._sample(page, line) for line in self._wanted.finditer(page)] if self._wanted else []
        others = not found and _ANY_SAMPLE.search(page) is not None
        begin = page.lstrip()[:1]
        if not found and ((others and not may_lack) or begin == "<" or not (others or begin in ("", "#"))):
            raise PageError("none of its series is known; check that url is the page of such a server")
        return found

    def _sample(self, page: str, line: re.Match[str]) -> Sample:
        parts = _SAMPLE.fullmatch(line[2])
        if parts is None or not _VALUE.fullmatch(parts[2]):
            raise PageError(f"line {_number(page, line)}: {_short(line)} is not a sample")
        labels = _labels(parts[1]) if parts[1] else {}
        if labels is None:
            raise PageError(f"line {_number(page, line)}: {_short(line)} has labels that cannot be read")
        return Sample(line[1], labels, float(parts[2]))


def _labels(text: str) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    at = 0
    while at < len(text):
        pair = _LABEL.match(text, at)
        if pair is None:
            return None if text[at:].strip() else labels
        labels[pair[1]] = _ESCAPED.sub(_plain, pair[2]) if "\\" in pair[2] else pair[2]
        at = pair.end()
    return labels


def _plain(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]


def _number(page: str, line: re.Match[str]) -> int:
    return page.count("\n", 0, line.start(1)) + 1


def _short(line: re.Match[str]) -> str:
    text = line[0].strip()
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
