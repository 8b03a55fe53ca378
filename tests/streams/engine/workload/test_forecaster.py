"""The forecaster of a cell with either model: snapshots, growth, gaps, and what it says of its experts."""

import msgspec
import numpy as np
import pytest
from tests.streams.engine.scene import CONFIG, FORECAST, Cell, Out, Values, inventory, spec

from flyball_contracts.codec import Message
from flyball_contracts.config import ForecastConfig
from flyball_contracts.records import Allocation, Forecast
from flyball_streams.engine.packing import pack, unpack
from flyball_streams.engine.parameters import ForecastParameters, SizingParameters
from flyball_streams.engine.workload.forecast.forecaster import Forecaster, View

pytestmark = pytest.mark.timeout(600)  # it compiles much

SEASON = 12
DAMPED = msgspec.structs.replace(FORECAST, trust_after_ticks=20)
SEASONAL = msgspec.structs.replace(DAMPED, model="ensemble", season_ticks=SEASON)  # all experts, those of a season too
either = pytest.mark.parametrize("config", [DAMPED, SEASONAL], ids=["damped", "ensemble"])


def values(tick: int, names: int = 3) -> dict[str, float]:
    """Work of some workloads, a fifth of it missing."""
    rng = np.random.default_rng(tick)
    level = 100 * np.exp(np.sin(2 * np.pi * tick / SEASON) + 0.1 * rng.normal(size=names))
    return {f"serve-{i}": float(level[i]) for i in range(names) if rng.random() > 0.2}


def same(a: dict[str, View], b: dict[str, View]) -> bool:
    assert list(a) == list(b)
    return all(
        x.quantiles.tobytes() == y.quantiles.tobytes()
        and x.coverage.tobytes() == y.coverage.tobytes()
        and (x.observed, x.trusted, x.weights) == (y.observed, y.trusted, y.weights)
        for x, y in zip(a.values(), b.values(), strict=True)
    )


@either
def test_after_a_restart_it_goes_on_with_the_same_bits(config: ForecastParameters) -> None:
    one = Forecaster(config)
    for tick in range(40):
        one.step(values(tick))
    other = Forecaster(config)
    other.load(unpack(pack(one.state())))
    for tick in range(40, 60):
        assert same(one.step(values(tick)), other.step(values(tick)))


@either
def test_a_forecast_has_the_same_bits_whenever_it_is_read(config: ForecastParameters) -> None:
    at_once, later = Forecaster(config), Forecaster(config)
    found: list[tuple[dict[str, View], dict[str, View]]] = []
    for tick in range(30):
        read = at_once.step(values(tick))
        assert same(read, read)
        found.append((read, later.step(values(tick))))
    assert all(same(read, kept) for read, kept in found)


def test_room_made_for_more_workloads_changes_no_bit() -> None:
    """One has the room from the start. That the ensemble grows alike, the tests of the models say."""
    growing, roomy = Forecaster(DAMPED), Forecaster(DAMPED, 96)  # compiled once for both in the end
    for tick in range(40):
        more = {f"other-{i}": 1.0 + i for i in range(70)} if tick >= 20 else {}
        assert same(growing.step(values(tick) | more), roomy.step(values(tick) | more))
        assert growing.capacity == (96 if tick >= 20 else 64)


def test_the_mix_says_what_each_expert_weighs() -> None:
    forecaster = Forecaster(SEASONAL)
    for tick in range(4 * SEASON):
        forecaster.step(values(tick))
    view = forecaster.step({"serve-0": 100.0})["serve-0"]
    assert sum(view.weights.values()) == pytest.approx(1.0, abs=1e-3)
    assert {"last", "damped", "days", "regression"} <= set(view.weights)
    assert Forecaster(DAMPED).step({"a": 1.0})["a"].weights == {}


def test_a_long_silence_ends_open_forecasts_and_keeps_the_season() -> None:
    forecaster, silence = Forecaster(SEASONAL), 2 * 7 * SEASON + 11
    for tick in range(3 * SEASON):
        forecaster.step(values(tick))
    assert forecaster.steps == 3 * SEASON
    forecaster.skip(silence)
    not_made = 3 * SEASON + silence - forecaster.steps
    assert not_made > 0
    assert not_made % (7 * SEASON) == 0
    assert forecaster.steps - 3 * SEASON >= SEASONAL.horizon_ticks


def test_a_season_no_longer_than_the_horizons_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="pass more than 61, or 0"):
        msgspec.convert({"model": "ensemble", "season_ticks": 61}, ForecastConfig)


def test_what_the_lane_publishes_of_the_ensemble() -> None:
    forecast = msgspec.structs.replace(FORECAST, model="ensemble", season_ticks=SEASON)
    config = msgspec.structs.replace(CONFIG, forecast=forecast, sizing=SizingParameters(policy="forecast_band"))
    service = spec("serve", capacity_per_replica=100.0, max_replicas=12, cold_start_s=2.0)

    def played() -> Out:
        held = [Allocation(workload="serve", replica=f"{i}", devices=(i,)) for i in range(6)]
        cell = Cell(inventory("node-1", 8, held), records=[service], config=config)
        random = np.random.default_rng(5)
        out: list[Message] = []
        for tick in range(60):
            work = 150.0 * random.normal(1.0, 0.05) / 6
            shown = {"flyball.workload.request.rate": 1.0, "flyball.workload.work.rate": work}
            out += cell.run(tick, 1, Values({"hw.gpu.utilization{task=general}": 0.5}, {}, shown)).messages
        return Out(out)

    out = played()
    found = out.of(Forecast)[-1]
    assert found.model == "ensemble+conformal"
    assert sum(found.experts.values()) == pytest.approx(1.0, abs=1e-3)
    proposal = next(p for p in out.proposals() if p.workload == "serve")
    named = {e.name: e.value for e in proposal.evidence}
    assert named["forecast.level"] == config.sizing.down_level
    assert len([name for name in named if name.startswith("forecast.weight.")]) == 3
    assert [m.value for m in out.messages] == [m.value for m in played().messages]
