"""Writes the audit trail: a hash chain (SHA-256) whose head is published with final outcomes.

Published outcomes cannot be changed, so a rewritten or truncated file no longer matches them. If an entry cannot be
written, the actuator carries out nothing more and ends, as it does if it cannot write its ledger.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import IO, Any, Self

import msgspec

from flyball_actuators.audit.entries import (
    AnyEntry,
    Called,
    Judged,
    Published,
    Received,
    Refused,
    Stage,
    Started,
    Submitting,
)
from flyball_actuators.guard import Verdict
from flyball_actuators.ledger.lines import Chain, Disk, append, lines_of, sha256
from flyball_actuators.ledger.lock import locked
from flyball_actuators.platforms.calls import Call
from flyball_contracts.config import ActuatorConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import AnyDecision, Outcome, SubjectState

MOST_BYTES = 64 * 1024 * 1024
_HEADER = re.compile(rb"flyball-audit 1 ([0-9a-f]{16})\n")
_encoder = msgspec.json.Encoder()


@cache
def _version() -> str:
    """Version of the package; its metadata are read and parsed once."""
    return version("flyball")


def header_of(raw: bytes) -> tuple[bytes, str] | None:
    """First line of a trail's file, and the trail's name; ``None`` for any other file."""
    found = _HEADER.match(raw)
    return None if found is None else (found.group(), found.group(1).decode())


class Trail:
    """One file, written by one process at a time; without a path nothing is recorded.

    A file that has reached ``most_bytes`` is renamed to ``PATH.TRAIL``, and a new file that names it begins.
    Thread-safe. Raises :class:`ConfigError` if the file cannot be used or was modified; methods that record raise
    :class:`NotWrittenError`.
    """

    def __init__(
        self,
        path: Path | None,
        actuator: str,
        config: ActuatorConfig,
        clock: Callable[[], int],
        *,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._path, self._clock, self._most_bytes = path, clock, most_bytes
        self._about = {
            "actuator": actuator,
            "mode": config.mode,
            "version": _version(),
            "config": hashlib.sha256(_encoder.encode(config)).hexdigest(),
        }
        self._turn = Lock()
        self._disk = Disk("actuator.audit", path)
        self._file: FileIO | None = None
        self._held: IO[bytes] | None = None
        self._name, self._line, self._bytes = "", 1, 0
        self._chain = Chain(b"", sha256)
        if path is not None:
            self._open(path)

    @property
    def anchor(self) -> str:
        """``TRAIL/LINE/CHECKSUM`` of the last line; empty without a file."""
        return f"{self._name}/{self._line}/{self._chain.last.decode()}" if self._file is not None else ""

    def received(self, decision: AnyDecision, partition: int, offset: int, key: str) -> None:
        """Record that a decision was read."""
        self._append(Received, decision=decision.id, record=decision, partition=partition, offset=offset, key=key)

    def judged(self, decision: AnyDecision, stage: Stage, verdict: Verdict, passed: tuple[str, ...]) -> None:
        """Record the guard's checks."""
        self._append(
            Judged,
            decision=decision.id,
            stage=stage,
            passed=passed,
            objected=verdict.check,
            code=verdict.code,
            detail=verdict.detail,
            policy=verdict.policy,
        )

    def submitting(self, decision: AnyDecision, driver: str, observed: SubjectState | None, *, dry_run: bool) -> None:
        """Record that a change is about to be submitted; on disk when this returns."""
        self._append(Submitting, sync=True, decision=decision.id, driver=driver, observed=observed, dry_run=dry_run)

    def called(self, decision: str, driver: str, call: Call) -> None:
        """Record a call to the platform for the decision of that id."""
        self._append(Called, decision=decision, driver=driver, **msgspec.structs.asdict(call))

    def published(self, outcome: Outcome) -> Outcome:
        """Record an outcome that is about to be published.

        A final outcome is on disk when this returns, and the returned outcome carries the head of the chain.
        """
        self._append(Published, sync=outcome.final, decision=outcome.decision, outcome=outcome)
        if not outcome.final or self._file is None:
            return outcome
        return msgspec.structs.replace(outcome, audit=self.anchor)

    def refused(self, partition: int, offset: int, error: str) -> None:
        """Record a message that went to the dead letters."""
        self._append(Refused, partition=partition, offset=offset, error=error)

    def close(self) -> None:
        """Close the file and release its lock; may be called twice."""
        with self._turn:
            for file in (self._file, self._held):
                if file is not None:
                    file.close()
            self._file = self._held = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, path: Path) -> None:
        try:
            self._held = locked(path, "actuator.audit")
            raw = path.read_bytes() if path.exists() else b""
            if raw:
                self._go_on(path, raw)
            else:
                self._begin(path, "")
        except OSError as error:
            self.close()
            raise ConfigError(f"actuator.audit: {path} cannot be used: {error.strerror}") from error
        except ConfigError:
            self.close()
            raise

    def _go_on(self, path: Path, raw: bytes) -> None:
        """Append to an existing file after verifying its chain."""
        begins = header_of(raw)
        if begins is None:
            raise ConfigError(f"actuator.audit: {path} is no audit trail, or its first line was changed; name another")
        header, self._name = begins
        self._chain = Chain(header, sha256)
        for number, checksum, body in lines_of(raw, header, sha256):
            if body is None:
                raise ConfigError(
                    f"actuator.audit: {path}:{number}: this line, or one before it, was changed; see `flyball audit "
                    f"verify {path}`, keep the file, and name another"
                )
            self._chain.add(checksum)
            self._line = number
        whole = raw.rfind(b"\n") + 1
        self._file, self._bytes = path.open("ab", buffering=0), whole
        self._file.truncate(whole)
        self._write(Started, cut=len(raw) - whole, **self._about)

    def _begin(self, path: Path, previous: str) -> None:
        self._name = secrets.token_hex(8)
        header = b"flyball-audit 1 %s\n" % self._name.encode()
        self._chain, self._line = Chain(header, sha256), 1
        self._file = path.open("ab", buffering=0)
        self._bytes = self._file.write(header)
        self._write(Started, previous=previous, **self._about)
        os.fsync(self._file.fileno())
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the name, too, must survive a power cut
        finally:
            os.close(folder)

    def _append(self, kind: type[AnyEntry], *, sync: bool = False, **fields: Any) -> None:
        if self._path is None:
            return
        with self._turn, self._disk.writing():
            if self._file is None:  # a call ended after the actuator did
                return
            if self._bytes >= self._most_bytes:
                previous, name = self.anchor, self._path.with_name(f"{self._path.name}.{self._name}")
                os.fsync(self._file.fileno())
                self._file.close()
                self._path.rename(name)
                self._begin(self._path, previous)
            self._write(kind, **fields)
            if sync:
                os.fsync(self._file.fileno())

    def _write(self, kind: type[AnyEntry], **fields: Any) -> None:
        assert self._file is not None
        line = self._chain.line(_encoder.encode(kind(line=self._line + 1, at_ns=self._clock(), **fields)))
        append(self._file, line)
        self._chain.add(line)
        self._line += 1
        self._bytes += len(line)
