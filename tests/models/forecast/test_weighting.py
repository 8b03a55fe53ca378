"""Weights of experts: an independent loop, regret against the best expert, and what weights must be."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.models.forecast.stepping import WEIGHTS, blended

from flyball_models.forecast import weighting

N = 64
Floats = np.ndarray[Any, Any]
CONFIG = WEIGHTS
H = CONFIG.horizons
EAGER = CONFIG._replace(eta=5.0, share=0.0, growth=4.0)


def played(y: Floats, forecasts: Floats, config: weighting.Config, mask: Floats | None = None) -> tuple[Floats, Floats]:
    """Return combined forecasts [T, N, H] and weights [T, N, J, K]; forecasts are [T, K - 1, N, H]."""
    state = weighting.init(y.shape[1], config)
    points: list[Floats] = []
    weights: list[Floats] = []
    for t in range(len(y)):
        here = np.ones(y.shape[1], np.bool_) if mask is None else mask[t]
        state, out = blended(state, y[t], here, forecasts[t], config)
        points.append(np.asarray(out.logs))
        weights.append(np.asarray(out.weights))
    return np.stack(points), np.stack(weights)


def test_it_is_the_rule_written_out() -> None:
    """A slow oracle in float64 for one series with gaps and absent experts."""
    rng = np.random.default_rng(12)
    ticks = 80
    y = rng.gamma(2, 30, (ticks, N)).astype(np.float32)
    forecasts = (y[:, None, :, None] * rng.gamma(20, 0.05, (ticks, 2, N, H))).astype(np.float32)
    forecasts[rng.random((ticks, 2, N)) < 0.2] = np.nan
    mask = rng.random((ticks, N)) < 0.8
    points, shown = played(y, forecasts, CONFIG, mask)

    prior = np.array([CONFIG.prior, *[(1 - CONFIG.prior) / 2] * 2])
    w, trust = dict.fromkeys(CONFIG.judged, prior), dict.fromkeys(CONFIG.judged, 0.5)
    scale, seen = dict.fromkeys(CONFIG.judged, 0.0), dict.fromkeys(CONFIG.judged, 0)
    opened: dict[tuple[int, int], Floats] = {}
    last = np.nan

    def worth(x: Any) -> Any:
        return 1 / (1 + x + x * x / 2)

    def combined(weights: Floats, made: Floats, part: float) -> float:
        logs = np.log1p(np.where(np.isfinite(made), made, 0)) - np.log1p(made[0])
        logs = np.clip(logs, -np.log(CONFIG.growth), np.log(CONFIG.growth))
        return float(np.expm1(np.log1p(made[0]) + part * (weights * logs).sum()))

    for t in range(ticks):
        value = float(y[t, 0])
        for h in CONFIG.judged:
            if mask[t, 0] and (t, h) in opened:
                error = np.abs(value - opened[t, h])
                scale[h] += max(CONFIG.scale_rate, 1 / (seen[h] + 1)) * (error[0] - scale[h])
                loss = np.minimum(np.where(np.isfinite(error), error, error[-1]) / scale[h], CONFIG.cap)
                v = w[h] * worth(CONFIG.eta * (loss[:3] - loss[:3].min()))
                w[h] = (1 - CONFIG.share) * v / v.sum() + CONFIG.share * prior
                least = min(loss[0], loss[3])
                both = trust[h] * worth(CONFIG.trust_eta * (loss[3] - least))
                flat = (1 - trust[h]) * worth(CONFIG.trust_eta * (loss[0] - least))
                trust[h] = (1 - CONFIG.trust_share) * both / (both + flat) + CONFIG.trust_share / 2
                seen[h] += 1
        last = value if mask[t, 0] else last
        if not np.isfinite(last):
            assert np.isnan(points[t, 0]).all()
            continue
        for h in range(1, H + 1):
            made = np.array([last, *forecasts[t, :, 0, h - 1]])
            of = 1 if h == 1 else 3
            there = np.where(np.isfinite(made), w[of], 0.0)
            there /= there.sum()
            np.testing.assert_allclose(points[t, 0, h - 1], combined(there, made, trust[of]), rtol=1e-4)
            if h in CONFIG.judged:
                effective = trust[h] * there + np.array([1 - trust[h], 0, 0])
                np.testing.assert_allclose(shown[t, 0, CONFIG.judged.index(h)], effective, rtol=1e-3, atol=1e-6)
                if mask[t, 0]:
                    opened[t + h, h] = np.array([*made, combined(there, made, 1.0)])


@pytest.mark.parametrize("eta", [0.1, 0.4])
def test_it_is_never_much_worse_than_the_best_expert_even_when_that_changes(eta: float) -> None:
    rng = np.random.default_rng(7)
    ticks = 800
    y = 100 * np.exp(0.3 * np.sin(np.arange(ticks + 1)[:, None] / 9) + 0.05 * rng.normal(size=(ticks + 1, N)))
    ahead = y[1:]
    # Expert 0 is good in the first half of each 400 ticks, expert 1 in the second; the others are always bad.
    turn = (np.arange(ticks)[:, None] // 200) % 2 == 0
    noise = rng.normal(size=(2, ticks, N))
    experts = np.stack(
        [
            ahead * np.exp(np.where(turn, 0.02, 0.4) * noise[0]),
            ahead * np.exp(np.where(turn, 0.4, 0.02) * noise[1]),
            *[ahead * 3] * 6,
        ],
        axis=1,
    )
    config = weighting.Config(experts=8, judged=(1,), horizons=1, eta=eta)
    points, _ = played(y[:-1].astype(np.float32), experts[..., None].astype(np.float32), config)
    error = np.abs(points[..., 0] - ahead)[50:].mean(axis=0)
    each = np.abs(experts - ahead[:, None])[50:].mean(axis=0)
    # Always knowing which of the two is good costs about 2 %; either of them alone, ten times that.
    oracle = np.abs(np.where(turn, experts[:, 0], experts[:, 1]) - ahead)[50:].mean(axis=0)
    assert (error < 0.4 * each.min(axis=0)).all()
    assert (error < 3.5 * oracle).all()


def test_when_one_expert_is_right_it_gets_nearly_all_weight() -> None:
    rng = np.random.default_rng(3)
    y = rng.gamma(3, 30, (301, N)).astype(np.float32)
    forecasts = np.stack([y[1:], y[1:] * 4], axis=1)[..., None].repeat(H, axis=-1)
    _, weights = played(y[:-1], forecasts, CONFIG)
    assert (weights[-1, :, 0, 1] > 0.9).all()


def test_without_any_other_expert_it_is_the_last_value() -> None:
    y = np.random.default_rng(3).gamma(3, 30, (40, N)).astype(np.float32)
    points, weights = played(y, np.full((40, 2, N, H), np.nan, np.float32), CONFIG)
    np.testing.assert_allclose(points, np.repeat(y[..., None], H, axis=-1), rtol=1e-5)
    np.testing.assert_allclose(weights, np.broadcast_to([1.0, 0.0, 0.0], weights.shape), rtol=1e-6)


def test_many_experts_that_are_a_little_worse_do_not_make_it_worse() -> None:
    """A series that stands still between rare jumps: whatever moves is wrong, and nothing can be learned."""
    rng = np.random.default_rng(5)
    ticks = 700
    jumps = np.where(rng.random((ticks, N)) < 0.05, rng.normal(size=(ticks, N)), 0.0)
    y = np.exp(4 + 0.1 * jumps.cumsum(axis=0)).astype(np.float32)
    experts = 8
    noise = rng.normal(size=(ticks, experts, N, 1)) * 0.02
    forecasts = (y[:, None, :, None] * np.exp(noise)).astype(np.float32)
    points, _ = played(y, forecasts, weighting.Config(experts=experts, judged=(1,), horizons=1, eta=0.4))
    after = slice(400, -1)
    error = np.abs(points[:-1, :, 0] - y[1:])[400:].mean()
    flat = np.abs(y[:-1] - y[1:])[400:].mean()
    each = np.abs(forecasts[:-1, :, :, 0] - y[1:, None])[after].mean()
    assert each > 1.2 * flat
    assert error < 1.02 * flat


def test_a_forecast_that_explodes_moves_the_mix_by_no_more_than_the_growth() -> None:
    y = np.full((3, N), 10.0, np.float32)
    forecasts = np.full((3, 2, N, H), 1e20, np.float32)
    points, _ = played(y, forecasts, EAGER)
    assert (points <= 4 * (1 + 10.0)).all()


def test_an_expert_that_comes_late_starts_with_an_even_share() -> None:
    y = np.random.default_rng(3).gamma(3, 30, (200, N)).astype(np.float32)
    forecasts = np.repeat((y * 1.01)[:, None, :, None], 2, axis=1).repeat(H, axis=-1)
    forecasts[:100, 1] = np.nan
    _, weights = played(y, forecasts, CONFIG)
    assert (weights[99, ..., 2] == 0).all()
    assert (weights[100, ..., 2] > 0.1).all()


@given(st.integers(0, 2**32 - 1), st.sampled_from([EAGER, CONFIG._replace(eta=0.01, share=0.5)]))
@settings(deadline=None, max_examples=12)
def test_weights_are_shares_and_the_mix_lies_among_the_experts(seed: int, config: weighting.Config) -> None:
    rng = np.random.default_rng(seed)
    y = rng.gamma(0.3, 1000, (25, N)).astype(np.float32)
    forecasts = rng.gamma(0.3, 1000, (25, 2, N, H)).astype(np.float32)
    forecasts[rng.random(forecasts.shape) < 0.2] = np.nan
    points, weights = played(y, forecasts, config)
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-5)
    assert (weights >= 0).all()
    held = np.repeat(y[:, None, :, None], H, axis=-1)
    every = np.concatenate([held, forecasts], axis=1)
    assert (points <= np.nanmax(every, axis=1) * 1.0001 + 1e-3).all()
    assert (points >= np.nanmin(every, axis=1) * 0.9999 - 1e-3).all()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (weighting.Config(judged=()), "ascending ones"),
        (weighting.Config(judged=(3, 1)), "ascending ones"),
        (weighting.Config(judged=(1, 24)), "none above the 12"),
        (weighting.Config(share=1.0), "below 1"),
        (weighting.Config(trust_share=1.0), "below 1"),
        (weighting.Config(experts=0), "1 or more besides"),
    ],
)
def test_settings_that_make_no_sense_are_refused(config: weighting.Config, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        weighting.init(N, config)


def test_forecasts_of_another_number_of_experts_are_refused() -> None:
    y, mask = np.ones(N, np.float32), np.ones(N, np.bool_)
    with pytest.raises(ValueError, match="there are 1 experts, the settings are for 2"):
        blended(weighting.init(N, CONFIG), y, mask, np.ones((1, N, H), np.float32), CONFIG)
