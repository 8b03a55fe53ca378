"""Forecasts that start from a recording: season and calibration are known at once, and a snapshot knows better."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import pytest
from bench.common.batching import Server, simulate
from tests.streams.engine.scene import (
    CELL,
    CONFIG,
    FORECAST,
    ONE,
    PERIOD_NS,
    Agent,
    Out,
    Values,
    incoming_records,
    inventory,
    spec,
    tick,
)

from flyball_contracts.errors import RecordingError
from flyball_contracts.records import Allocation, Forecast
from flyball_streams.engine import Engine, Incoming, Lane
from flyball_streams.engine.workload.forecast.history import History
from flyball_streams.recording import RecordedMessage, RecordingWriter, event_time_ns
from flyball_streams.recording.history import histories

pytestmark = pytest.mark.timeout(600)  # it compiles much

SEASON, TICKS = 12, 12 * 12
MIX = msgspec.structs.replace(FORECAST, model="ensemble", season_ticks=SEASON)
SERVE = spec("serve", capacity_per_replica=100.0, max_replicas=12)
TABLES = [inventory("node-1", 4, [Allocation(workload="serve", replica="0", devices=(0,))]), SERVE]
GPUS = Values({"hw.gpu.utilization{task=general}": 0.5})


def work(index: int) -> float:
    return float(100 * np.exp(np.sin(2 * np.pi * index / SEASON) + 0.02 * np.sin(1.7 * index)))


def frames(first: int, count: int) -> list[list[Incoming]]:
    agent = Agent(inventory("node-1", 4, [Allocation(workload="serve", replica="0", devices=(0,))]))
    agent.seq = 3 * first
    made: list[list[Incoming]] = []
    for index in range(first, first + count):
        shown = {"flyball.workload.request.rate": 1.0, "flyball.workload.work.rate": work(index)}
        made.append(agent.frames(index, GPUS._replace(workload=shown)))
    return made


def record(path: Path, batches: list[list[Incoming]]) -> Path:
    with RecordingWriter(path, made_by="test") as writer:
        for offset, m in enumerate(message for batch in batches for message in batch):
            time_ns, _ = event_time_ns(m.topic, m.value, m.headers, 0)
            writer.append(RecordedMessage(m.topic, 0, offset, time_ns, 0, m.key, m.value, list(m.headers)))
    return path


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(
        tmp_path_factory.mktemp("history") / "two-weeks.parquet", [incoming_records(*TABLES), *frames(0, TICKS)]
    )


@pytest.fixture(scope="module")
def fitted(recording: Path) -> Mapping[str, History]:
    forecast = msgspec.structs.replace(MIX, history=str(recording))
    return histories(msgspec.structs.replace(CONFIG, forecast=forecast))


def engine(fitted: Mapping[str, History] | None) -> Engine:
    made = Engine(msgspec.structs.replace(CONFIG, forecast=MIX), ONE, fitted)
    made.feed(incoming_records(*TABLES))
    return made


def played(made: Engine, batches: list[list[Incoming]]) -> Out:
    return Out([message for batch in batches for message in made.feed(batch)])


def test_the_first_forecast_knows_the_season_and_is_trusted(fitted: Mapping[str, History]) -> None:
    gap = 2 * SEASON + 5
    first = TICKS + gap
    found = played(engine(fitted), frames(first, 8)).of(Forecast)
    cold = played(engine(None), frames(first, 8)).of(Forecast)
    truth = [work(first + h) for h in range(1, 5)]
    middle = FORECAST.levels.index(0.5)
    assert found[0].trusted
    assert not cold[0].trusted
    off = np.abs(np.array([row[middle] for row in found[0].quantiles]) - truth).mean()
    flat = np.abs(np.array([row[middle] for row in cold[0].quantiles]) - truth).mean()
    assert off < 0.3 * flat


def test_the_same_history_gives_the_same_bytes(recording: Path, fitted: Mapping[str, History]) -> None:
    again = histories(msgspec.structs.replace(CONFIG, forecast=msgspec.structs.replace(MIX, history=str(recording))))
    batches = frames(TICKS, 10)
    one, other = (played(engine(history), batches) for history in (fitted, again))
    assert one.messages == other.messages
    assert one.messages != played(engine(None), batches).messages


def test_a_snapshot_wins(fitted: Mapping[str, History]) -> None:
    batches = frames(TICKS, 14)
    cold = engine(None)
    played(cold, batches[:9])
    held: list[Lane] = [cold.nodes[0], *cold.workloads, *cold.cells]
    states = [lane.snapshot() for lane in held]
    other = engine(fitted)
    played(other, batches[:1])  # makes the node lane
    fresh: list[Lane] = [other.nodes[0], *other.workloads, *other.cells]
    for lane, state in zip(fresh, states, strict=True):
        lane.restore(state)
    assert played(other, batches[9:]).messages == played(cold, batches[9:]).messages


def test_ticks_of_another_length_start_from_nothing_and_say_so(
    fitted: Mapping[str, History], caplog: pytest.LogCaptureFixture
) -> None:
    history = fitted[CELL]
    names, slots = (*history.names, "batch"), (*history.slots, 1)
    longer = {CELL: history._replace(names=names, slots=slots, period_ns=10 * PERIOD_NS)}
    batches = frames(TICKS, 8)
    assert played(engine(longer), batches).messages == played(engine(None), batches).messages
    told_of = [record.getMessage() for record in caplog.records]
    assert [text.split(" (")[0] for text in told_of] == ["forecasts of serve", "forecasts of batch"]
    for text in told_of:
        assert "every 10 s" in text
        assert "every 1 s" in text
        assert "agent.period_s" in text


def test_a_history_that_ends_later_counts_by_its_phase(fitted: Mapping[str, History]) -> None:
    history = fitted[CELL]
    for ahead in (0, 3, 7 * SEASON + 2):
        before = tick(history.last_tick - tick(0).index - ahead)
        assert (history.last_tick + 1 + history.gap(before, SEASON) - before.index) % (7 * SEASON) == 0


def test_a_recording_that_is_of_no_use_is_one_error(tmp_path: Path) -> None:
    def read(path: Path) -> None:
        histories(msgspec.structs.replace(CONFIG, forecast=msgspec.structs.replace(FORECAST, history=str(path))))

    with pytest.raises(RecordingError, match="there is no such file"):
        read(tmp_path / "none.parquet")
    with pytest.raises(RecordingError, match="it holds no telemetry"):
        read(record(tmp_path / "tables.parquet", [incoming_records(*TABLES)]))
    with pytest.raises(RecordingError, match="no workload with a specification reports its load"):
        read(record(tmp_path / "nobody.parquet", [incoming_records(TABLES[0]), *frames(0, 8)]))
    assert histories(CONFIG) == {}


def test_a_load_that_changes_its_unit_is_left_out_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Until it is known what a replica sustains its load is in GPUs."""
    agent = Agent(inventory("node-1", 4, [Allocation(workload="serve", replica="0", devices=(0,))]))
    batches: list[list[Incoming]] = []
    for index, row in enumerate(simulate(Server(), 1, np.full(150, 1.25), seed=2)):
        _, rate, requests, active, queued, use, _, tokens, *_ = row.tolist()
        shown = {"work.rate": rate, "request.rate": requests, "request.active": active, "request.queued": queued}
        workload = {f"flyball.workload.{name}": value for name, value in shown.items()}
        workload["flyball.workload.token.rate{kind=output}"] = tokens
        batches.append(agent.frames(index, Values({"hw.gpu.utilization{task=general}": use}, workload=workload)))
    path = record(tmp_path / "learned.parquet", [incoming_records(TABLES[0], spec("serve")), *batches])
    with pytest.raises(RecordingError, match="every load in it changes its unit"):
        histories(msgspec.structs.replace(CONFIG, forecast=msgspec.structs.replace(FORECAST, history=str(path))))
    (message,) = [each.getMessage() for each in caplog.records]
    assert "serve" in message
    assert "capacity_per_replica" in message
