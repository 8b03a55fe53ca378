"""What every family that learns must do, whatever it learns."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
from bench.anomalies import record_ratio
from hypothesis import given, settings, strategies as st
from tests.models.forecast.stepping import (
    BANDS,
    DAMPED,
    LAST,
    PROFILE,
    RLS,
    SEASONAL,
    SEASONS,
    SHORT,
    WINTERS,
    banded,
    step,
)

from flyball_models import grow
from flyball_models.anomaly import peers
from flyball_models.forecast import (
    conformal,
    damped,
    ensemble,
    holt_winters,
    last,
    multi_seasonal,
    profile,
    rls,
    seasonal,
    weighting,
)
from flyball_models.profile import features

N = 64
METRICS = 3
Floats = np.ndarray[Any, np.dtype[np.float32]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

RECORDS = record_ratio.Config(bins=4, hold=7, warmup=6, decay=0.99)


@dataclass(frozen=True)
class Model:
    """A family behind one signature: `step(state, values, mask, tick) -> (state, outputs)`, outputs [N, ...]."""

    name: str
    init: Callable[[int], Any]
    step: Callable[[Any, Floats, Bools, int], tuple[Any, Any]]
    compiled: Any = None
    clocks: tuple[str, ...] = ()
    """Fields that follow time, not values."""
    donated: bool = True


def _conformal(state: Any, x: Floats, mask: Bools, tick: int) -> tuple[Any, Any]:
    forecast = np.repeat(np.where(np.isfinite(x), x, 7.0)[:, None] * np.float32(1.1), BANDS.horizons, axis=1)
    return banded(state, x, mask, forecast, BANDS)


def logs(model: Any, config: Any) -> Callable[[Any, Floats, Bools, int], tuple[Any, Any]]:
    """Step a model of forecasts and leave these as log(1 + y): the unit of the values takes programs of its own."""

    def stepped(state: Any, x: Floats, mask: Bools, tick: int) -> tuple[Any, Any]:
        state, out = model.ahead(state, x, mask, config=config)
        return state, _series_first(out)

    return stepped


def _series_first(out: Any) -> Any:
    def moved(leaf: Any) -> Any:
        return np.moveaxis(np.asarray(leaf), -1, 0)

    return jax.tree.map(moved, out)


def _weighting(state: Any, x: Floats, mask: Bools, tick: int) -> tuple[Any, Any]:
    """Forecasts in arrays like those of the ensemble's members: so one compilation is for both."""
    near = np.log1p(np.where(np.isfinite(x), x, 7.0) * np.float32(1.1)).astype(np.float32)
    far = np.where(near > 3, np.float32(np.nan), near + np.float32(0.7))
    rows = [np.repeat(each[None], SHORT.weights.horizons, axis=0) for each in (near, far)]
    experts = [*(len(member.names) for member in SHORT.members), 1]  # the last one is the model over all
    parts: list[Any] = [np.stack([rows[k % 2]] * g) if g > 1 else rows[k % 2] for k, g in enumerate(experts)]
    parts[0] = parts[0][:, :1]  # an average has one forecast for all horizons
    state, out = weighting.combine(state, x, mask, tuple(parts), config=SHORT.weights)
    return state, _series_first(out)


def _features(state: Any, x: Floats, mask: Bools, tick: int) -> tuple[Any, Any]:
    share = np.where(np.isinf(x), x, x / (1.0 + np.where(np.isinf(x), 0.0, x))).astype(np.float32)
    unknown = np.where(share > 0.9, np.float32(np.nan), share)
    state = features.step(state, features.Inputs(share, unknown, share, share, x), mask)
    return state, features.summarize(state)


def _persist(state: Any, x: Floats, mask: Bools, tick: int) -> tuple[Any, Any]:
    z = np.stack([x, -x, x / 8], axis=1).astype(np.float32)
    return peers.persist(state, z, mask, 2, 3)


MODELS = [
    Model("damped", lambda n: damped.init(n, DAMPED), lambda s, x, m, t: step(damped, s, x, m, DAMPED), damped.ahead),
    Model(
        "last",
        lambda n: last.init(n, LAST),
        lambda s, x, m, t: step(last, s, x, m, LAST),
        last.ahead,
    ),
    Model(
        "seasonal",
        lambda n: seasonal.init(n, SEASONAL),
        logs(seasonal, SEASONAL),
        seasonal.ahead,
        ("tick",),
    ),
    Model(
        "holt_winters",
        lambda n: holt_winters.init(n, WINTERS),
        logs(holt_winters, WINTERS),
        holt_winters.ahead,
        ("tick", "due"),
    ),
    Model(
        "multi_seasonal",
        lambda n: multi_seasonal.init(n, SEASONS),
        logs(multi_seasonal, SEASONS),
        multi_seasonal.ahead,
        ("tick", "day_due", "visits_due", "week_due"),
    ),
    Model(
        "rls",
        lambda n: rls.init(n, RLS),
        logs(rls, RLS),
        rls.updated,
        ("tick", "ring"),
    ),
    Model(
        "conformal",
        lambda n: conformal.init(n, BANDS),
        _conformal,
        conformal.around,
        ("tick", "issued", "bound", "newest"),
    ),
    Model(
        "profile",
        lambda n: profile.init(n, PROFILE),
        logs(profile, PROFILE),
        profile.ahead,
        ("tick", "ring", "ahead"),
    ),
    Model(
        "weighting",
        lambda n: weighting.init(n, SHORT.weights),
        _weighting,
        weighting.combine,
        ("tick", "issued"),
    ),
    Model(
        "ensemble",
        lambda n: ensemble.init(n, SHORT),
        logs(ensemble, SHORT),
        weighting.combine,
        (
            "tick",
            "issued",
            "ring",
            "due",
            "day_due",
            "visits_due",
            "week_due",
            "ahead",
            "recent",
            "base",
            "units",
            "made",
        ),
    ),
    Model(
        "record_ratio",
        lambda n: record_ratio.init(n, RECORDS),
        lambda s, x, m, t: record_ratio.step(s, x, m, np.array(t % 3, np.int32), RECORDS),
        record_ratio.update,
        donated=False,
    ),
    Model("features", features.init, _features, donated=False),
    Model("persist", lambda n: peers.init(n, METRICS), _persist, donated=False),
]
every_model = pytest.mark.parametrize("model", MODELS, ids=lambda f: f.name)
seeds = st.integers(0, 2**32 - 1)
few = settings(deadline=None, max_examples=5)  # each with 64 series


def series(seed: int, ticks: int, n: int = N) -> tuple[Floats, Bools]:
    """Values of widely different sizes, some 0, a quarter missing (half of those as NaN under the mask)."""
    rng = np.random.default_rng(seed)
    x = rng.gamma(0.5, 10.0 ** rng.integers(-1, 5, n), (ticks, n)).astype(np.float32)
    x[rng.random((ticks, n)) < 0.1] = 0.0
    mask = rng.random((ticks, n)) < 0.75
    x[~mask & (rng.random((ticks, n)) < 0.5)] = np.nan
    return x, mask


def host(tree: Any) -> list[np.ndarray[Any, Any]]:
    return [np.array(leaf) for leaf in jax.tree.leaves(tree)]


def fields(state: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of a state by name, those of a state within it behind a dot."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    for name, value in state._asdict().items():
        parts: dict[str, Any] = {name: value}
        if name == "members":  # states of the ensemble's
            parts = {f"{name}.{i}": member for i, member in enumerate(value)}
        for path, part in parts.items():
            if hasattr(part, "_asdict"):
                found |= {f"{path}.{inner}": leaf for inner, leaf in fields(part).items()}
            else:
                found[path] = np.array(part)
    return {path: value for path, value in found.items() if value.shape[-1:] != (1,)}  # what all series share


def play(model: Model, state: Any, x: Floats, mask: Bools, start: int = 0) -> tuple[Any, list[Any]]:
    """Run all ticks; return the last state and, per output, its values over time [T, N, ...]."""
    ticks: list[list[Any]] = []
    for t in range(len(x)):
        state, out = model.step(state, x[t], mask[t], start + t)
        ticks.append(host(out))
    return state, [np.stack(column) for column in zip(*ticks, strict=True)]


def assert_same_bits(a: list[Any], b: list[Any]) -> None:
    for left, right in zip(a, b, strict=True):
        np.testing.assert_array_equal(left, right, strict=True)


@every_model
@given(seeds)
@few
def test_masked_slots_keep_what_they_fitted(model: Model, seed: int) -> None:
    x, mask = series(seed, 12)
    state, _ = play(model, model.init(N), x[:-1], mask[:-1])
    before = fields(state)
    state, _ = model.step(state, x[-1], mask[-1], 11)
    for path, value in fields(state).items():
        if path.split(".")[-1] not in model.clocks:
            np.testing.assert_array_equal(value[..., ~mask[-1]], before[path][..., ~mask[-1]])


@pytest.mark.parametrize("model", MODELS[:-1], ids=lambda f: f.name)  # z of peers is always finite
@given(seeds)
@few
def test_values_that_are_not_finite_count_as_missing(model: Model, seed: int) -> None:
    x, mask = series(seed, 10)
    x[~mask] = np.where(np.arange(int((~mask).sum())) % 2, np.nan, np.inf)
    _, masked = play(model, model.init(N), x, mask)
    _, trusting = play(model, model.init(N), x, np.ones_like(mask))
    assert_same_bits(masked, trusting)


@every_model
@given(seeds)
@few
def test_series_do_not_see_each_other(model: Model, seed: int) -> None:
    x, mask = series(seed, 12)
    order = np.random.default_rng(seed).permutation(N)
    _, out = play(model, model.init(N), x, mask)
    _, shuffled = play(model, model.init(N), x[:, order], mask[:, order])
    assert_same_bits([column[:, order] for column in out], shuffled)


CHEAP = ("damped", "last", "seasonal", "features", "persist")
"""Compiling the others takes a second or more for each size."""
SIZES = [(f, size) for f in MODELS for size in ((256, 4096) if f.name in CHEAP else (256,))]


@pytest.mark.parametrize(("model", "size"), SIZES, ids=lambda x: str(x) if isinstance(x, int) else x.name)
@given(seeds)
@few
def test_padding_changes_no_bit(model: Model, size: int, seed: int) -> None:
    x, mask = series(seed, 12)
    wide, wide_mask = np.zeros((12, size), np.float32), np.zeros((12, size), np.bool_)
    wide[:, :N], wide_mask[:, :N] = x, mask
    _, out = play(model, model.init(N), x, mask)
    _, padded = play(model, model.init(size), wide, wide_mask)
    assert_same_bits(out, [column[:, :N] for column in padded])


@every_model
@given(seeds)
@few
def test_growth_keeps_the_content(model: Model, seed: int) -> None:
    x, mask = series(seed, 20)
    wide, wide_mask = np.zeros((10, 256), np.float32), np.zeros((10, 256), np.bool_)
    wide[:, :N], wide_mask[:, :N] = x[10:], mask[10:]
    state, _ = play(model, model.init(N), x[:10], mask[:10])
    grown = grow(state, 256, model.init)
    _, out = play(model, state, x[10:], mask[10:], 10)
    _, padded = play(model, grown, wide, wide_mask, 10)
    assert_same_bits(out, [column[:, :N] for column in padded])


@every_model
def test_the_same_inputs_give_the_same_bits(model: Model) -> None:
    x, mask = series(7, 30)
    one, other = (play(model, model.init(N), x, mask) for _ in range(2))
    assert [leaf.tobytes() for leaf in host(one)] == [leaf.tobytes() for leaf in host(other)]


@pytest.mark.parametrize("model", [f for f in MODELS if f.compiled is not None], ids=lambda f: f.name)
def test_one_padded_shape_compiles_once(model: Model) -> None:
    x, mask = series(3, 6)
    model.compiled.clear_cache()  # what was compiled for the tests before is on disk
    state, _ = play(model, model.init(N), x[:1], mask[:1])
    compilations = model.compiled._cache_size()
    state, _ = play(model, state, x[1:], mask[1:], 1)
    play(model, model.init(N), x, mask)
    assert model.compiled._cache_size() == compilations
    wide = np.ones((1, 256), np.float32)
    play(model, model.init(256), wide, wide > 0)
    assert model.compiled._cache_size() == compilations + 1


@pytest.mark.parametrize("model", [f for f in MODELS if f.donated], ids=lambda f: f.name)
def test_the_state_is_donated(model: Model) -> None:
    x, mask = series(3, 1)
    state = model.init(N)
    model.step(state, x[0], mask[0], 0)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))
