"""Initial states of forecasters: the series of a recording, played and fitted before the first tick."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from flyball_contracts.codec import decode_record
from flyball_contracts.config import WorkerConfig
from flyball_contracts.errors import RecordingError
from flyball_contracts.records import Forecast
from flyball_contracts.topics import INSIGHTS
from flyball_streams.engine import Engine
from flyball_streams.engine.packing import on_host
from flyball_streams.engine.parameters import ForecastParameters, Parameters, parameters
from flyball_streams.engine.workload.forecast.forecaster import Forecaster
from flyball_streams.engine.workload.forecast.history import History
from flyball_streams.recording.offline import fed
from flyball_streams.recording.reader import Recording

log = logging.getLogger(__name__)
SEASONS = 8
LEAST_TICKS = 4096
"""A series is cut to its last :data:`SEASONS` seasons, or to this many ticks if that is more: enough for all rates."""
BRIEF = ForecastParameters(horizon_ticks=1, lead_ticks=1, publish_every_ticks=1, levels=(0.5, 0.95))
"""Settings with which the engine publishes the forecaster's input of each workload at each tick."""


def histories(config: WorkerConfig) -> dict[str, History]:
    """Initial states of each cell's forecasters, from ``forecast.history``; empty if that is empty.

    Raises :class:`RecordingError` when the recording cannot be read, or no workload in it reports anything.
    """
    if not config.forecast.history:
        return {}
    known = parameters(config)
    path = Path(config.forecast.history)
    found: dict[str, History] = {}
    for cell, (period_ns, first, names, values) in sorted(_series(path, known).items()):
        found[cell] = trained(names, values, period_ns, first + len(values) - 1, known.forecast)
        log.info("forecasts of cell %s start from %d ticks of %d workloads", cell, len(values), len(names))
    return found


def trained(
    names: tuple[str, ...], values: NDArray[np.float32], period_ns: int, last_tick: int, config: ForecastParameters
) -> History:
    """Play ``values[T, S]``, NaN where missing, to a new forecaster, and fit offline what can be fitted."""
    values = values[-max(SEASONS * config.season_ticks, LEAST_TICKS) :]
    forecaster = Forecaster(config)
    forecaster.place(names)
    for row in values.tolist():
        forecaster.step({name: v for name, v in zip(names, row, strict=True) if np.isfinite(v)})
    smooth, bands = forecaster.states()
    smooth = forecaster.points.fitted(smooth, values)
    slots = tuple(forecaster.slots[name] for name in names)
    return History(names, slots, period_ns, last_tick, on_host(smooth), on_host(bands))


Series = tuple[int, int, tuple[str, ...], NDArray[np.float32]]


def _series(path: Path, config: Parameters) -> Mapping[str, Series]:
    """Period, first tick, names and values [T, S] of each cell.

    A workload whose unit changed from GPUs to work is left out, and logged: in production its unit will change again.
    """
    engine = Engine(msgspec.structs.replace(config, forecast=BRIEF))
    rows: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for _, sent in fed(Recording.open(path), engine.feed):
        for message in sent:
            if message.topic == INSIGHTS.name:
                record = decode_record(message.topic, message.value, message.headers)
                if isinstance(record, Forecast):
                    values = rows.setdefault(record.cell, {}).setdefault(record.subject, [])
                    values.append((record.time_ns, math.nan if record.observed is None else record.observed))
    changed = {name for lane in engine.workloads for cell in lane.cells.values() for name in cell.in_work}
    changed = {n for n in changed if (spec := engine.directory.spec(n)) is None or spec.capacity_per_replica <= 0}
    periods = {cell: ticks.gate.period_ns for lane in engine.workloads for cell, ticks in lane.ticks.items()}
    found: dict[str, Series] = {}
    for cell, values_of in rows.items():
        for name in sorted(values_of.keys() & changed):
            log.warning(
                "%s: forecasts of %s (cell %s) start from nothing: its load is in GPUs until its capacity was learned, "
                "and in work from then on; name its capacity_per_replica and record again",
                path,
                name,
                cell,
            )
        names = tuple(sorted(values_of.keys() - changed))
        if names:
            found[cell] = _table(periods[cell], names, values_of)
    if not found:
        why = "every load in it changes its unit" if rows else "no workload with a specification reports its load"
        raise RecordingError(
            f"{path}: no forecast can start from it, because {why}; record flyball.telemetry.v1, flyball.inventory.v1 "
            "and flyball.workloads.v1, or leave out worker.forecast.history (--history)"
        )
    return found


def _table(period_ns: int, names: tuple[str, ...], values_of: Mapping[str, list[tuple[int, float]]]) -> Series:
    ticks = {name: np.array([t // period_ns - 1 for t, _ in values_of[name]]) for name in names}
    first, last = min(int(t.min()) for t in ticks.values()), max(int(t.max()) for t in ticks.values())
    values = np.full((last - first + 1, len(names)), np.nan, np.float32)
    for column, name in enumerate(names):
        values[ticks[name] - first, column] = [value for _, value in values_of[name]]
    return period_ns, first, names, values
