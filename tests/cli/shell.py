"""The command line as a user has it: a process, its output and its exit status."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path

NOBODY = "127.0.0.1:1"
"""A broker address where no server listens."""

_STARTING = threading.Lock()


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "flyball_cli", *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "JAX_PLATFORMS": "cpu", "COLUMNS": "200"}


def flyball(*arguments: object, timeout_s: float = 170.0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in a process that was forked from one that has imported everything."""
    line = [*map(str, arguments)]
    with (
        tempfile.NamedTemporaryFile() as output,
        tempfile.NamedTemporaryFile() as errors,
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.connect(_forks())
        wanted = {"arguments": line, "folder": os.getcwd(), "environment": environment()}
        client.sendall(json.dumps({**wanted, "output": output.name, "errors": errors.name}).encode() + b"\n")
        with client.makefile() as answers:
            pid = int(answers.readline())
            late = threading.Timer(timeout_s, os.kill, (pid, signal.SIGKILL))
            late.start()
            status = int(answers.readline())
            late.cancel()
            late.join()
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
