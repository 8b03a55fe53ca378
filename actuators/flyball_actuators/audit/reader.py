"""Reads and verifies an audit trail."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from flyball_actuators.audit.entries import AnyEntry, Published, Started
from flyball_actuators.audit.trail import header_of
from flyball_actuators.ledger.lines import sha256
from flyball_contracts.errors import FlyballError


class Broken(FlyballError):
    """A trail was modified; ``line`` is the first wrong line."""

    def __init__(self, path: Path, line: int, meaning: str) -> None:
        super().__init__(f"{path}:{line}: {meaning}")
        self.line, self.meaning = line, meaning


class Anchor(NamedTuple):
    """Number and checksum of a line as they were published; ``source`` names the place.

    ``actuator`` and ``time_ns`` are the outcome's; they are empty and 0 for an anchor that a person kept.
    """

    trail: str
    line: int
    checksum: str
    source: str
    actuator: str = ""
    time_ns: int = 0


class Absent(NamedTuple):
    """A trail that outcomes name but that was not found.

    It had at least ``lines`` lines when its last outcome was published, at ``until_ns``; ``actuators`` wrote it.
    """

    trail: str
    lines: int
    outcomes: int
    until_ns: int
    actuators: tuple[str, ...]


class Checked(NamedTuple):
    """Facts about a verified trail.

    ``anchored`` is the last line that an anchor names, 0 without any; truncation after it cannot be detected.
    ``unfinished`` is the number of bytes of an incomplete last line. ``files`` are in order, oldest first; ``missing``
    is the anchor of an earlier file that is absent. ``trails`` are the names of the files.
    """

    files: tuple[Path, ...]
    lines: int
    decisions: int
    anchored: int
    unfinished: int
    head: str
    missing: str
    trails: frozenset[str]


def anchor_of(text: str, source: str, actuator: str = "", time_ns: int = 0) -> Anchor | None:
    """Parse an anchor of an outcome; ``None`` for anything else."""
    trail, _, rest = text.partition("/")
    line, _, checksum = rest.partition("/")
    if not (trail and line.isdecimal() and checksum):
        return None
    return Anchor(trail, int(line), checksum, source, actuator, time_ns)


def absent(trails: Collection[str], anchors: Iterable[Anchor]) -> list[Absent]:
    """Trails that anchors name but ``trails`` lacks: they are elsewhere, or were removed or replaced. Newest first."""
    others: dict[str, list[Anchor]] = {}
    for anchor in anchors:
        if anchor.trail not in trails:
            others.setdefault(anchor.trail, []).append(anchor)
    found = [
        Absent(
            trail,
            max(one.line for one in named),
            len(named),
            max(one.time_ns for one in named),
            tuple(sorted({one.actuator for one in named if one.actuator})),
        )
        for trail, named in others.items()
    ]
    return sorted(found, key=lambda one: (-one.until_ns, one.trail))


def verified(path: Path, anchors: Iterable[Anchor] = ()) -> Checked:
    """Verify a trail, including earlier files, against anchors; see :func:`absent` for anchors of other trails.

    A trail is also broken if it has final outcomes from the time of the anchors but no anchor names it: then it has
    replaced the trail that the actuator wrote.

    Raises :class:`Broken`, and :class:`FlyballError` for a file that cannot be read.
    """
    anchors = list(anchors)
    of_trail: dict[str, list[Anchor]] = {}
    for anchor in anchors:
        of_trail.setdefault(anchor.trail, []).append(anchor)
    files: list[Path] = []
    trails: list[str] = []
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
        trails.append(file.trail)
        entries = [*file.entries, *entries]
        first = file.entries[0]
        expected = first.previous if isinstance(first, Started) else ""
        before = path.with_name(f"{path.name}.{expected.partition('/')[0]}") if expected else None
        here = before if before is not None and before.exists() else None
        missing = expected if here is None else ""
    _check_published(path, trails, entries, anchors)
    decisions = len({entry.decision for entry in entries if entry.decision})
    return Checked(tuple(files), len(entries), decisions, anchored, unfinished, head, missing, frozenset(trails))


def _check_published(path: Path, trails: list[str], entries: list[AnyEntry], anchors: list[Anchor]) -> None:
    """Raise :class:`Broken` if the trail has final outcomes from the time of the anchors, and none was published."""
    times = [anchor.time_ns for anchor in anchors if anchor.time_ns]
    if not times or any(anchor.trail in trails for anchor in anchors):
        return
    final = [entry for entry in entries if isinstance(entry, Published) and entry.outcome.final]
    recent = [entry for entry in final if entry.outcome.time_ns >= min(times)]
    if recent:
        raise Broken(
            path,
            recent[0].line,
            f"this is the first of {len(recent)} last outcomes that no outcome on the topic names: trail {trails[0]} "
            "is not what the actuator wrote, which was replaced",
        )


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
