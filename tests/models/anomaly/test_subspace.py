"""The subspace method, streamed: what breaks a habit of several series is seen, though each stays in its range."""

from typing import Any

import numpy as np

from flyball_models import grow
from flyball_models.anomaly import subspace

SERIES, TICK_S = 6, 60.0
NOISE = np.full(SERIES, 0.02, np.float32)
CONFIG = subspace.Config(learn_s=28_800.0, warm_s=3600.0, warm_n=50.0)
Floats = np.ndarray[Any, Any]


def hosts(ticks: int, n: int, seed: int = 1) -> Floats:
    """Series that follow one load, [T, M, N]; the last one of subject 2 hardly moves."""
    random = np.random.default_rng(seed)
    load = 5.0 + 2.0 * np.sin(np.arange(ticks) / 40.0)[:, None, None] + 0.3 * random.standard_normal((ticks, 1, n))
    x = load * np.arange(1.0, SERIES + 1.0)[:, None] + 0.1 * random.standard_normal((ticks, SERIES, n))
    x[:, -1, 2:3] = 3.0 + 0.05 * random.standard_normal((ticks, max(0, min(1, n - 2))))
    return x.astype(np.float32)


def run(x: Floats, config: subspace.Config = CONFIG, state: subspace.State | None = None) -> tuple[Any, Floats, Floats]:
    now = subspace.init(x.shape[2], SERIES) if state is None else state
    scores, parts = list[Floats](), list[Floats]()
    for window in x:
        now, found = subspace.step(now, window, NOISE, TICK_S, config)
        scores.append(found.score)
        parts.append(found.part)
    return now, np.stack(scores), np.stack(parts)


def test_a_broken_habit_is_seen_and_named_and_the_load_itself_is_not() -> None:
    x = hosts(900, 4)
    x[800:, 2, 1] = x[800:, 2, 1].mean()  # within its range, but it follows the load no more
    x[800:, -1, 2] += 1.0  # a still series that moves
    x[800:, :, 3] += 3.0 * np.arange(1.0, SERIES + 1.0)  # all go together further than the load alone did
    state, scores, parts = run(x)
    assert (scores[:50] == 0).all(), "too little is known"
    assert 1.5 < scores[500:800].mean() < 2.5
    assert scores[500:, 0].max() < 6.0
    broken = scores[830:850].mean(axis=0)
    assert broken[0] < 3.0 < broken[3]
    assert (broken[1:3] > 3.0 * broken[3]).all(), broken
    assert parts[800:820, :, 1].sum(axis=0).argmax() == 2
    assert parts[800:820, :, 2].sum(axis=0).argmax() == SERIES - 1
    assert np.isfinite(np.concatenate([array.ravel() for array in state])).all()


def test_what_lasts_becomes_usual_and_a_brief_fault_does_not() -> None:
    x = hosts(2200, 2)
    x[800:820, 1, 0] += 20.0
    x[800:, 1, 1] += 20.0
    _, scores, _ = run(x)
    brief, lasting = scores[:, 0], scores[:, 1]
    assert brief[810] > 15.0 < lasting[810]
    assert brief[1000:].max() < 6.0
    assert lasting[860] > 15.0
    assert lasting[2000:].max() < 6.0


def test_a_score_knows_only_the_past_and_depends_on_no_other_subject() -> None:
    x = hosts(200, 3)
    _, whole, _ = run(x)
    state, first, _ = run(x[:120])
    _, rest, _ = run(x[120:], state=state)
    np.testing.assert_array_equal(np.concatenate([first, rest]), whole)
    alone = run(x[:, :, 1:2])[1]
    np.testing.assert_allclose(alone[:, 0], whole[:, 1], rtol=1e-4)
    larger, _, _ = run(
        np.pad(x[120:], ((0, 0), (0, 0), (0, 5)), constant_values=np.nan),
        state=grow(state, 8, lambda n: subspace.init(n, x.shape[1])),
    )
    np.testing.assert_allclose(larger.smooth[:3], run(x[120:], state=state)[0].smooth, rtol=1e-4)
    assert (larger.seen_s[3:] == 0).all()


def test_missing_values_are_taken_as_usual() -> None:
    x = hosts(700, 3)
    x[::7, 0, 0] = np.nan
    x[500:560, :, 1] = np.nan
    x[:, 3, 2] = np.nan
    state, scores, parts = run(x)
    assert np.isfinite(scores).all()
    assert (scores[500:560, 1] == 0).all()
    assert scores[300:].max() < 8.0
    assert (parts[:, 3, 2] == 0).all()
    assert state.windows[1] == 640


def test_broken_late_absent_and_settled_series_spoil_nothing() -> None:
    x = hosts(1900, 6)
    whole = x.copy()
    x[1000, :, 1], x[1010, 2, 1], x[1020, 3, 1] = 1e30, 1e15, 9e14  # a broken agent
    x[:1000, 1, 2] = np.nan  # appears late
    x[800:1400, 0, 3] = np.nan
    x[1400:, :, 4] += 40.0  # other work
    state, first, _ = run(x[:800])
    assert np.abs(first[60:62] - 2.0).max() < 0.6, "the first scores are smoothed, too"
    state, second, _ = run(x[800:1400], state=state)
    np.testing.assert_allclose(state.scale[:, [1, 3]], run(whole[:1400, :, [1, 3]])[0].scale, rtol=0.1)
    state, third, _ = run(x[1400:], state=subspace.settle(state, [4]))
    scores = np.concatenate([first, second, third])
    assert np.isfinite(scores).all()
    assert scores[500:, [0, 3, 5]].max() < 6.0
    assert (scores[1000:1060, 2] == 0).all(), "a host with a new series starts again"
    assert scores[1350:, 2].max() < 6.0
    assert scores[1300:, 1].max() < 6.0
    assert (scores[1400:1430, 4] == 0).all()
    assert scores[1440:, 4].min() > 0.0
    assert scores[1440:, 4].max() < 6.0
    assert np.isfinite(np.concatenate([array.ravel() for array in state])).all()
    x[1400:, 1, 2] += 20.0
    state, late, _ = run(x[900:1500, :, 2:3])
    assert late[510:, 0].max() > 15.0, "what came late counts like all others"
