"""Kinds, families, bottlenecks, phases, memory and waste, each from arrays alone."""

from typing import Any

import numpy as np
import pytest
from bench.profiles.labels import BOUNDS, FAMILIES, KINDS, UNSEEN
from bench.profiles.memory_courses import courses, judged
from bench.profiles.series import Series, generate
from bench.profiles.training import features_of

from flyball_contracts.metrics import GPU, HOST, WORKLOAD
from flyball_models.profile import course, filling, kinds, likeness, names, phase, signals, waste
from flyball_models.profile.course import FEATURES
from flyball_models.profile.signals import AT

SEED = 77


@pytest.fixture(scope="module")
def held_out() -> Series:
    return generate(300, SEED, part="held_out")


def right(names: tuple[str, ...], p: Any, true: list[str]) -> float:
    return float((np.array(names)[p.argmax(axis=0)] == np.array(true)).mean())


def test_the_generator_repeats_itself_and_knows_all_labels(held_out: Series) -> None:
    again = generate(300, SEED, part="held_out")
    np.testing.assert_array_equal(held_out.gpu, again.gpu)
    np.testing.assert_array_equal(held_out.page, again.page)
    assert (set(held_out.kind), set(held_out.family)) == (set(KINDS), set(FAMILIES))
    assert set(held_out.bound) <= set(BOUNDS)
    use = held_out.gpu[:, :, GPU.column("hw.gpu.utilization{task=general}")]
    assert ((use >= 0) & (use <= 1)).all()


def test_kinds_and_bottlenecks_of_parameters_that_were_never_trained_on(held_out: Series) -> None:
    table = kinds.shipped()
    found = kinds.classify(features_of(held_out), table)
    assert right(table.kinds, found.kind, held_out.kind) >= 0.95
    assert right(table.bounds, found.bound, held_out.bound) >= 0.90
    assert right(table.families, found.family, held_out.family) >= 0.80
    for p in (found.kind, found.family, found.bound):
        np.testing.assert_allclose(p.sum(axis=0), 1.0)


def test_kinds_of_families_that_were_never_seen() -> None:
    unseen = generate(200, SEED, part="held_out", families=UNSEEN)
    found = kinds.classify(features_of(unseen), kinds.shipped())
    assert right(kinds.shipped().kinds, found.kind, unseen.kind) >= 0.80


def test_what_nothing_is_known_of_gets_no_verdict_and_nothing_else_changes_by_it(held_out: Series) -> None:
    x = features_of(held_out)[:, :5]
    empty = np.full_like(x[:, :1], np.nan)
    found = kinds.classify(np.concatenate([x, empty], axis=1), kinds.shipped())
    assert np.isnan(found.kind[:, 5]).all()
    assert np.isnan(found.strangeness[5])
    alone = kinds.classify(x, kinds.shipped())
    np.testing.assert_allclose(found.kind[:, :5], alone.kind)
    assert kinds.classify(x[:, :0], kinds.shipped()).kind.shape == (len(KINDS), 0)


def test_a_table_for_other_features_is_refused() -> None:
    with pytest.raises(ValueError, match=r"profiles/train\.py"):
        kinds.from_json('{"features": ["use"]}')


def reading(rows: int, gpu: dict[str, float], page: dict[str, float] | None = None) -> signals.Reading:
    blocks = [np.full((rows, len(layout)), np.nan, np.float32) for layout in (GPU, HOST, WORKLOAD)]
    for block, layout, values in zip(blocks, (GPU, HOST, WORKLOAD), (gpu, {}, page or {}), strict=True):
        for key, value in values.items():
            block[:, layout.column(key)] = value
    ones = np.ones(rows, np.float32)
    return signals.Reading(blocks[0], blocks[1], blocks[2], ones * 100.0, ones, ones, 1.0)


def test_signals_know_memory_without_a_limit_and_refuse_what_cannot_be() -> None:
    found = signals.signals(
        reading(2, {"hw.gpu.memory.usage": 40.0, "hw.power": 1e30, "hw.gpu.io{direction=receive}": -5})
    )
    assert found[AT["memory"]].tolist() == pytest.approx([0.4, 0.4])
    assert np.isnan(found[[AT["power"], AT["pcie_in"], AT["reports_requests"]]]).all()
    reported = signals.signals(reading(1, {}, {"flyball.workload.step.time": 0.5}))
    assert reported[AT["reports_steps"], 0] == 1.0
    assert reported[AT["reports_requests"], 0] == 0.0


def test_a_mean_does_not_know_how_often_it_is_sampled_and_a_gap_leaves_it() -> None:
    everyone = np.ones(1, bool)
    x = signals.signals(reading(1, {"hw.gpu.utilization{task=general}": 0.6}))
    often, seldom = course.init(1), course.init(1)
    for i in range(60):
        often = course.step(often, x, everyone, 5.0)
        if i % 6 == 5:
            seldom = course.step(seldom, x, everyone, 30.0)
    gap = course.step(often, np.full_like(x, np.nan), everyone, 5.0)
    for state in (often, seldom, gap):
        assert course.summarize(state)[FEATURES.index("use"), 0] == pytest.approx(0.6)
    assert often.weight[AT["use"], 0] == pytest.approx(seldom.weight[AT["use"], 0], rel=1e-4)


def phase_of(usual: dict[str, float], now: dict[str, float], seen_s: float = 3000.0) -> str:
    x = np.full((len(FEATURES), 1), np.nan, np.float32)
    for name, value in usual.items():
        x[FEATURES.index(name)] = value
    both = {**{name: usual.get(name, np.nan) for name in course.RECENT}, **now}
    recent = {name: np.array([both[name]], np.float32) for name in course.RECENT}
    return phase.PHASES[int(phase.phases(x, recent, np.array([seen_s], np.float32))[0])]


STEADY = {"use": 0.9, "sm": 0.8, "memory": 0.7, "disk_write": 0.1, "pcie_out": 0.2, "network": 0.2}


@pytest.mark.parametrize(
    ("usual", "now", "seen_s", "wanted"),
    [
        (STEADY, {}, 3000.0, "steady"),
        (STEADY, {"use": 0.1, "sm": 0.05, "disk_write": 0.7}, 3000.0, "checkpoint"),
        (STEADY, {"use": 1.0, "sm": 0.1}, 3000.0, "stall"),  # kernels that wait for a peer
        (STEADY | {"reports_requests": 1.0}, {"use": 0.0, "sm": 0.0}, 3000.0, "idle"),
        ({"use": 0.01, "sm": 0.0, "memory": 0.5}, {}, 300.0, "start"),
        ({"use": 0.01, "sm": 0.0, "memory": 0.5}, {}, 3000.0, "idle"),
        (STEADY | {"tokens_in": 0.9, "tokens_out": 0.4}, {}, 3000.0, "prefill"),
        (STEADY | {"tokens_in": 0.5, "tokens_out": 0.5}, {}, 3000.0, "decode"),
    ],
)
def test_phases(usual: dict[str, float], now: dict[str, float], seen_s: float, wanted: str) -> None:
    assert phase_of(usual, now, seen_s) == wanted


def test_the_memory_guard_warns_of_leaks_in_time_and_not_of_what_rests() -> None:
    leak = judged("leak", 40, 3.0, 5)
    assert leak.ran_out == 40
    assert leak.warned_before >= 38
    assert np.median(leak.lead_s) > 900.0
    assert judged("flat", 40, 3.0, 5).false == 0
    assert judged("pool that fills", 40, 3.0, 5).false <= 6


def test_memory_that_is_not_reported_fills_nothing() -> None:
    x = courses("leak", 2, 1.0, np.random.default_rng(1))
    state = filling.init(2)
    for i, row in enumerate(x):
        state, _ = filling.step(state, row, np.array([True, False]), i * 5.0)
    assert np.isnan(filling.summarize(state).lead_s[1])


def seen(**changes: Any) -> waste.HeldDevices:
    given: dict[str, Any] = {"held": True, "interactive": False, "trains": False, "starved": False, "idle_s": 0.0}
    given |= {"duty": 0.9, "use": 0.9, "sm": 0.7, "dram": 0.5, "memory": 0.8} | changes
    return waste.HeldDevices(**{name: np.array([value]) for name, value in given.items()})


@pytest.mark.parametrize(
    ("changes", "category", "share"),
    [
        ({}, None, 0.0),
        ({"idle_s": 1000.0, "duty": 0.1}, "idle", 1.0),
        ({"idle_s": 1000.0, "held": False}, None, 0.0),
        ({"idle_s": 1000.0, "interactive": True, "memory": 0.9}, None, 0.0),
        ({"idle_s": 2000.0, "interactive": True}, "notebook", 1.0),
        ({"trains": True, "starved": True, "use": 0.4}, "input_starved", 0.6),
        ({"duty": 0.2, "use": 0.15}, "low_duty", 0.75),
        ({"sm": 0.1, "dram": 0.1, "memory": 0.2}, "oversized", 0.8),
        ({"sm": np.nan, "dram": np.nan, "memory": 0.2}, None, 0.0),
    ],
)
def test_waste_has_one_way_at_a_time(changes: dict[str, Any], category: str | None, share: float) -> None:
    found, part = waste.wasted(seen(**changes))
    assert (waste.CATEGORIES[found[0]] if found[0] >= 0 else None) == category
    assert part[0] == pytest.approx(share)


def test_the_likest_is_itself_and_what_shares_nothing_is_not_alike(held_out: Series) -> None:
    table = kinds.shipped()
    z = kinds.standardised(features_of(held_out), table)
    found = likeness.similarities(z[:, 3], z, table)
    assert found.argmax() == 3
    assert found[3] == pytest.approx(1.0)
    assert likeness.similarities(z[:, 3], np.full((len(FEATURES), 1), np.nan), table).tolist() == [0.0]


@pytest.mark.parametrize(
    ("name", "kind", "family"),
    [
        ("team-a/llama3-finetune", "fine_tuning", "transformer"),
        ("sdxl-serving", "inference", "diffusion"),
        ("resnet50_train_7", "training", "cnn"),
        ("fine-tune-bert", "fine_tuning", "transformer"),
        ("job-17", "", ""),
    ],
)
def test_names_that_speak(name: str, kind: str, family: str) -> None:
    assert names.meant(name) == (kind, family)
