"""The command line as a user has it: a process, its output and its exit status."""

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

NOBODY = "127.0.0.1:1"
"""A broker address where no server listens."""

IMPORTED_BY = {
    "worker": ("flyball_streams.worker.run",),
    "actuate": ("flyball_actuators.service",),
    "controller": ("flyball_actuators.controller.service",),
    "fleet": ("flyball_simulator",),
}
"""Modules that a command imports only when it runs, and that take long to import."""
_STARTING = threading.Lock()


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "flyball_cli", *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "JAX_PLATFORMS": "cpu", "COLUMNS": "200"}


class Forked:
    """A process that was forked from one that has imported everything; it is used as one of `subprocess`.

    It runs a module with arguments; its output goes to the end of files that are there. Before it is forked,
    ``imports`` are imported, and those of :data:`IMPORTED_BY` for a command of ``flyball``.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        output: str,
        errors: str,
        folder: str | None = None,
        env: Mapping[str, str] | None = None,
        imports: Sequence[str] = (),
    ) -> None:
        self.returncode: int | None = None
        self.args = [module, *arguments]
        self._client = socket.socket(socket.AF_UNIX)
        self._client.connect(_forks())
        wanted = {
            "module": module,
            "arguments": arguments,
            "folder": folder or os.getcwd(),
            "environment": dict(os.environ if env is None else env),
            "output": output,
            "errors": errors,
            "imports": [*(IMPORTED_BY.get(next(iter(arguments), ""), ()) if module == "flyball_cli" else ()), *imports],
        }
        self._client.sendall(json.dumps(wanted).encode() + b"\n")
        self._answers = self._client.makefile("rb", buffering=0)
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._client], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._client.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def flyball(
    *arguments: object, timeout_s: float = 170.0, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in a process that was forked from one that has imported everything."""
    line = [*map(str, arguments)]
    with tempfile.NamedTemporaryFile() as output, tempfile.NamedTemporaryFile() as errors:
        process = Forked("flyball_cli", *line, output=output.name, errors=errors.name, env=env or environment())
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        return subprocess.CompletedProcess(line, status, output.read().decode(), errors.read().decode())


def _forks() -> str:
    """The socket of the process that forks, one for all tests of this process."""
    with _STARTING:
        return _forks_once()


@cache
def _forks_once() -> str:
    folder = tempfile.TemporaryDirectory(prefix="flyball-forks-")
    path = f"{folder.name}/socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(64)
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.forks", str(listening.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=Path(__file__).resolve().parents[2],
            env=environment(),
            pass_fds=[listening.fileno()],
        )

    def end() -> None:
        server.kill()
        server.wait()
        folder.cleanup()

    atexit.register(end)
    return path


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def check_refused(status: int, stderr: str, *words: str) -> None:
    """One line that begins with "error: " and holds all the words, and exit status 2."""
    assert status == 2, stderr
    assert stderr.startswith("error: "), stderr
    assert len(stderr.splitlines()) == 1, stderr
    assert [word for word in words if word not in stderr] == [], stderr
