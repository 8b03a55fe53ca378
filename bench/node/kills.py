"""The disk spool against kills and damage: the torture of the tests, many more times."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.collectors.spool.spool_kills import SMALL, UNBOUNDED, Survived

KILLS, QUICK_KILLS = 1_000, 40

# A process of its own without a main module, which each of its many children would import again.
CHILD = """
import json, sys
from pathlib import Path
from tests.collectors.spool.spool_kills import torture

print(json.dumps(torture(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
"""


def survive(folder: Path, *, kills: int) -> Survived:
    """Half of the kills on a spool that never drops, half on one that is full; fails on a loss that is not counted."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    runs: list[list[int]] = []
    with tempfile.TemporaryDirectory(prefix="flyball-bench-", dir=folder) as name:
        for budget in (UNBOUNDED, SMALL):
            command = [sys.executable, "-c", CHILD, f"{name}/{budget}", str(budget), str(kills // 2)]
            runs.append(json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout))
    return Survived(*(sum(column) for column in zip(*runs, strict=True)))


def show(total: Survived) -> None:
    """One line for people."""
    print(
        f"{total.kills} kills, {total.damaged} with a damaged file: {total.appended:,} records appended, {total.lost} "
        f"lost ({total.torn} of them torn), each counted; out of order or unaccounted: 0 (goal 0)"
    )
