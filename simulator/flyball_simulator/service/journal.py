"""The journal from which a killed fleet resumes: submissions and ticks.

One line per entry: eight hexadecimal digits of the CRC-32 of the rest, a space, JSON. The first entry identifies the
fleet.
"""

import fcntl
import os
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Self
from zlib import crc32

import msgspec

from flyball_contracts.config import FleetConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.simulated import Submission


class HeaderEntry(msgspec.Struct, frozen=True, tag="head"):
    """Identity of the journal: the fleet's cell, configuration digest, seed and start."""

    cell: str
    config: str
    seed: int
    start_ns: int


class SubmissionEntry(msgspec.Struct, frozen=True, tag="asked"):
    """A submission that was received before tick ``tick``."""

    tick: int
    submission: Submission


class TickEntry(msgspec.Struct, frozen=True, tag="made"):
    """A tick that was made, and the last tick that the broker had acknowledged by then."""

    tick: int
    sent: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(HeaderEntry | SubmissionEntry | TickEntry)


class Journal:
    """The journal of one fleet, a file that one process may use at a time.

    ``last_made`` and ``last_sent`` are -1 at the start, ``submissions`` is in order; all three are as of opening the
    file. An incomplete last entry was never acted on and is dropped. Raises :class:`ConfigError` for a file that
    belongs to another fleet, is damaged or in use, or cannot be written.
    """

    def __init__(self, path: Path, config: FleetConfig, start_ns: int) -> None:
        self._path = path
        self.start_ns, self.last_made, self.last_sent = start_ns, -1, -1
        self.submissions: list[SubmissionEntry] = []
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise ConfigError(f"--state {path}: {error.strerror}; name a file that can be written") from error
        try:
            self._open(config)
        except BaseException:
            os.close(self._file)
            raise
        self._sent = self.last_sent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.close(self._file)

    def record_submission(self, tick: int, submission: Submission) -> None:
        """Record a submission before it is carried out; on disk when this returns."""
        self._append(SubmissionEntry(tick, submission))
        os.fsync(self._file)

    def made(self, tick: int) -> None:
        """Record a tick that is about to be sent."""
        self._append(TickEntry(tick, self._sent))

    def sent(self, tick: int) -> None:
        """Note that the broker has acknowledged a tick and all before it; recorded with the next tick."""
        self._sent = tick

    def _open(self, config: FleetConfig) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f"--state {self._path}: another fleet uses it; give each its own file") from error
        head = HeaderEntry(config.cell, _digest(config), config.seed, self.start_ns)
        entries = self._read()
        if not entries:
            self._append(head)
            os.fsync(self._file)
            return
        first = entries[0]
        if not isinstance(first, HeaderEntry):
            raise ConfigError(f"--state {self._path}: line 1 does not identify a fleet; name another file")
        if msgspec.structs.replace(first, start_ns=head.start_ns) != head:
            raise ConfigError(
                f"--state {self._path}: it is of cell {first.cell} with seed {first.seed} and its configuration, not "
                f"of cell {head.cell} with seed {head.seed} and this one; name another file, or remove it to start over"
            )
        self.start_ns = first.start_ns
        self.submissions = [entry for entry in entries if isinstance(entry, SubmissionEntry)]
        made = [entry for entry in entries if isinstance(entry, TickEntry)]
        if made:
            self.last_made, self.last_sent = made[-1].tick, made[-1].sent

    def _read(self) -> "list[HeaderEntry | SubmissionEntry | TickEntry]":
        with os.fdopen(os.dup(self._file), "rb") as file:
            file.seek(0)
            data = file.read()
        found: list[HeaderEntry | SubmissionEntry | TickEntry] = []
        whole = 0
        for number, line in enumerate(data.splitlines(keepends=True), 1):
            entry = _decoded(line)
            if entry is None:
                if whole + len(line) < len(data):
                    raise ConfigError(f"--state {self._path}: line {number} is damaged; remove the file to start over")
                break
            found.append(entry)
            whole += len(line)
        if whole < len(data):
            os.ftruncate(self._file, whole)
        return found

    def _append(self, entry: HeaderEntry | SubmissionEntry | TickEntry) -> None:
        body = _encoder.encode(entry)
        line = b"%08x %s\n" % (crc32(body), body)
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise ConfigError(f"--state {self._path}: {error.strerror}; make room for it") from error
        if written < len(line):
            raise ConfigError(f"--state {self._path}: an entry could not be written; make room for it")


def _digest(config: FleetConfig) -> str:
    return blake2b(_encoder.encode(config), digest_size=16).hexdigest()


def _decoded(line: bytes) -> HeaderEntry | SubmissionEntry | TickEntry | None:
    body = line[9:-1]
    if not line.endswith(b"\n") or line[:9] != b"%08x " % crc32(body):
        return None
    try:
        entry: HeaderEntry | SubmissionEntry | TickEntry = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return entry
