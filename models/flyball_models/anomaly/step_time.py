"""Change points of step times: a whole gang that slows down, which a comparison of its members cannot show.

Step times are grouped in windows of ``window_s``, or of one step if that takes longer: the logarithm of the median in a
window. The level is the median of the first windows and then a slow mean; the spread is the same of their absolute
deviations. A one-sided cumulative sum (Page 1954, "Continuous inspection schemes") runs on the standardised windows:

    S = max(0, S + min((y - level) / spread, most) - drift)

An excursion begins when S leaves 0. It is significant only once the median of half a minute has exceeded that of the
half minute before by ``least``, and by ``volatility_factor`` times its usual change. This excludes slow drifts, sums of
tiny differences, and gangs whose step times vary a lot. A change of less than ``sure_factor`` times the usual one must
also last for ``lasts_s``: step times that vary by nature come back. One very long step, as with a checkpoint, counts as
``most`` spreads. Level and spread are not updated while S is high, unless S has been above 0 for a minute without such
a change: then the level was wrong, and S does not grow.

S is divided by the gang's own recent maximum (at least ``floor``), so that gangs with variable and with constant step
times have one tail (:mod:`flyball_models.anomaly.tail`), which gives the limit. A gang that stays slow has a new level
after ``accept_s``; one that became clearly faster, by the same sum downwards, has it at once.

Shapes: W workloads.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models._padding import grow

RING, RECENT = 8, 12
HALF = RECENT // 2
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
_NORMAL = 1.2533
"""Standard deviation over the mean absolute deviation, of a normal distribution."""
_MEDIAN = 1.4826
"""Standard deviation over the median absolute deviation, of a normal distribution."""


class Config(NamedTuple):
    """See above; times in s, ``least_spread`` and ``least`` as logarithms, ``warm`` in windows with a level.

    An uncertain slowdown must keep the share ``kept`` of the required change. A gang became faster if the median of a
    minute is below its level by ``kept`` times ``volatility_factor`` times the usual change. ``hold`` is the sum from
    which level and spread are not updated. The highest sum decays by half in ``forget_s``; one that was an alarm raises
    it to at most ``doubt`` times its value.
    """

    window_s: float = 5.0
    usual_s: float = 1800.0
    least_spread: float = 0.005
    least: float = 0.025
    most: float = 8.0
    drift: float = 0.75
    volatility_factor: float = 6.0
    sure_factor: float = 8.0
    lasts_s: float = 180.0
    kept: float = 0.75
    warm: float = 24.0
    hold: float = 6.0
    faster: float = 60.0
    accept_s: float = 3600.0
    floor: float = 8.0
    doubt: float = 2.0
    forget_s: float = 2 * 86_400.0


DEFAULT = Config()


class State(NamedTuple):
    """``samples`` [RING, W] and ``recent`` [RECENT, W] are the logarithms of the open window and the last medians.

    All others are [W]: numbers of both so far, how long the window has been open, level and spread (NaN before RECENT
    windows), the sums up and down. Of the excursion: its start, its windows, its highest value while significant, its
    largest jump (relative to the required jump), the time when that was large enough, and 1 if it is an alarm. Of all
    excursions: the recent maximum. Also the usual movement of the median in half a minute.
    """

    samples: Floats
    recent: Floats
    sample_count: Floats
    recent_n: Floats
    open_s: Floats
    level: Floats
    spread: Floats
    up: Floats
    down: Floats
    since_s: Floats
    windows: Floats
    peak: Floats
    jump: Floats
    onset_s: Floats
    alarm: Floats
    worst: Floats
    volatility: Floats


class Detections(NamedTuple):
    """``alarm`` [W] where the sum exceeds the limit, ``ratio`` [W] the normalized sum, 0 if not significant.

    ``slower`` [W] is the share by which steps take longer now, and ``expected_s`` [W] their time before. ``ended`` [W]
    are the highest ratios of excursions that ended in this tick, else 0; ``exposure_s`` [W] is the exposure.
    """

    alarm: Bools
    ratio: Floats
    slower: Floats
    expected_s: Floats
    ended: Floats
    exposure_s: Floats


def init(n: int) -> State:
    """Return the state of ``n`` workloads without data."""
    return State(
        *(np.full((rows, n), np.nan) for rows in (RING, RECENT)),
        *np.zeros((3, n)),
        *np.full((2, n), np.nan),
        *np.zeros((len(State._fields) - 7, n)),
    )


def resize(state: State, n: int) -> State:
    """Return the state with room for ``n`` workloads, its content kept."""
    return grow(state, n, init)


def step(
    state: State, step_s: Floats, now_s: float, period_s: float, limit: float, config: Config = DEFAULT
) -> tuple[State, Detections | None]:
    """Add the step times [W] of a tick of ``period_s``, NaN if unknown; return ``None`` unless a window ended.

    ``limit`` is the ratio that raises an alarm.
    """
    has_value = (step_s > 0) & (step_s < np.inf)
    (at,) = has_value.nonzero()
    samples, sample_count = state.samples.copy(), state.sample_count + has_value
    samples[state.sample_count[at].astype(np.int64) % RING, at] = np.log(step_s[at])
    open_s = state.open_s + np.where(has_value | (state.sample_count > 0), period_s, 0.0)
    state = state._replace(samples=samples, sample_count=sample_count, open_s=open_s)
    if open_s.max(initial=0.0) < config.window_s - 1e-6:  # most ticks
        return state, None
    last = np.where(has_value, step_s, 0.0)
    over = (sample_count > 0) & (open_s >= np.maximum(config.window_s, np.minimum(last, 600.0)) - 1e-6)
    if not over.any():
        return state, None
    return _close(state, over, now_s, limit, config)


def _close(state: State, over: Bools, now_s: float, limit: float, c: Config) -> tuple[State, Detections]:
    y = median(state.samples)
    recent = np.where(over, np.concatenate([state.recent[1:], y[None]]), state.recent)
    recent_n = state.recent_n + over
    first = over & np.isnan(state.level) & (recent_n >= RECENT)
    known = over & np.isfinite(state.level)
    with np.errstate(invalid="ignore"):
        z = np.clip(np.where(known, (y - state.level) / state.spread, 0.0), -c.most, c.most)
        up = np.where(known, np.maximum(state.up + z - c.drift, 0.0), state.up)
        down = np.where(known, np.maximum(state.down - z - c.drift, 0.0), state.down)
    rises, lasts = (up > 0) & (state.up <= 0), up > 0
    since_s = np.where(rises, now_s - state.open_s, state.since_s)
    windows = np.where(lasts, np.where(rises, 0.0, state.windows) + known, 0.0)
    newer_half = np.arange(RECENT)[:, None] >= RECENT - np.minimum(windows, HALF)
    slower = median(np.where(newer_half, recent, np.nan)) - state.level
    moved = median(recent[HALF:]) - median(recent[:HALF])
    least, sure = (np.maximum(c.least, factor * state.volatility) for factor in (c.volatility_factor, c.sure_factor))
    jump = np.fmax(np.where(rises, 0.0, state.jump), moved / least)
    drifts = (jump < 1.0) & (windows >= RECENT)
    up = np.where(drifts, np.minimum(up, c.hold), up)
    jumps = known & (jump >= 1.0) & (np.where(rises, 0.0, state.jump) < 1.0)
    onset_s = np.where(jumps, np.maximum(since_s, now_s - HALF * state.open_s), state.onset_s)
    seen = recent_n - RECENT
    is_sure = (jump >= sure / least) | ((now_s - onset_s >= c.lasts_s) & (slower >= c.kept * least))
    is_significant = known & lasts & (jump >= 1.0) & is_sure & (slower >= c.least) & (seen >= c.warm)
    peak = np.fmax(np.where(rises, 0.0, state.peak), np.where(is_significant, up, 0.0))
    usual = state.worst + c.floor
    alarm = np.where(rises, 0.0, state.alarm) + (is_significant & (up / usual >= limit)) > 0
    faster = (down >= c.faster) & (state.level - median(recent) >= c.kept * c.volatility_factor * state.volatility)
    fresh = first | (known & faster) | (known & lasts & (now_s - since_s >= c.accept_s))
    ends = known & (fresh | ((state.up > 0) & ~lasts))
    over_now = np.where(lasts, peak, state.peak)
    was_alarm = np.where(lasts, alarm, state.alarm > 0)
    gain = np.minimum(state.open_s / c.usual_s, 1.0)
    forgets = np.where(over, 0.5 ** (state.open_s / c.forget_s), 1.0)
    reached = np.where(was_alarm, np.minimum(over_now, c.doubt * usual), over_now)
    level, spread = _learned(state, recent, y, z, known & ((up < c.hold) | drifts), fresh, c)
    stays = np.where(fresh | ~lasts, 0.0, 1.0)
    found = Detections(
        alarm=is_significant & alarm,
        ratio=np.where(is_significant, up / usual, 0.0),
        slower=np.where(is_significant, np.expm1(slower), 0.0),
        expected_s=np.exp(state.level),
        ended=np.where(ends, over_now / usual, 0.0),
        exposure_s=np.where(known, state.open_s, 0.0),
    )
    return State(
        samples=np.where(over, np.nan, state.samples),
        recent=recent,
        sample_count=np.where(over, 0.0, state.sample_count),
        recent_n=recent_n,
        open_s=np.where(over, 0.0, state.open_s),
        level=level,
        spread=spread,
        up=up * stays,
        down=np.where(fresh, 0.0, down),
        since_s=since_s,
        windows=windows * stays,
        peak=np.where(known, peak * stays, state.peak),
        jump=np.where(known, jump * stays, state.jump),
        onset_s=onset_s,
        worst=np.maximum(state.worst * forgets, np.where(ends, reached, 0.0)),
        alarm=np.where(known, alarm * stays, state.alarm),
        volatility=state.volatility
        + np.where(known, np.maximum(gain, 1.0 / np.maximum(seen, 1.0)) * (np.abs(moved) - state.volatility), 0.0),
    ), found


def _learned(
    state: State, recent: Floats, y: Floats, z: Floats, learns: Bools, fresh: Bools, c: Config
) -> tuple[Floats, Floats]:
    """Level and spread after a window; where ``fresh``, they restart from the recent windows."""
    middle = median(recent)
    around = np.maximum(_MEDIAN * median(np.abs(recent - middle)), c.least_spread)
    gain = np.where(learns, np.minimum(state.open_s / c.usual_s, 1.0), 0.0)
    with np.errstate(invalid="ignore"):
        pace = np.maximum(gain, 1.0 / np.maximum(state.recent_n, RECENT))
        level = np.where(learns, state.level + pace * np.clip(z, -2.0, 2.0) * state.spread, state.level)
        off = np.minimum(np.abs(z), 4.0) * state.spread
        spread = np.where(learns, state.spread + gain * (_NORMAL * off - state.spread), state.spread)
    spread = np.where(np.isnan(spread), spread, np.maximum(spread, c.least_spread))
    return np.where(fresh, middle, level), np.where(fresh, around, spread)


def median(values: Floats) -> Floats:
    """Median of the known values in each column of [R, W], NaN if there are none."""
    ordered = np.sort(values, axis=0)  # NaN comes last
    n = np.isfinite(ordered).sum(axis=0)
    at: NDArray[np.int64] = np.arange(values.shape[1], dtype=np.int64)
    low, high = ordered[np.maximum(n - 1, 0) // 2, at], ordered[np.minimum(n // 2, len(values) - 1), at]
    return np.where(n > 0, (low + np.where(n % 2 == 0, high, low)) / 2.0, np.nan)
