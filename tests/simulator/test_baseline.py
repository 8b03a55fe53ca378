"""The same fleet without Flyball: its autoscaler, its time-outs, and what it does not do."""

from msgspec.structs import replace
from tests.simulator.orders import CONFIG, START_NS

from flyball_contracts.config import FleetConfig
from flyball_simulator.cell.baseline import Baseline
from flyball_simulator.cell.hpa import PodAutoscaler


def run(config: FleetConfig, ticks: int) -> Baseline:
    baseline = Baseline(config, START_NS)
    for _ in range(ticks):
        baseline.tick()
    return baseline


def number(config: FleetConfig, workload: str) -> int:
    return [s.workload for s in Baseline(config, START_NS).plant.specs].index(workload)


def test_within_the_tolerance_it_holds() -> None:
    pods = PodAutoscaler(1, 100, 0.7)
    assert [pods.recommend(15.0 * i, 10, 10, u) for i, u in enumerate((0.7, 0.76, 0.64))] == [10, 10, 10]


def test_it_goes_up_at_once_but_at_most_doubles_or_adds_four() -> None:
    assert PodAutoscaler(1, 100, 0.5).recommend(0.0, 10, 10, 0.8) == 16
    assert PodAutoscaler(1, 100, 0.2).recommend(0.0, 10, 10, 1.0) == 20
    assert PodAutoscaler(1, 100, 0.1).recommend(0.0, 2, 2, 1.0) == 6
    assert PodAutoscaler(1, 12, 0.2).recommend(0.0, 10, 10, 1.0) == 12


def test_pods_that_are_not_ready_count_as_idle_on_the_way_up() -> None:
    assert PodAutoscaler(1, 100, 0.7).recommend(0.0, 20, 10, 1.0) == 20
    assert PodAutoscaler(1, 100, 0.7).recommend(0.0, 12, 10, 1.0) == 15


def test_it_goes_down_to_the_highest_of_five_minutes() -> None:
    pods = PodAutoscaler(2, 100, 0.7)
    wanted = [pods.recommend(15.0 * i, 10, 10, 0.7 if i == 0 else 0.2) for i in range(25)]
    assert wanted[20] == 10  # 300 s after it needed ten
    assert wanted[21] == 3
    assert pods.recommend(1000.0, 10, 10, 0.0) == 2


def test_it_scales_out_under_the_burst_and_starts_jobs_that_can_wait() -> None:
    baseline = run(CONFIG, 120)
    account = {w.workload: w for w in baseline.account().workloads}
    assert account["chat-api"].replicas > 20
    assert 12 < account["chat-api"].ready <= 22  # there is no room for more, and nothing is preempted
    assert account["video-index"].ready == 8
    assert account["synth-data"].ready == 24
    assert (account["protein-fold"].progress or 0.0) > 0


def test_a_gang_that_hangs_goes_on_after_the_time_out_of_its_collective() -> None:
    roomy = replace(CONFIG, collective_timeout_s=100.0, batches=())
    gang = number(roomy, "vision-train")
    baseline = run(roomy, 120)  # its GPU died in second 28
    assert baseline.plant.hung(gang)
    for _ in range(60):
        baseline.tick()
    assert not baseline.plant.hung(gang)
    lost_s = baseline.plant.lost_gpu_s[gang] / 32
    assert 27 + 100 <= lost_s <= 30 + 102
    assert baseline.plant.ready(gang) == 8


def test_a_pod_on_a_dead_gpu_is_started_elsewhere_after_its_time_out() -> None:
    failing = (replace(CONFIG.failing[0], workload="embed-api", replica=2, from_s=2.0, dies_after_s=2.0),)
    config = replace(CONFIG, failing=failing, pod_timeout_s=60.0)
    baseline = run(config, 60)
    embed = number(config, "embed-api")
    assert any(baseline.plant.broken(r) for r in baseline.plant.placement.live(embed))
    for _ in range(60):
        baseline.tick()
    assert not any(baseline.plant.broken(r) for r in baseline.plant.placement.placed[embed])
    assert baseline.plant.ready(embed) >= 5


def test_a_straggler_is_not_noticed() -> None:
    config = replace(CONFIG, failing=(), tick_s=10.0)
    baseline = run(config, 200)
    gang = number(config, "llm-pretrain")
    rows = {row for r in baseline.plant.placement.live(gang) for row in r.rows}
    assert baseline.plant.faults.straggling[0][0] in rows
