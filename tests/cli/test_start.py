"""What is set up before a command imports its libraries."""

import subprocess
import sys

import pytest
from tests.cli.shell import NOBODY, environment

PROGRAM = """
import os, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            print("threads:", os.environ.get("OPENBLAS_NUM_THREADS"))

sys.meta_path.insert(0, Finder())
from flyball_cli.start import main
main()
"""


@pytest.mark.parametrize("arguments", [["worker", "--bootstrap", NOBODY], ["agent", "--once"], ["replay", "none.fbr"]])
def test_numpy_starts_no_threads_for_products(arguments: list[str]) -> None:
    """They spin; NumPy reads the setting when it is imported, whoever imports it."""
    unset = {name: value for name, value in environment().items() if name != "OPENBLAS_NUM_THREADS"}
    program = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(program, env=unset, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[:1] == ["threads: 1"], done.stderr
