"""What replicas sustain, learned from a simulated fleet of batching servers whose capacity is known."""

import numpy as np
import pytest
from bench.common.batching import Server, simulate
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from flyball_models import grow
from flyball_models.capacity import hybrid, tracker
from flyball_models.capacity.base import FIELDS, Limits
from flyball_models.capacity.tracker import State

SERVER = Server()
REPLICAS = 3
WINDOW = 30
DELAY_S = 2.0
Floats = NDArray[np.float64]
ONLINE, HYBRID = hybrid.NAMES.index("online"), hybrid.NAMES.index("hybrid")


def observe(reported: Floats, spec: float = np.nan, state: State | None = None) -> list[State]:
    """States after each window of one workload."""
    now = tracker.init(1) if state is None else state
    limits = Limits(np.full(1, DELAY_S / 4.6), np.full(1, np.nan), np.full(1, np.nan))
    found: list[State] = []
    for t, row in enumerate(reported):
        now = tracker.add(now, row[:, None])
        if (t + 1) % WINDOW == 0:
            now, _ = tracker.close(now, WINDOW, float(WINDOW), limits, np.full(1, spec), np.full(1, np.nan))
            found.append(now)
    return found


def load(*parts: tuple[int, float]) -> Floats:
    return np.concatenate([np.full(seconds, level) for seconds, level in parts])


@pytest.fixture(scope="module")
def bursts() -> Floats:
    """Quiet, and two bursts that no queue survives."""
    return simulate(SERVER, REPLICAS, load((600, 0.4), (240, 1.2), (600, 0.4), (240, 1.2)), seed=1)


@pytest.fixture(scope="module")
def after_bursts(bursts: Floats) -> State:
    return observe(bursts)[-1]


def test_online_finds_capacity_after_saturation(after_bursts: State) -> None:
    last = after_bursts
    assert last.online.windows[0] >= 10
    assert last.latest.values[ONLINE, 0] == pytest.approx(SERVER.capacity, rel=0.06)
    assert last.latest.errors[ONLINE, 0] < 0.15


@pytest.mark.parametrize("wrong", [0.5, 1.0, 2.0])
def test_an_owner_who_is_wrong_is_outvoted(bursts: Floats, wrong: float) -> None:
    states = observe(bursts, spec=wrong * SERVER.capacity)
    assert states[15].latest.values[HYBRID, 0] == pytest.approx(wrong * SERVER.capacity)  # nothing but quiet so far
    assert states[-1].latest.values[HYBRID, 0] == pytest.approx(SERVER.capacity, rel=0.1)
    errors = states[-1].latest.errors[:, 0]
    assert (errors[ONLINE] < errors[0]) == (wrong != 1.0) or errors[ONLINE] < 0.2


def test_low_load_is_a_lower_bound_and_nothing_more() -> None:
    """Without saturation there is no estimate from telemetry, and the owner's word stands with its doubt."""
    for level in (0.1, 0.5, 0.8):
        for state in observe(simulate(SERVER, REPLICAS, load((300, level)), seed=7), spec=1.3 * SERVER.capacity):
            assert np.isnan(state.latest.values[ONLINE, 0])
            assert state.latest.values[HYBRID, 0] == pytest.approx(1.3 * SERVER.capacity)
            assert state.latest.errors[HYBRID, 0] >= 0.25
            assert state.online.proven[0] <= 1.1 * SERVER.capacity


def test_what_is_proven_raises_an_owner_who_is_too_modest() -> None:
    state = observe(simulate(SERVER, REPLICAS, load((600, 0.7)), seed=3), spec=0.3 * SERVER.capacity)[-1]
    assert 0.6 * SERVER.capacity < state.latest.values[HYBRID, 0] < 0.9 * SERVER.capacity


def test_a_regression_of_30_per_cent_is_followed_within_two_minutes_of_saturation() -> None:
    quiet = simulate(SERVER, REPLICAS, load((300, 0.5), (300, 1.2), (300, 0.5)), seed=4)
    slow = simulate(SERVER, REPLICAS, load((300, 1.0)), seed=5, speed=np.full(300, 0.7))
    before = observe(quiet)[-1]
    assert before.latest.values[ONLINE, 0] == pytest.approx(SERVER.capacity, rel=0.08)
    after = observe(slow, state=before)
    saturated = [s for s in after if s.online.windows[0] > before.online.windows[0]]
    assert saturated[3].latest.values[ONLINE, 0] == pytest.approx(0.7 * SERVER.capacity, rel=0.08)


def test_the_curve_sees_a_regression_before_saturation_does() -> None:
    saturated = observe(simulate(SERVER, REPLICAS, load((240, 0.5), (240, 1.2), (240, 0.6)), seed=6))[-1]
    slow = simulate(SERVER, REPLICAS, load((450, 0.6)), seed=8, speed=np.full(450, 0.7))
    after = observe(slow, state=saturated)[-1]
    assert after.online.windows[0] == saturated.online.windows[0]  # no queue all along
    assert after.latest.values[ONLINE, 0] == pytest.approx(0.7 * SERVER.capacity, rel=0.12)


def test_errors_are_honest_over_servers_and_seeds() -> None:
    """What telemetry says lies within 2.5 of its own standard deviations of the truth, mostly within one."""
    off: list[float] = []
    for seed, server in enumerate((Server(16, 0.03, 0.002), Server(64, 0.015, 0.0004, 60.0), Server(8, 0.01, 0.01))):
        reported = simulate(server, 2, load((120, 0.6), (180, 1.2), (120, 0.5), (120, 1.3)), seed=20 + seed)
        for state in observe(reported):
            value, error = state.latest.values[ONLINE, 0], state.latest.errors[ONLINE, 0]
            if value > 0:
                off.append(abs(np.log(value / server.capacity)) / error)
    assert max(off) < 2.5
    assert np.mean(np.array(off) < 1.0) > 0.7


def test_a_queue_before_idle_replicas_is_not_capacity() -> None:
    row = [4.0, 100.0, 1.0, 8.0, 50.0, 0.2, 3.0, 100.0, 0.0]
    reported = np.tile(np.array([*row, *[np.nan] * (len(FIELDS) - len(row))]), (300, 1))
    assert observe(reported)[-1].online.windows[0] == 0
    reported[:, FIELDS.index("busy")] = 0.95
    assert observe(reported)[-1].online.windows[0] > 0


@pytest.mark.parametrize("witness", ["tokens_out", "failed"])
def test_clients_who_give_up_were_not_served(witness: str) -> None:
    impatient = SERVER._replace(patience_s=4.0)
    reported = simulate(impatient, REPLICAS, load((180, 0.5), (300, 1.6)), seed=10)
    reported[:, FIELDS.index("failed" if witness == "tokens_out" else "tokens_out")] = np.nan
    assert reported[200:, FIELDS.index("work")].mean() > 1.4 * REPLICAS * SERVER.capacity
    assert observe(reported)[-1].latest.values[ONLINE, 0] == pytest.approx(SERVER.capacity, rel=0.12)


def test_a_promised_pace_lowers_what_is_sustained() -> None:
    reported = simulate(SERVER, REPLICAS, load((120, 0.5), (300, 1.2)), seed=9)
    state, allowed = tracker.init(1), 0.03  # a full batch takes 0.052 s for a token
    for t, row in enumerate(reported):
        state = tracker.add(state, row[:, None])
        if (t + 1) % WINDOW == 0:
            limits = Limits(np.full(1, 1.0), np.full(1, allowed), np.full(1, np.nan))
            state, _ = tracker.close(state, WINDOW, float(WINDOW), limits, np.full(1, np.nan), np.full(1, np.nan))
    batch = (allowed - SERVER.alpha_s) / SERVER.beta_s
    assert state.latest.values[ONLINE, 0] == pytest.approx(batch / allowed, rel=0.2)


def test_missing_ticks_teach_nothing(bursts: Floats, after_bursts: State) -> None:
    holed = bursts[600:660].copy()
    holed[::3, 1] = np.nan  # a third of the work is unknown
    assert observe(holed)[-1].online.windows[0] == 0
    nothing = np.full((60, len(FIELDS)), np.nan)
    before = after_bursts
    after = observe(nothing, state=before)[-1]
    np.testing.assert_array_equal(after.latest.values, before.latest.values)
    assert after.online.variance[0] > before.online.variance[0]  # time passed


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 6))
def test_any_telemetry_leaves_sane_numbers(seed: int, many: int, more: int) -> None:
    """Whatever is told: values positive or unknown, errors with them, neighbours independent, growth without effect."""
    random = np.random.default_rng(seed)
    reported = np.exp(random.normal(0.0, 4.0, (90, len(FIELDS), many)))
    reported[:, 0] = random.integers(0, 3, many)
    reported[random.random(reported.shape) < 0.1] = np.nan
    unknown = np.full(many, np.nan)
    limits = Limits(np.full(many, 0.5), unknown, unknown)
    state, alone, wide = tracker.init(many), tracker.init(1), grow(tracker.init(many), many + more, tracker.init)
    for t in range(len(reported)):
        pad = np.concatenate([reported[t], np.full((len(FIELDS), more), np.nan)], axis=1)
        state, wide = tracker.add(state, reported[t]), tracker.add(wide, pad)
        if t % 10 == 9:
            alone = tracker.add(alone, reported[t - 9 : t + 1, :, :1])  # ten ticks at once are ten ticks
            state, _ = tracker.close(state, 10, 10.0, limits, unknown, unknown)
            alone, _ = tracker.close(alone, 10, 10.0, Limits(*(v[:1] for v in limits)), unknown[:1], unknown[:1])
            none = np.full(many + more, np.nan)
            wide, _ = tracker.close(
                wide, 10, 10.0, Limits(np.append(limits.wait_s, none[:more]), none, none), none, none
            )
    values, errors = state.latest.values, state.latest.errors
    known = ~np.isnan(values)
    assert (values[known] > 0).all()
    assert np.isfinite(values[known]).all()
    assert (errors[known] > 0).all()
    np.testing.assert_array_equal(alone.latest.values[:, 0], values[:, 0])
    np.testing.assert_array_equal(wide.latest.values[:, :many], values)
    with pytest.raises(ValueError, match=f"pass {many + more} or more"):
        grow(wide, many, tracker.init)


FIRST, NEXT, CACHE = (FIELDS.index(name) for name in ("first_token_s", "output_token_s", "kv_cache"))


def promised(reported: Floats, *, first_token_s: float = np.nan, token_s: float = np.nan) -> State:
    """The state after all of it, for an owner who promised so much."""
    state, unknown = tracker.init(1), np.full(1, np.nan)
    limits = Limits(np.full(1, 1e9), np.full(1, token_s), np.full(1, first_token_s))
    for t, row in enumerate(reported):
        state = tracker.add(state, row[:, None])
        if (t + 1) % WINDOW == 0:
            state, _ = tracker.close(state, WINDOW, float(WINDOW), limits, unknown, unknown)
    return state


def test_the_servers_own_time_between_tokens_is_believed() -> None:
    """Halted requests count as active, so requests in service over tokens per second tell twice the true time."""
    reported = simulate(SERVER, REPLICAS, load((120, 0.5), (300, 1.2)), seed=9)
    reported[:, NEXT] = (
        reported[:, FIELDS.index("active")] / np.maximum(reported[:, FIELDS.index("tokens_out")], 1e-9) / 2.0
    )
    own, derived = (
        promised(reported, token_s=0.03),
        promised(np.where(np.arange(len(FIELDS)) == NEXT, np.nan, reported), token_s=0.03),
    )
    assert own.latest.values[ONLINE, 0] == pytest.approx(SERVER.capacity, rel=0.1)  # 0.026 s at a full batch: kept
    assert derived.latest.values[ONLINE, 0] < 0.8 * own.latest.values[ONLINE, 0]
    assert own.window.answers[1, 0] == pytest.approx(0.026, rel=0.15)


@pytest.mark.parametrize(("seen_s", "saturated"), [(0.9, True), (0.1, False)])
def test_a_first_token_later_than_promised_is_saturation(seen_s: float, saturated: bool) -> None:
    reported = simulate(SERVER, REPLICAS, load((240, 0.9)), seed=4)
    reported[:, FIELDS.index("queued")] = 0.0
    reported[:, FIRST] = seen_s
    assert (promised(reported, first_token_s=0.5).online.windows[0] >= 3) == saturated


@pytest.mark.parametrize(("cache", "saturated"), [(0.99, True), (0.6, False)])
def test_a_full_cache_is_a_limit_though_the_gpus_have_room(cache: float, saturated: bool) -> None:
    reported = simulate(SERVER, REPLICAS, load((240, 1.3)), seed=4)
    reported[:, FIELDS.index("busy")] = (
        0.4  # a queue before GPUs that idle is a fault of the balancer, unless memory is full
    )
    reported[:, CACHE] = cache
    assert (promised(reported).online.windows[0] >= 3) == saturated
