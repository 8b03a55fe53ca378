"""Sojourns: a series stays in a state, such as at the end of its range, for longer than healthy ones do.

A series that idles and bursts reaches both ends of its range daily, so the size of a value shows no fault; how long the
series stays there does. A state is any condition that holds for a series or not: fully busy, idle, without a value, or
with the value that it had before. For a stay of D seconds

    u = D / max(own record, that of the peers, a floor)

The record is the longest stay that ended, and fades in days. The record of the peers is the second longest stay of any
unit of the group, ended or not, or the third longest in a group of eight or more: one or two faulty devices hide
neither themselves nor each other, and what half of a group does is no fault. Devices of one replica count as one unit,
as they idle together. The ratio makes series comparable: a series that idles for hours by nature may do so, and one
that never idles may not idle for minutes. The u of stays that ended have one tail for each state
(:mod:`flyball_models.anomaly.tail`), with a separate one for series without peers, and a stay is too long if healthy
series have such long stays at less than the given rate.

Stays that began before a series was known for a while are not judged, but count as records. A stay that has been
reported for long is accepted. The method is our own.

Shapes: N devices, K states, arrays [K, N] with the devices last. Strata are the K states with peers, then without.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_models.anomaly import tail
from flyball_models.anomaly.peers import LEAST_PEERS, Floats

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class Config(NamedTuple):
    """Times in s after which a series with peers, and one without, is known, and in which a record fades.

    A stay is reported again after `again_s` and accepted after `accept_s`; the tail includes at most one reported stay
    of a series in `trust_s`. In a group of up to `near` units the second longest stay counts, in a larger one the third
    longest.
    """

    warm_s: float = 1800.0
    alone_s: float = 14_400.0
    fade_s: float = 3 * 86_400.0
    again_s: float = 300.0
    accept_s: float = 7200.0
    trust_s: float = 86_400.0
    near: int = 7
    sizes: tail.Config = tail.Config(prior_excess=(0.4, 2.0), excess_n=2.0, prior_shape=(0.15, 0.4), shapes=(0.0, 0.8))


DEFAULT = Config()
_ZERO = np.float32(0.0)


class State(NamedTuple):
    """All [K, N]; times in s.

    The time for which a series was seen, the length of the present stay, the record, the time until the stay is
    reported again, and the time until the tail includes a reported stay of the series again; whether the present stay
    is judged.
    """

    seen_s: Floats
    stays_s: Floats
    record_s: Floats
    rest_s: Floats
    doubt_s: Floats
    judged: Bools


class Peers(NamedTuple):
    """Which series are compared with each other.

    Slots [n] that have a group, with their groups and units [n]; groups of the units [U], in ascending order; for each
    group, the place of the unit whose stay counts when units are ordered by group and stay, -1 in a group of too few
    units [G]. Whether slots have peers, and their groups [N].
    """

    slots: Ints
    home: Ints
    unit: Ints
    group_of_unit: Ints
    counts: Ints
    peered: Bools
    group: Ints


class Found(NamedTuple):
    """All [K, N]: u where a stay is reported, else 0, and the longest stay in s that would not be reported."""

    ratio: Floats
    limit_s: Floats


def init(n: int, states: int) -> State:
    """State of `n` devices without observations."""
    shape = states, n
    return State._make(np.zeros(shape, np.bool_ if name == "judged" else np.float32) for name in State._fields)


def arrange(group: NDArray[np.int32], unit: NDArray[np.int32], config: Config = DEFAULT) -> Peers:
    """Peers by `group` [N], negative for none, and `unit` [N] within it, such as a replica.

    In a group of fewer than three units each device is a unit by itself.
    """
    slots = np.flatnonzero(group >= 0).astype(np.int64)
    home, of = group[slots].astype(np.int64), unit[slots].astype(np.int64)
    groups = int(home.max()) + 1 if len(slots) else 0
    pairs = np.unique(np.stack([home, of]), axis=1)
    few = np.bincount(pairs[0], minlength=groups) < LEAST_PEERS
    of = np.where(few[home], int(of.max(initial=0)) + 1 + slots, of)
    pairs, number = np.unique(np.stack([home, of]), axis=1, return_inverse=True)
    units = np.bincount(pairs[0], minlength=groups)
    place = np.cumsum(units) - units + np.where(units <= config.near, 1, 2)
    peered = np.zeros(len(group), np.bool_)
    peered[slots] = units[home] >= LEAST_PEERS
    counts = np.where(units >= LEAST_PEERS, place, -1)
    return Peers(slots, home, number.reshape(-1), pairs[0], counts, peered, group.astype(np.int64))


def step(
    state: State,
    known_tail: tail.State,
    inside: Bools,
    known: Bools,
    peers: Peers,
    least_s: Floats,
    period_s: float,
    rate: float,
    config: Config = DEFAULT,
) -> tuple[State, tail.State, Found]:
    """Advance by `period_s`: which series are `inside` their state [K, N], where that is `known` [K, N].

    `least_s` [K] is the floor of records, `rate` the allowed rate of reports of a clean series, per series-second.
    Where the state is unknown, the present stay neither grows nor ends.
    """
    period, states = np.float32(period_s), len(inside)
    warm = state.seen_s >= np.where(peers.peered, np.float32(config.warm_s), np.float32(config.alone_s))
    inside = inside & known
    stays = np.where(inside, state.stays_s + period, state.stays_s)
    judged = np.where(inside & (state.stays_s <= 0.0), warm, state.judged)
    ended = known & ~inside & (state.stays_s > 0.0)
    record = state.record_s * np.float32(math.exp(-period_s / config.fade_s))
    scale = np.maximum(np.maximum(record, _of_peers(np.maximum(record, stays), peers)), least_s[:, None])
    ratio: Floats = (stays / scale).astype(np.float32, copy=False)
    limit = np.where(peers.peered, known_tail.limit[:states, None], known_tail.limit[states:, None]).astype(np.float32)
    loud = judged & (ratio >= limit)
    rest = np.maximum(state.rest_s - period, _ZERO)
    reported = inside & loud & (rest <= 0.0)
    accepted = inside & loud & (stays - limit * scale >= np.float32(config.accept_s))
    doubt = np.maximum(state.doubt_s - period, _ZERO)
    over = (ended & judged) | accepted
    sized = over & (ratio > config.sizes.least) & ~(loud & (doubt > 0.0))
    watched = warm & known
    beside = (watched & peers.peered).sum(axis=1)
    exposure = np.concatenate([beside, watched.sum(axis=1) - beside]) * period_s
    stratum, peak, events = _pooled(sized, ratio, peers)
    tail_state = tail.step(known_tail, stratum, peak, exposure, period_s, rate, events, config.sizes)
    updated = State(
        seen_s=np.where(known, state.seen_s + period, state.seen_s),
        stays_s=np.where(ended, _ZERO, stays),
        record_s=np.where(ended, np.maximum(record, state.stays_s), record),
        rest_s=np.where(reported, np.float32(config.again_s), rest),
        doubt_s=np.where(over & loud, np.float32(config.trust_s), doubt),
        judged=judged & ~ended & ~accepted,
    )
    return updated, tail_state, Found(np.where(reported, ratio, _ZERO), limit * scale)


def _of_peers(longest_s: Floats, peers: Peers) -> Floats:
    """The stay of the group that each member is compared with, from the longest stays [K, N]; 0 without peers."""
    found = np.zeros_like(longest_s)
    if not peers.peered.any():
        return found
    has = peers.counts >= 0
    for mine, row in zip(found, longest_s, strict=True):
        if not row.any():
            continue
        of_unit = np.zeros(len(peers.group_of_unit), np.float32)
        np.maximum.at(of_unit, peers.unit, row[peers.slots])
        ordered = of_unit[np.lexsort((-of_unit, peers.group_of_unit))]
        of_group = np.where(has, ordered[np.where(has, peers.counts, 0)], _ZERO)
        mine[peers.slots] = of_group[peers.home]
    return found


def _pooled(sized: Bools, ratio: Floats, peers: Peers) -> tuple[Ints, NDArray[np.float64], int]:
    """Strata and sizes of the stays that are over, only the largest of each group, and the number of these groups."""
    state, device = sized.nonzero()
    if not len(state):
        return np.zeros(0, np.int64), np.zeros(0), 0
    beside, size = peers.peered[device], ratio[state, device].astype(np.float64)
    home = np.where(beside, peers.group[device], len(sized[0]) + device)
    stratum = np.where(beside, state, state + len(sized))
    order = np.lexsort((-size, home, stratum))
    stratum, home, size = stratum[order], home[order], size[order]
    first = np.append(True, (np.diff(stratum) != 0) | (np.diff(home) != 0))
    return stratum[first], size[first], len(np.unique(home))
