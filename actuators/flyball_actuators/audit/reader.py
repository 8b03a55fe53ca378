"""Reads and verifies an audit trail."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from flyball_actuators.audit.entries import AnyEntry, Started
from flyball_actuators.audit.trail import header_of
from flyball_actuators.ledger.lines import sha256
from flyball_contracts.errors import FlyballError


class Broken(FlyballError):
    """A trail was modified; ``line`` is the first wrong line."""

    def __init__(self, path: Path, line: int, meaning: str) -> None:
        super().__init__(f"{path}:{line}: {meaning}")
        self.line, self.meaning = line, meaning


class Anchor(NamedTuple):
    """Number and checksum of a line as they were published; ``source`` says where."""

    trail: str
    line: int
    checksum: str
    source: str


class Checked(NamedTuple):
    """Facts about a verified trail.

    ``anchored`` is the last line that an anchor names, 0 without any; truncation after it cannot be detected.
    ``unfinished`` is the number of bytes of an incomplete last line. ``files`` are in order, oldest first; ``missing``
    is the anchor of an earlier file that is absent.
    """

    files: tuple[Path, ...]
    lines: int
    decisions: int
    anchored: int
    unfinished: int
    head: str
    missing: str


def anchor_of(text: str, source: str) -> Anchor | None:
    """Parse an anchor of an outcome; ``None`` for anything else."""
    trail, _, rest = text.partition("/")
    line, _, checksum = rest.partition("/")
    return Anchor(trail, int(line), checksum, source) if trail and line.isdecimal() and checksum else None


def verified(path: Path, anchors: Iterable[Anchor] = ()) -> Checked:
    """Verify a trail, including earlier files, against anchors; anchors of other trails are ignored.

    Raises :class:`Broken`, and :class:`FlyballError` for a file that cannot be read.
    """
    of_trail: dict[str, list[Anchor]] = {}
    for anchor in anchors:
        of_trail.setdefault(anchor.trail, []).append(anchor)
    files: list[Path] = []
    entries: list[AnyEntry] = []
    anchored, head, unfinished, expected, missing = 0, "", 0, "", ""
    here: Path | None = path
    while here is not None:
        file = _File(here)
        last = f"{file.trail}/{file.last}/{file.checksums[-1]}"
        if expected and last != expected:
            raise Broken(
                here, file.last, f"it ends at {last}, and the file after it follows {expected}: lines are missing"
            )
        newest = file.held_to(of_trail.get(file.trail, ()))
        if not files:
            head, unfinished, anchored = last, file.unfinished, newest
        files.insert(0, here)
        entries = [*file.entries, *entries]
        first = file.entries[0]
        expected = first.previous if isinstance(first, Started) else ""
        before = path.with_name(f"{path.name}.{expected.partition('/')[0]}") if expected else None
        here = before if before is not None and before.exists() else None
        missing = expected if here is None else ""
    decisions = len({entry.decision for entry in entries if entry.decision})
    return Checked(tuple(files), len(entries), decisions, anchored, unfinished, head, missing)


def entries_about(path: Path, decision: str) -> list[AnyEntry]:
    """Entries about the decision whose id begins with ``decision``, in all files of a trail.

    Raises as :func:`verified`.
    """
    files = verified(path).files
    return [entry for file in files for entry in _File(file).entries if entry.decision.startswith(decision)]


class _File:
    """One file with a valid hash chain; raises :class:`Broken` otherwise."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise FlyballError(f"{path}: {error.strerror}; name the file that actuator.audit names") from error
        begins = header_of(raw)
        if begins is None:
            raise Broken(path, 1, "this is no first line of an audit trail: it was changed, or this is another file")
        header, self.trail = begins
        *self._lines, rest = raw.split(b"\n")[1:]
        self.unfinished = len(rest)
        self.checksums = [sha256(b"0", header).decode()]
        self.entries: list[AnyEntry] = []
        for number, line in enumerate(self._lines, 2):
            checksum, _, body = line.partition(b" ")
            if checksum != sha256(self.checksums[-1].encode(), body):
                raise Broken(path, number, self._meaning(number, checksum))
            self.checksums.append(checksum.decode())
            try:
                self.entries.append(_decoder.decode(body))
            except msgspec.DecodeError as error:
                raise Broken(path, number, f"its checksum is right, and it is no entry: {error}") from error
        checksum, _, body = rest[:-1].partition(b" ")
        if checksum == sha256(self.checksums[-1].encode(), body):
            raise Broken(path, self.last + 1, "its end was changed: the line is whole but for its line break")
        if not self.entries:
            raise Broken(path, 2, "the first entry is missing, with all after it: the file was cut off")

    @property
    def last(self) -> int:
        """Number of the last complete line."""
        return len(self.checksums)

    def held_to(self, anchors: Iterable[Anchor]) -> int:
        """Number of the last anchored line; raises :class:`Broken` if an anchor does not match."""
        newest = 0
        for anchor in sorted(anchors, key=lambda one: one.line):
            if anchor.line > self.last:
                raise Broken(
                    self._path,
                    self.last,
                    f"this is the last line, and {anchor.source} was published when there were {anchor.line}: "
                    f"{anchor.line - self.last} lines or more were cut off the end",
                )
            if self.checksums[anchor.line - 1] != anchor.checksum:
                raise Broken(
                    self._path,
                    anchor.line,
                    f"this line or one before it is not what it was when {anchor.source} was published: the file was "
                    "rewritten up to here",
                )
            newest = anchor.line
        return newest

    def _meaning(self, number: int, checksum: bytes) -> str:
        """Explain a wrong checksum, from the line's own number and the next line."""
        own = self._own(number)
        if own is not None and own > number:
            return f"this is line {own} of what was written: {own - number} lines before it were taken out"
        if own is not None and own < number:
            return f"this is line {own} of what was written: it was put here, or lines were put in before it"
        after = self._lines[number - 1] if number - 1 < len(self._lines) else b""
        next_checksum, _, next_body = after.partition(b" ")
        if after and next_checksum == sha256(checksum, next_body):
            return "its content was changed: the lines after it still follow from its checksum"
        return "its checksum or its content was changed"

    def _own(self, number: int) -> int | None:
        try:
            return int(msgspec.json.decode(self._lines[number - 2].partition(b" ")[2])["line"])
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
            return None


_decoder: msgspec.json.Decoder[AnyEntry] = msgspec.json.Decoder(AnyEntry)
