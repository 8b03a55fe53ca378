"""The order in which the processes of `make test` get its files: the longest first, computing and waiting ones mixed.

Two cores carry four processes: while one waits for a clock or a broker, another computes. How long a file takes,
``pytest --durations`` shows.
"""

from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent

WAITING = (
    "demo/test_demo.py",
    "actuators/service/test_hand_over.py",
    "actuators/service/test_service.py",
    "streams/worker/test_transport.py",
    "streams/worker/failures/test_crashes.py",
    "actuators/service/test_one_cell.py",
    "streams/worker/test_labels.py",
    "clouds/test_aws.py",
    "collectors/spool/test_agent.py",
    "docker/test_crashes.py",
    "clouds/test_gcp.py",
    "actuators/ledger/test_giving_back.py",
    "actuators/service/test_checks.py",
    "clouds/test_azure.py",
    "streams/worker/test_dead_letters.py",
    "docker/test_platform.py",
    "streams/worker/test_end_to_end.py",
)
"""Files that wait for clocks, brokers and processes, from 90 s down to 15 s."""

COMPUTING = (
    "cli/recordings/test_backtest.py",
    "streams/engine/workload/test_forecaster.py",
    "models/test_all_models.py",
    "streams/engine/workload/test_shadow_selection.py",
    "models/anomaly/test_tail.py",
    "bench/test_forecast.py",
    "streams/engine/workload/test_slo_headroom.py",
    "streams/engine/cell/test_rack_faults.py",
    "bench/test_autoscaling.py",
    "models/forecast/test_ensemble_weights.py",
    "streams/engine/node/test_health.py",
    "streams/engine/workload/test_history.py",
    "streams/backtest/test_safety.py",
    "streams/engine/pools/test_reclaims.py",
    "streams/engine/test_replay.py",
    "streams/engine/test_storms.py",
    "bench/test_spine.py",
    "models/forecast/test_history.py",
)
"""Files that compile and compute, from 60 s down to 15 s."""

REST = ("streams/worker", "demo", "cli", "bench", "dashboard", "streams/engine", "streams/backtest", "models")
"""Folders whose other files come next; all others come last."""


def mixed() -> list[str]:
    """Return the listed files, a waiting one and a computing one in turn."""
    pairs = [name for pair in zip(WAITING, COMPUTING, strict=False) for name in pair]
    return [*pairs, *sorted({*WAITING, *COMPUTING} - {*pairs})]


RANKS = {ROOT / name: rank for rank, name in enumerate([*mixed(), *REST])}


def rank(path: Path) -> int:
    """Return the place of a test file: smaller is earlier."""
    found: Sequence[Path] = (path, *path.parents)
    return next((RANKS[place] for place in found if place in RANKS), len(RANKS))
