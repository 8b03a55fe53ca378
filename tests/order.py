"""The order in which the processes of `make test` get its files: the longest first, computing and waiting ones mixed.

Two cores carry five processes: while one waits for a clock or a broker, another computes. How long a file takes,
``pytest --durations`` shows.
"""

from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent

WAITING = (
    "actuators/service/test_service.py",
    "actuators/service/test_hand_over.py",
    "demo/test_demo.py",
    "streams/worker/test_transport.py",
    "clouds/test_aws.py",
    "streams/worker/failures/test_crashes.py",
    "cli/recordings/test_full_disk.py",
    "actuators/service/test_one_cell.py",
    "clouds/test_gcp.py",
    "actuators/service/test_faults.py",
    "clouds/test_azure.py",
    "cli/setup/test_extras.py",
    "streams/worker/test_dead_letters.py",
    "cli/decisions/test_explain.py",
    "streams/worker/test_labels.py",
    "actuators/ledger/test_giving_back.py",
    "collectors/spool/test_agent.py",
    "cli/test_commands.py",
    "collectors/agent/test_agent.py",
    "actuators/service/test_checks.py",
    "docker/test_crashes.py",
    "docker/test_platform.py",
    "streams/worker/test_faust_private.py",
    "actuators/service/test_one_target.py",
    "streams/worker/test_end_to_end.py",
    "cli/test_wrong_input.py",
    "infra/test_ci.py",
    "streams/test_influx_sink.py",
    "actuators/guard/test_orders.py",
    "dashboard/test_feed.py",
    "streams/test_broker.py",
    "collectors/nvml/test_late.py",
    "cli/setup/test_light_agent.py",
    "actuators/platforms/test_webhook.py",
    "streams/worker/test_inventories.py",
)
"""Files that wait for clocks, brokers and processes, from 100 s down to 12 s."""

COMPUTING = (
    "models/test_all_models.py",
    "cli/recordings/test_backtest.py",
    "streams/engine/workload/test_forecaster.py",
    "bench/test_forecast.py",
    "streams/engine/cell/test_rack_faults.py",
    "streams/test_public_traces.py",
    "streams/test_importers.py",
    "streams/engine/test_replay.py",
    "streams/engine/node/test_health.py",
    "streams/engine/workload/test_slo_headroom.py",
    "models/forecast/test_weighting.py",
    "bench/test_autoscaling.py",
    "streams/engine/workload/test_shadow_selection.py",
    "cli/test_signals.py",
    "streams/engine/pools/test_reclaims.py",
    "actuators/service/test_stateful.py",
    "contracts/test_config_keys.py",
    "streams/engine/test_storms.py",
    "streams/engine/node/test_profiles.py",
    "streams/engine/node/test_pressure.py",
    "streams/engine/cell/test_arbiter_storms.py",
    "streams/engine/workload/test_history.py",
    "infra/test_services_run.py",
    "streams/engine/node/test_hangs.py",
    "infra/test_rights.py",
    "bench/test_spine.py",
    "models/forecast/test_rls.py",
    "actuators/guard/test_guard_properties.py",
    "models/forecast/test_conformal.py",
    "models/forecast/test_pooled.py",
    "models/anomaly/test_latency.py",
    "contracts/test_schema.py",
    "streams/worker/failures/test_refused.py",
)
"""Files that compile and compute, from 60 s down to 12 s."""

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
