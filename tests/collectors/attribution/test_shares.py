"""The division of devices: it gives away neither more nor less than there is."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from flyball_collectors.attribution.shares import Devices, Shares, Uses, divide

T = 2.0
NAN = float("nan")
Floats = NDArray[np.float64]
Use = tuple[int, int, float, float]


def floats(values: Sequence[float]) -> Floats:
    return np.array(values, np.float64)


def devices(
    busy: Sequence[float],
    energy: Sequence[float],
    used: Sequence[float] = (),
    *,
    idle_w: Sequence[float] = (),
    parent: Sequence[int] = (),
    part: Sequence[float] = (),
) -> Devices:
    n = len(busy)
    return Devices(
        floats(busy),
        floats(energy),
        floats(used or [40.0] * n),
        np.full(n, 80.0),
        floats(idle_w or [NAN] * n),
        np.array(parent or [-1] * n, np.int64),
        floats(part or [1.0] * n),
    )


def uses(*rows: Use) -> Uses:
    device, owner, share, memory = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Uses(np.array(device, np.int64), np.array(owner, np.int64), floats(share), floats(memory))


def check(found: Shares, row: int, sm: Sequence[float], energy: Sequence[float] | None = None) -> None:
    assert found.sm_s[row] == pytest.approx(sm, nan_ok=True)
    if energy is not None:
        assert found.energy_j[row] == pytest.approx(energy, nan_ok=True)


def test_one_process_on_a_busy_device_has_what_the_idle_power_leaves() -> None:
    found = divide(devices([1.0], [500.0], idle_w=[100.0]), uses((0, 0, 0.5, 30.0)), 1, T)
    check(found, 0, [1, 0, 1], [400, 0, 100])
    assert found.memory[0] == pytest.approx([30, 10, 40])
    assert (found.owner_sm_s[0], found.owner_energy_j[0], found.owner_memory[0]) == (1, 400, 30)


def test_while_the_idle_power_is_unknown_energy_goes_by_time() -> None:
    check(divide(devices([0.5], [400.0]), uses((0, 0, 0.25, 0)), 1, T), 0, [0.5, 0, 1.5], [100, 0, 300])


def test_shares_of_a_time_sliced_device_are_scaled_to_its_time() -> None:
    found = divide(devices([1.5], [300.0], idle_w=[0.0]), uses((0, 0, 0.9, 30.0), (0, 1, 0.6, 30.0)), 2, T)
    check(found, 0, [1.5, 0, 0.5], [300, 0, 0])
    assert found.owner_sm_s == pytest.approx([0.9, 0.6])
    assert found.owner_energy_j == pytest.approx([180, 120])
    assert found.owner_memory == pytest.approx([20, 20])  # more than is in use, hence scaled


def test_those_without_a_share_have_the_rest_in_equal_parts() -> None:
    found = divide(devices([1.6], [0.0]), uses((0, 0, 0.5, 0), (0, 1, NAN, 0), (0, 2, NAN, 0)), 3, T)
    assert found.owner_sm_s == pytest.approx([1.0, 0.3, 0.3])


def test_what_nobody_known_used_is_unattributed() -> None:
    found = divide(devices([2.0], [200.0], idle_w=[50.0]), uses((0, -1, 0.5, 30.0), (0, 0, 0.25, NAN)), 1, T)
    check(found, 0, [0.5, 1.5, 0], [50, 150, 0])
    assert found.memory[0] == pytest.approx([0, 40, 40])


def test_an_idle_device_is_idle_whatever_its_idle_power_was() -> None:
    check(divide(devices([0.0], [300.0], idle_w=[10.0]), uses((0, 0, 0.0, 9)), 1, T), 0, [0, 0, 2], [0, 0, 300])


def test_busy_time_that_is_unknown_is_what_the_processes_report_or_nothing() -> None:
    check(divide(devices([NAN], [100.0]), uses((0, 0, 0.25, 0)), 1, T), 0, [0.5, 0, 1.5], [25, 0, 75])
    for others in (uses((0, 0, 0.25, 0), (0, 0, NAN, 0)), uses()):
        check(divide(devices([NAN], [100.0]), others, 1, T), 0, [NAN] * 3, [NAN] * 3)


def test_instances_share_the_energy_of_their_gpu() -> None:
    """Half of the time on 3/7 of the GPU and all of it on 1/7; three slices are in no instance."""
    gpu = devices(
        [NAN, 1.0, 2.0], [700.0, NAN, NAN], idle_w=[150.0, NAN, NAN], parent=[-1, 0, 0], part=[1, 3 / 7, 1 / 7]
    )
    found = divide(gpu, uses((1, 0, NAN, 10), (2, 1, NAN, 10), (2, -1, NAN, 10)), 2, T)
    check(found, 1, [1, 0, 1])
    check(found, 2, [1, 1, 0])
    check(found, 0, [3 / 7 + 1 / 7, 1 / 7, T - 5 / 7])
    idle = 150 * (T - 5 / 7)
    per_s = (700 - idle) / (5 / 7)
    assert found.energy_j[0] == pytest.approx([per_s * 4 / 7, per_s / 7, idle])
    assert found.energy_j[1] == pytest.approx([per_s * 3 / 7, 0, 150 * 3 / 7])
    assert found.owner_sm_s == pytest.approx([3 / 7, 1 / 7])
    assert found.owner_energy_j.sum() == pytest.approx(found.energy_j[0, 0])
    assert found.memory[0] == pytest.approx([20, 20, 40])


def test_one_instance_that_is_unknown_makes_its_gpu_unknown() -> None:
    gpu = devices([NAN, 1.0, NAN], [700.0, NAN, NAN], parent=[-1, 0, 0], part=[1, 3 / 7, 3 / 7])
    found = divide(gpu, uses((1, 0, NAN, 10)), 1, T)
    check(found, 0, [NAN] * 3, [NAN] * 3)
    check(found, 1, [1, 0, 1], [NAN] * 3)


NUMBERS = st.one_of(
    st.just(NAN), st.just(0.0), st.floats(0, 1000), st.sampled_from([-1.0, float("inf"), T, 1e-300, 1e30])
)
SHARES = st.one_of(st.just(NAN), st.floats(0, 1), st.sampled_from([2.0, -0.5, 1e-300]))


@st.composite
def nodes(draw: st.DrawFn) -> tuple[Devices, Uses]:
    """Some GPUs, some of them in instances, with any processes on them."""
    parent: list[int] = []
    part: list[float] = []
    for instances in draw(st.lists(st.integers(0, 3), min_size=1, max_size=4)):
        row = len(parent)
        parent += [-1] + [row] * instances
        part += [1.0] + [draw(st.sampled_from([1 / 7, 2 / 7, 3 / 7])) for _ in range(instances)]
    n = len(parent)
    busy, energy, used, limit, idle = (floats(draw(st.lists(NUMBERS, min_size=n, max_size=n))) for _ in range(5))
    use = st.tuples(st.integers(0, n - 1), st.integers(-1, 3), SHARES, NUMBERS)
    gpus = Devices(busy, energy, used, limit, idle, np.array(parent, np.int64), floats(part))
    return gpus, uses(*draw(st.lists(use, max_size=12)))


@settings(deadline=None)
@given(nodes(), st.floats(0.01, 100))
def test_the_parts_of_each_device_are_the_whole_of_it_or_unknown(node: tuple[Devices, Uses], period_s: float) -> None:
    gpus, processes = node
    found = divide(gpus, processes, 4, period_s)
    whole = gpus.parent < 0
    limits = (np.full(len(whole), period_s), np.where(whole, gpus.energy_j, NAN), gpus.memory_limit)
    for parts, limit in zip(found[:3], limits, strict=True):
        unknown = np.isnan(parts)
        assert (unknown.any(axis=1) == unknown.all(axis=1)).all()
        assert (parts[~unknown] >= 0).all()
        total = parts.sum(axis=1)
        reported = ~np.isnan(total) & ~np.isnan(limit)
        assert total[reported] == pytest.approx(limit[reported], rel=1e-9, abs=1e-9)


@settings(deadline=None)
@given(nodes(), st.floats(0.01, 100))
def test_owners_and_instances_add_up_to_the_gpus(node: tuple[Devices, Uses], period_s: float) -> None:
    gpus, processes = node
    found = divide(gpus, processes, 4, period_s)
    whole = gpus.parent < 0
    divided = np.isin(np.arange(len(whole)), gpus.parent[~whole])
    for owned, parts in ((found.owner_sm_s, found.sm_s), (found.owner_energy_j, found.energy_j)):
        used = parts[whole, 0]
        if np.isfinite(owned).all() and np.isfinite(used).all():
            assert owned.sum() == pytest.approx(used.sum(), rel=1e-6, abs=1e-6)
    for row in np.flatnonzero(divided & ~np.isnan(found.energy_j[:, 0])):
        below = found.energy_j[gpus.parent == row]
        assert np.isfinite(below).all()
        assert below[:, :2].sum(axis=0) == pytest.approx(found.energy_j[row, :2], rel=1e-6, abs=1e-6)
        assert below[:, 2].sum() <= found.energy_j[row, 2] + 1e-6 * max(1.0, found.energy_j[row].sum())
    assert found.owner_processes.sum() == (processes.owner >= 0).sum()
