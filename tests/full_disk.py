"""A disk that is really full: a small tmpfs that one command alone sees, in a namespace of its own."""

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
END_S = 500.0
"""Only what hangs takes as long; a command may compile, on a busy machine."""
_MOUNTED = """
mount -t tmpfs -o size="$1" none "$2" || exit 99
folder="$2" left="$3"
shift 3
"$@"
status=$?
ls -A "$folder" > "$left"
exit $status
"""


class Ended(NamedTuple):
    """How a command ended, and the files that it left on the small disk."""

    status: int
    stdout: str
    stderr: str
    left: list[str]


def on_small_disk(folder: Path, kib: int, *command: object, **environment: str) -> Ended:
    """Run a command to which ``folder``, an empty one, is a disk of ``kib`` KiB (a multiple of 4)."""
    if why := _unavailable():
        pytest.skip(f"no small disk can be mounted here: {why}; the tests need `unshare` and user namespaces")
    left = folder.with_name(f"{folder.name}.left")
    done = subprocess.run(
        [*_namespace(_MOUNTED), f"{kib}k", folder, left, *map(str, command)],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "COLUMNS": "200", **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=END_S,
    )
    return Ended(done.returncode, done.stdout, done.stderr, left.read_text().split())


def _namespace(script: str) -> list[str]:
    return ["unshare", "--mount", "--map-root-user", "--fork", "--kill-child", "sh", "-c", script, "sh"]


@cache
def _unavailable() -> str:
    try:
        tried = subprocess.run(
            _namespace("mount -t tmpfs -o size=4k none /tmp"), capture_output=True, text=True, check=False
        )
    except OSError as error:
        return str(error)
    return tried.stderr.strip() or f"status {tried.returncode}" if tried.returncode else ""
