"""Forecasts earn their trust, and without it nobody loses a replica to the band."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest
from tests.streams.engine.scene import CONFIG, FORECAST, Cell, Out, Values, inventory, spec

from flyball_contracts.records import Allocation, Forecast, ProposalTick
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.workload.forecast.forecaster import FORGET_STEPS, Forecaster

REPLICAS = 6
SERVICE = spec("serve", capacity_per_replica=100.0, max_replicas=12, cold_start_s=2.0)
SIZING = msgspec.structs.replace(CONFIG.sizing, policy="forecast_band", reversal_cooldown_s=2.0, tolerance=0.0)
QUICK = msgspec.structs.replace(CONFIG, sizing=SIZING)


def cell(config: Parameters = QUICK) -> Cell:
    held = [Allocation(workload="serve", replica=f"{i}", devices=(i,)) for i in range(REPLICAS)]
    return Cell(inventory("node-1", REPLICAS + 2, held), records=[SERVICE], config=config)


def load(work: float | None, queued: float = 0.0) -> Values:
    shown = {"flyball.workload.request.rate": 1.0, "flyball.workload.request.queued": queued / REPLICAS}
    if work is not None:
        shown["flyball.workload.work.rate"] = work / REPLICAS
    return Values({"hw.gpu.utilization{task=general}": 0.5}, {}, shown)


def noisy(service: Cell, mean: float, ticks: int) -> Out:
    """A load that a forecast can learn: steady, with a little noise."""
    random = np.random.default_rng(5)
    return Out([m for i in range(ticks) for m in service.run(i, 1, load(mean * random.normal(1.0, 0.05))).messages])


def proposals(out: Out) -> list[int]:
    return [p.replicas for p in out.proposals() if p.replicas is not None]


def test_a_forecast_is_trusted_only_after_enough_ticks() -> None:
    found = noisy(cell(), 300.0, 80).of(Forecast)
    trusted = [f.trusted for f in found]
    first = trusted.index(True)
    # The first values have no forecast that was made `lead` ticks before them.
    assert first >= FORECAST.trust_after_ticks + FORECAST.lead_ticks - 1
    assert not any(f.coverage for f in found[: FORECAST.lead_ticks])


def test_who_is_not_trusted_gets_more_but_never_less() -> None:
    never = msgspec.structs.replace(QUICK, forecast=msgspec.structs.replace(FORECAST, trust_after_ticks=10_000))
    distrusted = cell(never)
    assert proposals(noisy(distrusted, 150.0, 80)) == []
    up = proposals(distrusted.run(80, 5, load(800.0)))
    assert up
    assert min(up) > REPLICAS
    assert proposals(distrusted.run(85, 40, load(20.0))) == []


def test_needs_are_looked_at_when_five_seconds_end_and_stand_until_the_next_look() -> None:
    service = cell()
    noisy(service, 150.0, 80)
    published = [tick for tick in service.run(80, 12, load(800.0)).of(ProposalTick) if tick.source == "workload/0"]
    new = next(i for i, tick in enumerate(published) if tick.proposals)
    assert published[new].tick.end_ns % (5 * 10**9) == 0
    proposal = published[new].proposals[0].id
    assert [tick.repeated for tick in published[new + 1 : new + 5]] == [(proposal,)] * 4


def test_who_is_trusted_loses_what_is_not_needed() -> None:
    out = noisy(cell(), 150.0, 80)
    assert proposals(out)
    assert max(proposals(out)) < REPLICAS
    first = next(f.time_ns for f in out.of(Forecast) if f.trusted)
    assert all(published.tick.end_ns >= first for published in out.of(ProposalTick) if published.proposals)


def test_a_queue_asks_for_more() -> None:
    assert proposals(cell().run(0, 8, load(400.0))) == []
    assert min(proposals(cell().run(0, 8, load(400.0, queued=300.0)))) > REPLICAS


def test_a_tick_without_the_work_is_a_gap_and_not_a_drop() -> None:
    service = cell()
    service.run(0, 30, load(300.0))
    before = service.run(30, 1, load(300.0)).of(Forecast)
    assert service.run(31, 3, load(None)).of(Forecast) == []
    after = service.run(34, 1, load(300.0)).of(Forecast)
    assert before[0].observed == after[0].observed == pytest.approx(300.0)
    assert min(min(row) for row in after[0].quantiles) > 100.0


def test_where_work_is_not_known_busy_gpus_stand_in() -> None:
    (found, *_) = cell().run(0, 8, load(None)).of(Forecast)
    assert found.observed == pytest.approx(0.5 * REPLICAS)


def test_series_that_ended_give_their_room_to_new_ones() -> None:
    forecaster = Forecaster(FORECAST)
    forecaster.step({f"old-{i:02}": 1000.0 for i in range(64)})
    forecaster.steps += FORGET_STEPS  # so much later
    view = forecaster.step({"new": 1.0})["new"]
    assert forecaster.capacity == 64
    assert len(forecaster.slots) == 64
    assert view.quantiles.max() < 50.0  # nothing of the series before is left
    assert sorted(forecaster.slots.values()) == list(range(64))


def test_forecasts_are_published_now_and_then_and_whenever_a_proposal_rests_on_one() -> None:
    seldom = msgspec.structs.replace(QUICK, forecast=msgspec.structs.replace(FORECAST, publish_every_ticks=10))
    service = cell(seldom)
    calm = service.run(0, 80, load(430.0))
    assert calm.proposals() == []
    assert {b.time_ns - a.time_ns for a, b in pairwise(calm.of(Forecast))} == {10 * 10**9}
    busy = service.run(80, 5, load(1100.0))
    known = {f.id for f in (*calm.of(Forecast), *busy.of(Forecast))}
    cited = [e.record for p in busy.proposals() for e in p.evidence if e.record]
    assert cited
    assert set(cited) <= known
    assert len(busy.of(Forecast)) < 5 + len(busy.proposals())
