"""Accounts: what is counted, against what the frames and the configuration say."""

import numpy as np
import pytest
from msgspec.structs import replace
from tests.simulator.orders import CONFIG, START_NS, preempt, scale

from flyball_contracts.codec import decode_message, decode_record
from flyball_contracts.config import FleetConfig
from flyball_contracts.frame import Frame
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Account, WorkloadAccount
from flyball_contracts.topics import INSIGHTS
from flyball_simulator import Fleet
from flyball_simulator.cell.baseline import Baseline
from flyball_simulator.service.platform import Platform
from flyball_simulator.signals import carbon_now

CALM = replace(CONFIG, failing=(), straggling=())
ENERGY = GPU.column("hw.energy")


def run(fleet: Fleet, ticks: int) -> Account:
    for i in range(fleet.plant.index, fleet.plant.index + ticks):
        fleet.tick(i)
    return fleet.account()


def part(account: Account, workload: str) -> WorkloadAccount:
    return next(w for w in account.workloads if w.workload == workload)


def test_a_minute_of_a_fleet_that_nobody_steers() -> None:
    fleet, energy_j = Fleet(CALM, START_NS), 0.0
    for i in range(60):
        for m in fleet.tick(i):
            record = decode_message(m.topic, m.value, list(m.headers))
            if isinstance(record, Frame) and record.schema == GPU.schema:
                energy_j += float(record.values[:, ENERGY].sum())
    account = fleet.account()
    assert account.scenario == "actual"
    assert account.time_ns - account.since_ns == 60 * 10**9
    held = fleet.placement.owner >= 0
    assert account.gpu_h == pytest.approx(held.sum() / 60)
    prices = np.array([n.price_usd_per_hour / len(n.devices) for n in fleet.nodes for _ in n.devices])  # type: ignore[operator]
    assert account.cost_usd == pytest.approx(prices[held].sum() / 60)
    assert account.energy_j == pytest.approx(energy_j, rel=1e-5)
    low, high = min(carbon_now(CALM, 0.0)), max(carbon_now(CALM, 0.0))
    assert low < account.carbon_g / (energy_j / 3.6e6) < high
    assert account.lost_gpu_h == 0
    assert account.gpu_h == pytest.approx(sum(w.gpu_h for w in account.workloads))
    assert account.useful_gpu_h == pytest.approx(sum(w.useful_gpu_h or 0.0 for w in account.workloads))
    for w in account.workloads:
        assert 0 <= (w.useful_gpu_h or 0.0) <= w.gpu_h * 1.0001, w.workload
    chat = part(account, "chat-api")
    assert (chat.replicas, chat.ready) == (12, 12)
    assert 0 < (chat.in_time or 0.0) < (chat.requests or 0.0)
    assert account.requests == pytest.approx(sum(w.requests or 0.0 for w in account.workloads))
    assert part(account, "protein-fold").progress == pytest.approx(60 / 10_800, rel=0.02)


def test_what_holds_less_costs_less() -> None:
    idle, same = Fleet(CALM, START_NS), Fleet(CALM, START_NS)
    idle.apply(preempt("synth-data", 0))
    less, more = run(idle, 60), run(same, 60)
    assert less.gpu_h < more.gpu_h
    assert less.cost_usd < more.cost_usd
    assert less.energy_j < more.energy_j
    assert less.carbon_g < more.carbon_g
    assert less.requests == more.requests


def test_work_that_is_lost_is_not_useful() -> None:
    def after_a_stop(*, checkpoint: bool) -> WorkloadAccount:
        fleet = Fleet(CALM, START_NS)
        run(fleet, 60)
        fleet.apply(preempt("protein-fold", 0, checkpoint=checkpoint))
        return part(run(fleet, 60), "protein-fold")

    kept, thrown = after_a_stop(checkpoint=True), after_a_stop(checkpoint=False)
    assert kept.lost_gpu_h == 0
    assert thrown.lost_gpu_h > 0
    assert kept.useful_gpu_h == pytest.approx((thrown.useful_gpu_h or 0.0) + thrown.lost_gpu_h, rel=0.1)


def test_a_deadline_is_kept_or_missed() -> None:
    fold = replace(CONFIG.batches[1], duration_s=20.0, deadline_s=40.0)
    fleet = Fleet(replace(CALM, batches=(fold,)), START_NS)
    assert part(run(fleet, 10), "protein-fold").in_time_end is None
    kept = part(run(fleet, 30), "protein-fold")
    assert (kept.progress, kept.in_time_end, kept.replicas) == (1.0, True, 0)
    late = Fleet(replace(CALM, batches=(fold,)), START_NS)
    late.apply(preempt("protein-fold", 0))
    assert part(run(late, 60), "protein-fold").in_time_end is False
    late.apply(scale("protein-fold", 16))
    assert part(run(late, 90), "protein-fold").in_time_end is False


def test_both_accounts_are_published_and_shown() -> None:
    platform = Platform(Fleet(CALM, START_NS), 0.0, Baseline(CALM, START_NS))
    sent: list[tuple[int, str]] = []
    for i in range(25):
        for m in platform.tick(i):
            if m.topic == INSIGHTS.name:
                record = decode_record(m.topic, m.value, m.headers)
                assert isinstance(record, Account)
                sent.append((i, record.scenario))
    assert sent == [(i, scenario) for i in (0, 10, 20) for scenario in ("actual", "baseline")]
    actual, baseline = platform.accounts()
    assert actual.id != baseline.id
    assert actual.requests == pytest.approx(baseline.requests)


def test_the_same_time_in_ticks_of_one_and_of_ten_seconds() -> None:
    def spent(config: FleetConfig) -> Account:
        baseline = Baseline(config, START_NS)
        for _ in range(round(900 / config.tick_s) + 1):
            baseline.tick()
        return baseline.account()

    fine, coarse = spent(CONFIG), spent(replace(CONFIG, tick_s=10.0))
    for name in ("gpu_h", "cost_usd", "energy_j", "carbon_g", "requests", "in_time", "lost_gpu_h", "useful_gpu_h"):
        assert getattr(coarse, name) == pytest.approx(getattr(fine, name), rel=0.03), name
    late = [1.0 - a.in_time / a.requests for a in (fine, coarse)]
    assert late[1] == pytest.approx(late[0], rel=0.1)
