"""Reads an audit trail and says whether it is what the actuator wrote."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from flyball_actuators.audit.entries import AnyEntry, Started
from flyball_actuators.audit.trail import header_of
from flyball_actuators.ledger.lines import sha256
from flyball_contracts.errors import FlyballError


class Broken(FlyballError):
    """A trail is not what was written; ``line`` is the first line that is wrong."""

    def __init__(self, path: Path, line: int, meaning: str) -> None:
        super().__init__(f"{path}:{line}: {meaning}")
        self.line, self.meaning = line, meaning


class Anchor(NamedTuple):
    """A line of a trail as it was when it was published; ``source`` says where."""

    trail: str
    line: int
    checksum: str
    source: str


class Checked(NamedTuple):
    """What is known of a trail that is whole.

    ``anchored`` is the last line that an anchor names, 0 without any; what comes after it could be cut off unseen.
    ``unfinished`` are the bytes of a last line that a crash left. ``files`` are in order, the oldest first, and
    ``missing`` is the anchor of one before them that is not there.
    """

    files: tuple[Path, ...]
    lines: int
    decisions: int
    anchored: int
    unfinished: int
    head: str
    missing: str


def anchor_of(text: str, source: str) -> Anchor | None:
    """An anchor as outcomes carry it; ``None`` for text that is none."""
    trail, _, rest = text.partition("/")
    line, _, checksum = rest.partition("/")
    return Anchor(trail, int(line), checksum, source) if trail and line.isdecimal() and checksum else None


def verified(path: Path, anchors: Iterable[Anchor] = ()) -> Checked:
    """Read a trail with those that it follows, and hold it to anchors; those of other trails are passed over.

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
    """Lines about the decision whose id begins so, in the file and in those that it follows; raises as `verified`."""
    files = verified(path).files
    return [entry for file in files for entry in _File(file).entries if entry.decision.startswith(decision)]


class _File:
    """One file whose chain holds; raises :class:`Broken` where it does not."""

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
        """Number of the last line that is whole."""
        return len(self.checksums)

    def held_to(self, anchors: Iterable[Anchor]) -> int:
        """The last line that an anchor names; all must be there as they were published."""
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
                    "written anew up to here",
                )
            newest = anchor.line
        return newest

    def _meaning(self, number: int, checksum: bytes) -> str:
        """What is wrong at a line whose checksum fails, by its own number and the next line."""
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
