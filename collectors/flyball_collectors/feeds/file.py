"""Curves from a file of another program, or from the newest file of a folder.

CSV has a header with ``time`` and ``value``, and optionally ``p10`` and ``p90``; other columns are ignored. JSON is a
list of such objects, or ``{"published": ..., "data": [...]}``. A time is ISO 8601 with an offset or seconds since 1970;
a value that is empty or null is missing. The curve counts as issued at ``published``, else when the file was last
written.
"""

import csv
import io
import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from flyball_collectors.feeds.answers import decode_json, time_ns
from flyball_collectors.feeds.base import FeedError
from flyball_collectors.feeds.curve import Point, Shape, cut_curve, smallest_step_s, valid_time
from flyball_collectors.feeds.parameters import FileFeedParameters
from flyball_contracts.config import FileFeedSettings
from flyball_contracts.config.constants import with_constants
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Signal

MOST_BYTES = 32 * 1024 * 1024
LONGEST_STEP_S = 31 * 86_400.0
ENDINGS = (".csv", ".json")


class _Row(msgspec.Struct):
    time: str | float
    value: float | None
    p10: float | None = None
    p90: float | None = None


class _Document(msgspec.Struct):
    data: list[_Row]
    published: str | float | None = None


class _Version(NamedTuple):
    path: Path
    mtime_ns: int
    size: int


class _Content(NamedTuple):
    version: _Version
    points: list[Point]
    step_s: float
    issued_ns: int
    forecast: bool
    """Whether a slot begins after the time of issue."""


class FileFeed:
    """One file or folder; see :class:`flyball_collectors.feeds.base.Feed`. It is read again when it changed."""

    def __init__(self, section: FileFeedSettings) -> None:
        settings = with_constants(FileFeedParameters, section)
        self.name = f"file/{settings.zone}/{settings.kind}"
        self.left_out = 0
        self._settings = settings
        self._path = Path(settings.path)
        self._shape = Shape(settings.zone, "file", settings.kind)
        self._content: _Content | None = None
        self._counted: tuple[_Version, int] | None = None

    def fetch(self, now_ns: int) -> list[Signal]:
        """One curve from the slot that holds ``now_ns`` on; raises :class:`FeedError`."""
        try:
            version = self._newest()
            if self._content is None or self._content.version != version:
                self._content = self._read(version)
        except OSError as error:
            raise FeedError(f"{self._path}: cannot be read: {error.strerror}; check path and its rights") from error
        content = self._content
        cut = cut_curve(
            content.points,
            self._shape._replace(forecast=content.forecast),
            step_s=content.step_s,
            published_ns=content.issued_ns,
            now_ns=now_ns,
            where=str(content.version.path),
        )
        if self._counted is None or self._counted[0] != version:  # the same gaps count once, not at each look
            self._counted = version, cut.left_out
            self.left_out += cut.left_out
        return [cut.signal]

    def _newest(self) -> _Version:
        if not self._path.is_dir():
            return _version(self._path)
        found = [
            _version(p) for p in self._path.iterdir() if p.suffix.lower() in ENDINGS and not p.name.startswith(".")
        ]
        if not found:
            raise FeedError(f"{self._path}: holds no *.csv or *.json; put one there (write it elsewhere, then rename)")
        return max(found, key=lambda v: (v.mtime_ns, v.path.name))

    def _read(self, version: _Version) -> _Content:
        path = version.path
        if version.size > MOST_BYTES:
            raise FeedError(f"{path}: {version.size} bytes; give at most {MOST_BYTES}", lasting=True)
        body = path.read_bytes()
        if path.suffix.lower() == ".json":
            bare = body.lstrip()[:1] == b"["
            rows = decode_json(body, list[_Row], str(path)) if bare else None
            document = decode_json(body, _Document, str(path)) if rows is None else _Document(rows)
        else:
            document = _Document(_csv_rows(body, path))
        points = [self._point(row, f"{path}: row {i + 1}") for i, row in enumerate(document.data)]
        step_s = self._settings.step_s or smallest_step_s(p.time_ns for p in points)
        if step_s is None or not 1.0 <= step_s <= LONGEST_STEP_S:
            raise FeedError(f"{path}: the times do not show how long a slot is (1 s to 31 days); set step_s")
        issued_ns = (
            max(version.mtime_ns, 0) if document.published is None else _time(document.published, f"{path}: published")
        )
        return _Content(version, points, step_s, issued_ns, any(p.time_ns > issued_ns for p in points))

    def _point(self, row: _Row, where: str) -> Point:
        p50, p10, p90 = (None if v is None else v * self._settings.scale for v in (row.value, row.p10, row.p90))
        return Point(_time(row.time, f"{where}: time"), p50, p10, p90)


def _version(path: Path) -> _Version:
    found = os.stat(path)
    return _Version(path, found.st_mtime_ns, found.st_size)


def _csv_rows(body: bytes, path: Path) -> list[_Row]:
    try:
        reader = csv.DictReader(io.StringIO(body.decode("utf-8-sig"), newline=""), strict=True)
        names = [name.strip().lower() for name in reader.fieldnames or ()]
        reader.fieldnames = names
        for needed in ("time", "value"):
            if needed not in names:
                raise FeedError(f"{path}: no column {needed!r}; the header must be time,value[,p10,p90]")
        return [_csv_row(row, f"{path}: line {reader.line_num}") for row in reader]
    except (csv.Error, UnicodeDecodeError) as error:
        raise FeedError(f"{path}: not CSV in UTF-8: {error}; is it written at this moment?") from error


def _csv_row(row: dict[str, str | None], where: str) -> _Row:
    time = (row["time"] or "").strip()
    p50, p10, p90 = (_number(row.get(name), f"{where}: {name}") for name in ("value", "p10", "p90"))
    return _Row(float(time) if time.isascii() and time.isdecimal() else time, p50, p10, p90)


def _number(text: str | None, where: str) -> float | None:
    text = (text or "").strip()
    if text.lower() in ("", "null", "nan", "na"):
        return None
    try:
        return float(text)
    except ValueError as error:
        raise FeedError(
            f"{where}: {text[:40]!r} is no number; write e.g. 312.5, or nothing where it is missing"
        ) from error


def _time(value: str | float, where: str) -> int:
    if isinstance(value, str):
        return time_ns(value, where)
    result = round(value * NS_PER_S) if abs(value) < 1e12 else -1
    if not valid_time(result):
        raise FeedError(f"{where}: {value:g} is out of range; a number is seconds since 1970")
    return result
