"""Capacities of a cell's workloads, learned from demand: seeded by owners, kept in snapshots, told as insights."""

from typing import Any

import msgspec
import numpy as np
import pytest
from bench.common.batching import Server, simulate
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from tests.streams.engine.scene import CELL, CONFIG, inventory, spec, tick

from flyball_contracts.codec import decode_record, record_message
from flyball_contracts.records import (
    Allocation,
    Architecture,
    Capacity,
    Demand,
    Forecast,
    Objective,
    ProposalTick,
    Tick,
    WorkloadSpec,
)
from flyball_streams.engine import Directory
from flyball_streams.engine.packing import pack, unpack
from flyball_streams.engine.parameters import Parameters
from flyball_streams.engine.workload.capacity.capacities import MOST_APART, Capacities, by_architecture, mean_wait_s
from flyball_streams.engine.workload.cell import WorkloadCell

SERVER = Server()
REPLICAS = 2
OBJECTIVE = Objective(delay_s=2.0)
EVERY = CONFIG.profile_every_ticks


@pytest.fixture(scope="module")
def busy() -> NDArray[np.float64]:
    """Seven minutes, three of them beyond what two replicas can do."""
    return simulate(SERVER, REPLICAS, np.concatenate([np.full(90, 0.5), np.full(180, 1.25), np.full(150, 0.5)]), seed=2)


def serving(**changes: Any) -> WorkloadSpec:
    return spec("serve", **({"objective": OBJECTIVE} | changes))


def known(*specs: WorkloadSpec, config: Parameters = CONFIG) -> Capacities:
    directory = Directory()
    for one in specs:
        directory.apply(one)
    return Capacities(CELL, config, directory)


def demand(row: NDArray[np.float64], workload: str = "serve") -> Demand:
    _, work, requests, active, queued, use, latency, tokens, failed, *_ = row.tolist()
    return Demand(
        workload=workload, replicas=REPLICAS, ready=REPLICAS, devices=REPLICAS, work_rate=work, request_rate=requests,
        queued=queued, active=active, utilization_sum=use * REPLICAS, tokens_out_rate=tokens, failed=failed,
        latency_s=latency if latency == latency else None,
    )  # fmt: skip


def measure(capacities: Capacities, rows: NDArray[np.float64], first: int = 0, *also: str) -> list[Capacity]:
    reported: list[Capacity] = []
    for i, row in enumerate(rows):
        demands = {name: demand(row, name) for name in ("serve", *also)}
        reported += observe(capacities, tick(first + i), demands)
    return reported


def observe(capacities: Capacities, at: Tick, demands: dict[str, Demand]) -> list[Capacity]:
    specs = {name: found for name in demands if (found := capacities.directory.spec(name)) is not None}
    capacities.observe(at, demands, specs)
    return list(capacities.records(at, demands, specs))


def test_the_owner_is_believed_until_replicas_were_saturated(busy: NDArray[np.float64]) -> None:
    service = serving(capacity_per_replica=1.6 * SERVER.capacity)
    capacities = known(service)
    measure(capacities, busy[:120])
    assert capacities.of(service, demand(busy[0]))[:2] == (service.capacity_per_replica, "owner")
    reported = measure(capacities, busy[120:], 120)
    fitted = capacities.of(service, demand(busy[-1]))
    assert fitted.source == "measured"
    assert fitted.work_per_s == pytest.approx(SERVER.capacity, rel=0.12)
    assert fitted.relative_error < 0.25
    last = reported[-1]
    assert (last.source, last.used_work_per_s) == ("measured", last.work_per_s)
    assert last.saturated_windows >= 3
    errors = {m.name: m.relative_error for m in last.methods}
    assert errors["online"] < errors["spec"]
    assert sum(m.weight for m in last.methods) == pytest.approx(1.0)
    message = record_message(last, "/test")
    assert decode_record(message.topic, message.value, message.headers) == last


def test_an_owner_who_is_far_off_bounds_what_is_used(busy: NDArray[np.float64]) -> None:
    service = serving(capacity_per_replica=8.0 * SERVER.capacity)
    capacities = known(service)
    measure(capacities, busy)
    assert capacities.of(service, demand(busy[-1])).work_per_s == service.capacity_per_replica / MOST_APART


def test_who_wants_only_the_owners_word_gets_it(busy: NDArray[np.float64]) -> None:
    sizing = msgspec.structs.replace(CONFIG.sizing, measured=())
    service = serving(capacity_per_replica=50.0, cold_start_s=33.0)
    capacities = known(service, config=msgspec.structs.replace(CONFIG, sizing=sizing))
    reported = measure(capacities, busy)
    assert capacities.of(service, demand(busy[-1])).work_per_s == 50.0
    assert capacities.cold_start_s(service) == 33.0
    assert reported[-1].work_per_s == pytest.approx(SERVER.capacity, rel=0.12)  # what would have been learned is shown


def test_without_an_owner_work_counts_in_gpus_until_capacity_is_known(busy: NDArray[np.float64]) -> None:
    service = serving(gpus_per_replica=2.0)
    capacities = known(service)
    assert (capacities.in_work(service), capacities.of(service, demand(busy[0]))[:2]) == (False, (2.0, "GPUs"))
    measure(capacities, busy)
    assert capacities.in_work(service)
    assert capacities.of(service, demand(busy[-1])).work_per_s == pytest.approx(SERVER.capacity, rel=0.08)
    silent = msgspec.structs.replace(demand(busy[-1]), work_rate=None)
    assert capacities.of(service, silent)[:2] == (2.0, "GPUs")


def test_a_series_changes_its_unit_once_and_whole(busy: NDArray[np.float64]) -> None:
    """Forecasts count in busy GPUs until it is known what a replica sustains, then in work, and never mix the two."""
    cell = WorkloadCell(CELL, "workload/0", CONFIG, known(serving()).directory)
    reported: list[Forecast] = []
    for i, row in enumerate(busy[75:225]):
        published = list(cell.close(tick(i), {"serve": demand(row)}, []))
        reported += [record for record in published if isinstance(record, Forecast)]
    units = [record.observed is not None and record.observed > 10.0 for record in reported]
    assert units == sorted(units)
    assert {True, False} == set(units)
    first = reported[units.index(True)]
    assert not first.trusted  # what it learned of GPUs says nothing of work
    assert min(q[2] for q in first.quantiles) > 10.0


def test_a_workload_whose_owner_withdraws_its_capacity_is_sized_in_gpus_again() -> None:
    directory = Directory()
    cell = WorkloadCell(CELL, "lane", CONFIG, directory)
    busy = Demand(
        workload="serve", replicas=2, ready=2, devices=2, work_rate=70.0, request_rate=70.0, queued=0.0, active=1.0,
        utilization_sum=1.9,
    )  # fmt: skip
    wanted: list[int | None] = []
    for second in range(120):
        owned = serving(capacity_per_replica=50.0 if second < 30 else 0.0, time_ns=second // 30)
        directory.apply(owned)
        for record in cell.close(tick(second), {"serve": busy}, [owned]):
            if isinstance(record, ProposalTick) and second >= 60:
                wanted += [p.replicas for p in record.proposals]
            if isinstance(record, Forecast):
                assert record.observed == (70.0 if second < 30 else 1.9)
    assert set(wanted) == {3}


def test_insights_come_at_the_profile_interval(busy: NDArray[np.float64]) -> None:
    reported = measure(known(serving(capacity_per_replica=1.0)), busy[: 3 * EVERY])
    assert len(reported) == 3
    assert all(record.time_ns % (EVERY * 10**9) == 10**9 for record in reported)


@settings(max_examples=5, deadline=None)
@given(st.integers(1, 200), st.integers(0, 150))
def test_a_snapshot_continues_to_the_bit(busy: NDArray[np.float64], cut: int, away: int) -> None:
    """Also across a gap in the ticks, and with a workload that others know nothing of."""
    specs = (serving(capacity_per_replica=500.0), spec("other", objective=OBJECTIVE))
    whole, first = known(*specs), known(*specs)
    rows = busy[60:270]
    measure(first, rows[:cut], 0, "other")
    second = known(*specs)
    second.load(unpack(pack(first.state())))
    measure(whole, rows[:cut], 0, "other")
    ours, theirs = (measure(c, rows[cut:], cut + away, "other") for c in (whole, second))
    assert ours == theirs
    assert pack(whole.state()) == pack(second.state())


def test_more_workloads_than_room_change_nothing_for_those_before(busy: NDArray[np.float64]) -> None:
    many = [f"w{i}" for i in range(80)]
    small = known(serving())
    large = known(serving(), *(spec(name) for name in many))
    rows = busy[80:240]
    measure(small, rows)
    measure(large, rows[:70])
    measure(large, rows[70:], 70, *many)
    slot = large.slots["serve"]
    np.testing.assert_array_equal(
        small.known.latest.values[:, small.slots["serve"]], large.known.latest.values[:, slot]
    )


def starts(*steps: tuple[int, int, int], capacities: Capacities, name: str = "serve") -> None:
    for index, replicas, ready in steps:
        observe(capacities, tick(index), {name: Demand(workload=name, replicas=replicas, ready=ready, devices=0)})


def test_cold_starts_are_measured_by_place() -> None:
    service = serving(cold_start_s=60.0)
    capacities = known(service)
    held = [Allocation(workload="serve", replica="0", devices=(0,))]
    assert isinstance(capacities.directory, Directory)
    capacities.directory.apply(inventory("node-1", 2, held, zone="DE"))
    starts((0, 1, 1), (1, 2, 1), *((i, 2, 1) for i in range(2, 20)), (20, 2, 2), capacities=capacities)
    (measured,) = capacities.starts.shown(service)
    assert (measured.gpu_model, measured.zone, measured.warm, measured.samples) == ("h100", "DE", True, 1)
    assert 19.0 < capacities.cold_start_s(service) < 60.0  # one sample is not yet a quantile
    starts((21, 0, 0), (22, 1, 0), *((i, 1, 0) for i in range(23, 142)), (142, 1, 1), capacities=capacities)
    assert [s.warm for s in capacities.starts.shown(service)] == [False, True]
    warm = capacities.cold_start_s(service)
    starts((143, 0, 0), capacities=capacities)
    assert capacities.cold_start_s(service) > warm  # from none it takes longer


def test_nobody_knows_when_a_start_began_that_a_gap_hides() -> None:
    service = serving(cold_start_s=60.0)
    capacities = known(service)
    starts((0, 1, 1), (1, 2, 1), (500, 2, 2), capacities=capacities)
    assert capacities.cold_start_s(service) == 60.0


def test_an_architecture_gives_a_first_estimate(busy: NDArray[np.float64]) -> None:
    llama = Architecture(
        parameters=8.03e9, layers=32, heads=32, kv_heads=8, head_size=128, prompt_tokens=1000.0, answer_tokens=200.0
    )
    requests = by_architecture(serving(model=llama, gpu_models=("h100", "a100")))
    assert by_architecture(serving(model=llama, gpu_models=("h100",))) > requests > 1.0
    assert np.isnan(by_architecture(serving(model=llama)))
    assert np.isnan(by_architecture(serving(gpu_models=("h100",))))
    reported = measure(known(serving(model=llama, gpu_models=("h100", "a100"))), busy[:91])[-1]
    assert [m.name for m in reported.methods] == ["static", "historic"]
    assert reported.methods[0].work_per_s == pytest.approx(requests * SERVER.tokens, rel=0.3)
    assert reported.source == "GPUs"
    assert reported.relative_error == pytest.approx(0.7)


def test_the_promise_of_a_quantile_bounds_the_mean() -> None:
    assert mean_wait_s(4.605, 0.99) == pytest.approx(1.0, rel=1e-3)
    assert mean_wait_s(3.0, 0.0) == 3.0
