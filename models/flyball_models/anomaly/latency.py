"""Replicas that answer more slowly than their peers, or not at all: faults of servers that no sensor may show.

Once a period each replica has the logarithm y of its latency, unless no request ended. A change of the whole service
moves the median of the group and is no fault, so

    r = y - median of the group        z = (r - usual) / spread

`usual` is the replica's own slow mean of r, bounded by `apart` robust deviations of the means of its peers, so that a
replica that was slow from the start does not become the norm. `spread` is its own mean absolute deviation, of which the
median of its peers is the prior, times the square root of `lasting`: requests of one kind come together, and `lasting`
is the variance of its peers' means over `block` periods, relative to that of independent periods. The evidence of
slowness is a one-sided cumulative sum (Page 1954, "Continuous inspection schemes"). The evidence of silence is the
improbability of having no answer for so long while a share p of the peers has one in each period:

    slower:  E = max(0, E + min(z, most) - drift)        unanswered:  E = E - log(1 - p), or 0 with an answer

By chance, both exceed a level h at a rate that falls as exp(-h), however much work there is. E is divided by `floor`
plus a record: the replica's own recent maximum or, if that is larger, the second largest of its group (from nine
replicas on, the third largest), so that one or two faulty replicas hide no other. So services with steady and with
variable work share one tail for each kind of evidence (:mod:`flyball_models.anomaly.tail`), which gives the limit. No
latency is learned while the evidence is high. A replica that stays slow has a new usual latency after `accept_s`. The
combination is our own.

Shapes: N replicas, K = 2 kinds of evidence, :data:`KINDS`; arrays [K, N]. A group is of replicas that do the same work
on the same model. Evidence comes from groups of three or more.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models._padding import grow
from flyball_models.anomaly.peers import LEAST_PEERS, Floats, medians

KINDS = SLOWER, UNANSWERED = 0, 1
LEAST_S, MOST_S = 1e-9, 1e9
"""Bounds of a latency; a value outside counts as no answer."""
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
_NORMAL = np.float32(1.2533)
"""Standard deviation over the mean absolute deviation, of a normal distribution."""
_MEDIAN = np.float32(1.4826)
"""Standard deviation over the median absolute deviation, of a normal distribution."""
NEAR = 8
"""Largest size of a group in which the second largest evidence counts; in larger groups the third largest counts."""
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


class Config(NamedTuple):
    """See above; `least`, `least_spread` and `least_apart` as logarithms, `warm` and `usual_n` in periods with answers.

    Slowness needs a mean of `least`, and p is at most `most_share`. The prior of the spread has the weight of `prior_n`
    periods; the prior of `lasting` is `prior_lasting`, with the weight of `prior_blocks` blocks. A block counts as
    `most_lasting` at most, the last `blocks` blocks of a replica count, and slowness is not judged before the peers
    have had `least_blocks`. From the evidence `hold` on nothing is learned. The highest evidence decays by half in
    `forget_s`; that of an alarm raises it to at most `doubt` times its value. An alarm is repeated after `again_s`.
    """

    least: float = 0.05
    least_spread: float = 0.03
    least_apart: float = 0.05
    apart: float = 3.0
    prior_n: float = 16.0
    usual_n: float = 200.0
    warm: float = 40.0
    block: float = 30.0
    blocks: float = 50.0
    least_blocks: float = 8.0
    prior_lasting: float = 2.0
    prior_blocks: float = 4.0
    most_lasting: float = 400.0
    drift: float = 0.5
    most: float = 4.0
    most_share: float = 0.95
    hold: float = 4.0
    floor: float = 8.0
    doubt: float = 2.0
    again_s: float = 600.0
    accept_s: float = 6 * 3600.0
    forget_s: float = 2 * 86_400.0


DEFAULT = Config()


class State(NamedTuple):
    """What is known of the replicas [N], and the evidence against them [K, N].

    Of each replica: periods with answers, the usual r, its mean absolute deviation (NaN before any), 1 if it is
    accepted as slow, the share of periods in which it answers, and that of its peers; periods and sum of the open
    block, the number of blocks seen, and the mean of their squared sums relative to that of independent periods.

    Of the evidence: its sum, its periods and the sum of r - usual over them, the highest ratio, the time for which it
    has been an alarm, the time until it is reported again, and its recent maximum.
    """

    seen: Floats
    usual: Floats
    spread: Floats
    accepted: Floats
    share: Floats
    share_of_peers: Floats
    block_n: Floats
    block_sum: Floats
    blocks: Floats
    lasting: Floats
    total: Floats
    periods: Floats
    slower: Floats
    peak: Floats
    alarm_s: Floats
    rest_s: Floats
    worst: Floats


class Found(NamedTuple):
    """Results of a period.

    All [K, N]: the ratio where a replica is reported, else 0, the time in s since the evidence began, the highest ratio
    where it ended, else 0, and whether evidence could be observed. All [N]: mean slowdown as a share, usual latency in
    s.
    """

    ratio: Floats
    since_s: Floats
    ended: Floats
    watched: Bools
    slower: Floats
    expected_s: Floats


def init(n: int) -> State:
    """State of `n` replicas without answers."""
    one, kinds = (np.zeros(shape, np.float32) for shape in (n, (len(KINDS), n)))
    state = State(*(one.copy() for _ in range(10)), *(kinds.copy() for _ in range(7)))
    return state._replace(spread=np.full(n, np.nan, np.float32))


def resize(state: State, n: int) -> State:
    """Return the state with room for `n` replicas, its content kept."""
    return grow(state, n, init)


def step(
    state: State,
    latency_s: Floats,
    idle: Bools,
    group: NDArray[np.int32],
    period_s: float,
    limit: NDArray[np.float64],
    config: Config = DEFAULT,
) -> tuple[State, Found]:
    """Add a period: latencies [N], NaN where no request ended, of replicas in groups [N], negative for none.

    `idle` [N] are known to have had no request. `limit` [K] is the ratio that raises an alarm.
    """
    c = config
    home = np.where(group < len(group), np.maximum(group, -1), -1).astype(np.int64)
    answers = (home >= 0) & (latency_s >= np.float32(LEAST_S)) & (latency_s <= np.float32(MOST_S))
    y = np.log(np.where(answers, latency_s, _ONE))
    middle, here = _middle(y, home, answers)
    compared = answers & (here >= LEAST_PEERS)
    r = np.where(compared, y - middle, _ZERO)
    base, own_spread, judged = _usual(state, home, c)
    lasting, known = _lasting(state, home, c)
    spread = own_spread * np.sqrt(lasting)
    share_of_peers = _share_of_peers(home, answers)
    silent = judged & ~answers & ~idle
    p = share_of_peers * np.clip(state.share / np.maximum(state.share_of_peers, np.float32(1e-6)), _ZERO, _ONE)
    watched = np.stack([compared & judged & known, judged & ((share_of_peers > 0) | answers | idle)])
    z = np.clip((r - base) / spread, -np.float32(c.most), np.float32(c.most)) - np.float32(c.drift)
    surprise = np.where(silent, -np.log1p(-np.minimum(p, np.float32(c.most_share))), np.float32(-np.inf))
    total = np.where(watched, np.maximum(state.total + np.stack([z, surprise]), _ZERO), state.total)
    lasts = total > 0
    rises, ends = lasts & (state.total <= 0), watched & ~lasts & (state.total > 0)
    periods = np.where(lasts, np.where(rises, _ZERO, state.periods) + watched, _ZERO)
    slower = np.where(lasts, np.where(rises, _ZERO, state.slower) + np.where(watched, r - base, _ZERO), _ZERO)
    mean = slower[SLOWER] / np.maximum(periods[SLOWER], _ONE)
    record = np.maximum(state.worst, _of_peers(np.maximum(state.worst, state.total), home)) + np.float32(c.floor)
    ratio = np.where(watched, total / record, _ZERO)
    ratio[SLOWER, mean < np.float32(c.least)] = _ZERO
    peak = np.where(lasts, np.maximum(np.where(rises, _ZERO, state.peak), ratio), state.peak)
    loud = ratio >= limit[:, None].astype(np.float32)
    rest = np.maximum(state.rest_s - np.float32(period_s), _ZERO)
    reported = loud & (rest <= 0)
    alarm_s = np.where(lasts & (loud | (state.alarm_s > 0)), state.alarm_s + np.float32(period_s), _ZERO)
    accepted = alarm_s >= np.float32(c.accept_s)
    over, stays = ends | accepted, lasts & ~accepted
    reached = np.where(state.alarm_s > 0, np.minimum(peak, np.float32(c.doubt)), peak) * record
    learns = compared & ((total[SLOWER] < np.float32(c.hold)) | ~judged)
    seen, usual, own = _learned(state, r, own_spread, learns, c)
    block_n, block_sum, blocks, lasting = _blocks(state, (r - base) / own_spread, compared & judged, c)
    usual = np.where(accepted[SLOWER], base + mean, usual)
    expected = (home >= 0) & ~idle & (total[UNANSWERED] < np.float32(c.hold))
    gain = np.where(expected, _gain(state.seen, c), _ZERO)
    updated = State(
        seen=seen,
        usual=usual,
        spread=own,
        accepted=np.where(accepted[SLOWER], _ONE, np.where(judged & (usual <= 0), _ZERO, state.accepted)),
        share=_towards(state.share, answers.astype(np.float32), gain),
        share_of_peers=_towards(state.share_of_peers, share_of_peers, gain),
        block_n=block_n,
        block_sum=block_sum,
        blocks=blocks,
        lasting=lasting,
        total=np.where(stays, total, _ZERO),
        periods=np.where(stays, periods, _ZERO),
        slower=np.where(stays, slower, _ZERO),
        peak=np.where(stays, peak, _ZERO),
        alarm_s=np.where(stays, alarm_s, _ZERO),
        rest_s=np.where(reported, np.float32(c.again_s), rest),
        worst=np.maximum(state.worst * np.float32(0.5 ** (period_s / c.forget_s)), np.where(over, reached, _ZERO)),
    )
    found = Found(
        ratio=np.where(reported, ratio, _ZERO),
        since_s=periods * np.float32(period_s),
        ended=np.where(over, peak, _ZERO),
        watched=watched,
        slower=np.expm1(mean),
        expected_s=np.where(here > 0, np.exp(middle + base), np.float32(np.nan)),
    )
    return updated, found


def _towards(mean: Floats, value: Floats, gain: Floats) -> Floats:
    return np.asarray(mean + gain * (value - mean), np.float32)


def _gain(seen: Floats, c: Config) -> Floats:
    return np.asarray(np.maximum(_ONE / (seen + _ONE), np.float32(1.0 / c.usual_n)), np.float32)


def _usual(state: State, home: Ints, c: Config) -> tuple[Floats, Floats, Bools]:
    """The usual r of each replica [N], its spread [N], and which replicas can be judged [N]."""
    warm = (home >= 0) & (state.seen >= np.float32(c.warm))
    middle, peers = _middle(state.usual, home, warm)
    apart, _ = _middle(np.abs(state.usual - middle), home, warm)
    bound = np.float32(c.apart) * np.maximum(_MEDIAN * apart, np.float32(c.least_apart))
    base = np.clip(state.usual, middle - bound, middle + bound)
    base = np.where(state.accepted > 0, np.maximum(state.usual, base), base)
    pooled, _ = _middle(state.spread, home, warm)
    own = np.where(np.isnan(state.spread), pooled, state.spread)
    weight = state.seen + np.float32(c.prior_n)
    spread = _NORMAL * (np.float32(c.prior_n) * pooled + state.seen * own) / weight
    judged = warm & (peers >= LEAST_PEERS)
    least = np.float32(c.least_spread)
    return np.where(judged, base, _ZERO), np.where(judged, np.maximum(spread, least), np.float32(np.inf)), judged


def _learned(state: State, r: Floats, spread: Floats, learns: Bools, c: Config) -> tuple[Floats, Floats, Floats]:
    """Periods with answers, usual r and mean absolute deviation, updated by the r of the replicas in `learns`."""
    gain = np.where(learns, _gain(state.seen, c), _ZERO)
    off = r - state.usual
    bounded = np.clip(off, -2 * spread, 2 * spread)  # an infinite spread bounds nothing
    far = np.minimum(np.abs(off), 4 * spread)
    before = np.where(np.isnan(state.spread), far, state.spread)
    seen = np.asarray(state.seen + learns, np.float32)
    mean = np.where(learns, _towards(before, far, gain), state.spread)
    return seen, np.asarray(state.usual + gain * bounded, np.float32), mean


def _blocks(state: State, off: Floats, compared: Bools, c: Config) -> tuple[Floats, Floats, Floats, Floats]:
    """Periods and sum of the open block, number of blocks and their mean, updated by standardised `off` [N]."""
    n, total = state.block_n + compared, state.block_sum + np.where(compared, np.clip(off, -c.most, c.most), _ZERO)
    ends = n >= np.float32(c.block)
    found = np.minimum(total * total / np.float32(c.block), np.float32(c.most_lasting))
    blocks = np.where(ends, np.minimum(state.blocks + _ONE, np.float32(c.blocks)), state.blocks)
    gain = np.where(ends, _ONE / np.maximum(blocks, _ONE), _ZERO)
    n, total = (np.asarray(np.where(ends, _ZERO, open_), np.float32) for open_ in (n, total))
    return n, total, blocks, _towards(state.lasting, found, gain)


def _lasting(state: State, home: Ints, c: Config) -> tuple[Floats, Bools]:
    """Variance of the blocks of a replica's peers, relative to independent periods [N], and whether it is known."""
    groups = int(home.max(initial=-1)) + 1
    inside = home >= 0
    own = (np.where(inside, x, _ZERO) for x in (state.blocks, state.blocks * state.lasting))
    count, total = (np.append(np.bincount(home[inside], x[inside], groups), 0.0)[home] - x for x in own)
    mean = (total + c.prior_lasting * c.prior_blocks) / (count + c.prior_blocks)
    return np.asarray(np.maximum(mean, 1.0), np.float32), np.asarray(count >= c.least_blocks, np.bool_)


def _of_peers(most: Floats, home: Ints) -> Floats:
    """The record of the group that each member is judged against [K, N]; 0 in a group of less than three."""
    groups = int(home.max(initial=-1)) + 1
    inside = np.flatnonzero(home >= 0)
    at = home[inside]
    count = np.bincount(at, minlength=groups)
    place = np.cumsum(count) - count + np.where(count <= NEAR, 1, 2)
    found = np.zeros((len(most), groups + 1), np.float32)
    (full,) = (count >= LEAST_PEERS).nonzero()
    for mine, row in zip(found, most[:, inside], strict=True):
        mine[full] = row[np.lexsort((-row, at))][place[full]]
    return found[:, home]


def _share_of_peers(home: Ints, answers: Bools) -> Floats:
    """Share of a replica's peers that have an answer [N]; one peer more counts as having none."""
    groups = int(home.max(initial=-1)) + 1
    members, known = (np.append(np.bincount(home[of], minlength=groups), 0)[home] for of in (home >= 0, answers))
    return np.asarray((known - answers) / np.maximum(members, 1), np.float32)


def _middle(values: Floats, home: Ints, known: Bools) -> tuple[Floats, Ints]:
    """Median of the known values of each replica's group [N], 0 without any, and how many there are [N]."""
    groups = int(home.max(initial=-1)) + 1
    at = home[known]
    members = np.bincount(at, minlength=groups)
    found = np.append(np.nan_to_num(medians(values[known].astype(np.float32), at, members)), _ZERO)
    return found[home].astype(np.float32), np.append(members, 0)[home]
