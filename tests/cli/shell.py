"""The command line as a user has it: a process, its output and its exit status."""

import os
import subprocess
import sys

NOBODY = "127.0.0.1:1"
"""A broker address where nobody listens."""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "flyball_cli", *map(str, arguments)]


def environment() -> dict[str, str]:
    return {**os.environ, "JAX_PLATFORMS": "cpu", "COLUMNS": "200"}


def flyball(*arguments: object, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env=environment(),
        check=False,
    )


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
