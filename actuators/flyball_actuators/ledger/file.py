"""Write-ahead ledger of decisions: each step is on disk before it happens.

One line per step, appended and never changed (:mod:`flyball_actuators.ledger.lines`). The steps of a decision are
``granted`` (the guard let it through), ``sent`` (on disk before it is submitted), and its final outcome; ``granted``
after ``sent`` means that the decision was not submitted after all. After a crash between ``sent`` and the final
outcome, the outcome is *unknown* until the platform is queried. A torn last line is cut off: no action had followed it.
Any other damage is an error, because a guess could act twice.
"""

import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import IO, Literal, Self

import msgspec

from flyball_actuators.guard import Grant
from flyball_actuators.ledger.lines import Chain, Disk, append, crc32, lines_of
from flyball_actuators.ledger.lock import locked
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import AnyDecision, Outcome
from flyball_contracts.records.commands.outcomes import OutcomeStatus

Step = Literal["granted", "sent"] | OutcomeStatus
_NAME = b"flyball-ledger "
HEADER = _NAME + b"2\n"
COMPACT_LINES = 50_000


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The latest step of one decision; ``outcome`` is its final outcome, ``grant`` what the limits count."""

    id: str
    step: Step
    expires_ns: int
    grant: Grant | None = None
    outcome: Outcome | None = None

    @property
    def time_ns(self) -> int:
        """Time of the step, 0 where it has none."""
        return self.outcome.time_ns if self.outcome else self.grant.at_ns if self.grant else 0


class Ledger:
    """Entries by decision id, on disk if a path is given; one process at a time.

    Finished decisions that expired ``keep_ns`` before the newest time in the ledger are dropped: the guard refuses them
    as expired anyway. ``None`` keeps all. Raises :class:`ConfigError` if the file cannot be used; methods that record
    a step raise :class:`NotWrittenError`.
    """

    def __init__(self, path: Path | None = None, *, keep_ns: int | None = None) -> None:
        self._path = path
        self._keep_ns = keep_ns
        self._entries: dict[str, Entry] = {}
        self._lines = 0
        self._most_lines = COMPACT_LINES
        self._file: FileIO | None = None
        self._chain = Chain(HEADER, crc32)
        self._lock: IO[bytes] | None = None
        self._disk = Disk("actuator.ledger", path)
        if path is not None:
            self._open(path)

    def get(self, decision: str) -> Entry | None:
        """Latest entry of a decision."""
        return self._entries.get(decision)

    def grants(self) -> Iterator[Grant]:
        """Grants of decisions that were sent or planned; refused and never-sent ones had no effect."""
        entries = self._entries.values()
        return (e.grant for e in entries if e.grant is not None and e.step not in ("granted", "refused"))

    def grant(self, decision: AnyDecision, grant: Grant) -> None:
        """Record that the guard let a decision through."""
        self._append(Entry(id=decision.id, step="granted", expires_ns=decision.expires_ns, grant=grant), sync=False)

    def send(self, decision: AnyDecision) -> None:
        """Record that a decision is about to be submitted; on disk when this returns."""
        self._append(self._next(decision, "sent", None), sync=True)

    def withdraw(self, decision: AnyDecision) -> None:
        """Record that a ``sent`` decision was certainly not submitted."""
        self._append(self._next(decision, "granted", None), sync=False)

    def finish(self, decision: AnyDecision, outcome: Outcome) -> None:
        """Record the final outcome of a decision; on disk when this returns."""
        if not outcome.final:
            raise ValueError(f"{outcome.status} is not the end of a decision")
        self._append(self._next(decision, outcome.status, outcome), sync=True)

    def close(self) -> None:
        """Close the file and release its lock; may be called twice."""
        for file in (self._file, self._lock):
            if file is not None:
                file.close()
        self._file = self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, path: Path) -> None:
        try:
            self._lock = locked(path, "actuator.ledger")
            self._entries = _read(path)
            self._compact()
        except OSError as error:
            self.close()
            raise ConfigError(f"actuator.ledger: {path} cannot be used: {error.strerror}") from error
        except ConfigError:
            self.close()
            raise

    def _next(self, decision: AnyDecision, step: Step, outcome: Outcome | None) -> Entry:
        before = self._entries.get(decision.id)
        grant = before.grant if before else None
        return Entry(id=decision.id, step=step, expires_ns=decision.expires_ns, grant=grant, outcome=outcome)

    def _append(self, entry: Entry, *, sync: bool) -> None:
        with self._disk.writing():
            if self._file is not None:
                line = self._chain.line(_encoder.encode(entry))
                append(self._file, line)
                self._chain.add(line)
                if sync:
                    os.fsync(self._file.fileno())
            self._entries[entry.id] = entry
            self._lines += 1
            if self._lines > self._most_lines:
                self._compact()

    def _compact(self) -> None:
        """Rewrite the file with the latest step of each decision worth keeping, atomically."""
        if self._keep_ns is not None:
            limit_ns = max((entry.time_ns for entry in self._entries.values()), default=0) - self._keep_ns
            self._entries = {
                id_: entry
                for id_, entry in self._entries.items()
                if entry.outcome is None or entry.expires_ns >= limit_ns
            }
        self._lines = len(self._entries)
        self._most_lines = COMPACT_LINES + 2 * self._lines
        if self._path is None:
            return
        if self._file is not None:
            self._file.close()
        fresh = self._path.with_name(self._path.name + ".new")
        with fresh.open("wb") as file:
            file.write(HEADER)
            self._chain = Chain(HEADER, crc32)
            for entry in self._entries.values():
                line = self._chain.line(_encoder.encode(entry))
                file.write(line)
                self._chain.add(line)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name, too, must survive a power cut
        finally:
            os.close(folder)
        self._file = self._path.open("ab", buffering=0)


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Entry)


def _read(path: Path) -> dict[str, Entry]:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return {}
    first, end, _ = raw.partition(b"\n")
    if end and first.startswith(_NAME) and first[len(_NAME) :].isdigit() and first + end != HEADER:
        raise _of_newer(path, 1)
    entries: dict[str, Entry] = {}
    for number, _, body in lines_of(raw, HEADER, crc32):
        if body is None:
            raise ConfigError(
                f"actuator.ledger: {path}:{number}: this line is damaged, or lines before it are missing, so what was "
                "done is not known; compare the outcomes topic with the platform, then move the file away"
            )
        entry = _parse(body)
        if entry is None:
            raise _of_newer(path, number)
        entries[entry.id] = entry
    return entries


def _of_newer(path: Path, line: int) -> ConfigError:
    return ConfigError(
        f"actuator.ledger: {path}:{line}: this line is whole, and this version of Flyball cannot read it: a newer one "
        "wrote it; start that version, and keep the file, or what was done could be done again"
    )


def _parse(body: bytes) -> Entry | None:
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError:
        return None
