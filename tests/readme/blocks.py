"""The code blocks of README.md by their beginnings, and a shell that runs their lines as a reader would.

What stands for the reader's own is replaced, and nothing else: addresses, ports, paths, namespaces, images, and how
long something that would go on for an hour is let run.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import ROOT

README = (ROOT / "README.md").read_text()
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS: list[tuple[str, str]] = FENCE.findall(README)
"""Language and text of each block."""
PROSE = FENCE.sub("", README).replace("\n", " ")
READY_S = 240.0
STOP_S = 60.0


def block(first: str) -> str:
    """The one block that begins with these words."""
    (found,) = (text for _, text in BLOCKS if text.startswith(first))
    return found


def lines(first: str) -> list[str]:
    """Commands of the block that begins with these words."""
    return [line for line in block(first).splitlines() if line]


def inline(first: str) -> list[str]:
    """Commands within sentences that begin with these words."""
    return [code for code in re.findall(r"`([^`]+)`", PROSE) if code.startswith(first)]


def placed(line: str, places: Mapping[str, str]) -> str:
    """A line with the tester's own places; each has to be in it."""
    for theirs, ours in places.items():
        assert theirs in line, f"{theirs!r} is not in {line!r}"
        line = line.replace(theirs, ours)
    return line


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Of a reader whose `flyball` is that of these tests."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "JAX_PLATFORMS": "cpu", "COLUMNS": "200", "TMPDIR": str(folder), **more}


def run(
    line: str, folder: Path, *, status: int | None = 0, timeout_s: float = 120.0, **more: str
) -> subprocess.CompletedProcess[str]:
    """A line in a shell; it ends with this exit status (``None``: any)."""
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment(folder, **more), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    assert status is None or done.returncode == status, f"{line}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


class Command:
    """A line that runs until Ctrl-C; its output is in a file."""

    def __init__(self, line: str, folder: Path, log: Path, **more: str) -> None:
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"], cwd=folder, env=environment(folder, **more), stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def until(self, seen: Callable[[], bool], what: str, within_s: float = READY_S) -> None:
        """Wait until it is seen to work."""
        give_up = time.monotonic() + within_s
        while not seen():
            assert self._process.poll() is None, f"{what}: ended with {self._process.returncode}:\n{self.output}"
            assert time.monotonic() < give_up, f"{what}: not within {within_s:.0f} s:\n{self.output[-3000:]}"
            time.sleep(0.2)

    def interrupt(self) -> int:
        """Press Ctrl-C, which all processes of a terminal hear; the exit status."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        return self._process.wait(STOP_S)

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def started(line: str, folder: Path, **more: str) -> Generator[Command]:
    """A line that was started; nothing of it is left in the end."""
    command = Command(line, folder, folder / f"{time.monotonic_ns()}.log", **more)
    try:
        yield command
    finally:
        command.kill()
