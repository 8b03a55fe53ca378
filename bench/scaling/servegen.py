"""Demand of ServeGen's models: per client and 10-minute window, requests drawn from its rate and burstiness.

Arrivals are a Gamma renewal process, whichever distribution was published: shape 1 / CV^2 (at least 0.01; a CV up to
0.05 is read as 1), mean gap 1 / rate; one that would cross the end of the window is dropped and the process starts
again there. A window in which the whole fleet has less than 0.15 of its median rate is a gap of the measurement: rates
are interpolated per client, from later values too, so use the result to compare costs, not to test forecasts of
outages. One factor brings the mean to :data:`MEAN_RPS`; burstiness is kept as it is. Each request gets the tokens of a
random real request.
"""

from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from flyball_contracts.errors import RecordingError
from flyball_models.scaling.compile import kept
from flyball_streams.backtest.demands.demand import Demand, Floats
from flyball_streams.importers.base import read_table

WINDOW_S = 600
GAP_SHARE = 0.15
MEAN_RPS = 88.0
MEAN_WORK = 20.0
LEAST_SHAPE = 0.01
STEADY_CV = 0.05


class Clients(NamedTuple):
    """Rates [requests/s] and coefficients of variation of a fleet's clients, float64 [clients, windows]."""

    name: str
    ids: tuple[int, ...]
    rate: Floats
    cv: Floats
    about: str

    @property
    def seconds(self) -> int:
        """Length of the trace."""
        return int(self.rate.shape[1]) * WINDOW_S


def read_clients(folder: Path) -> list[Clients]:
    """Fleets of a ServeGen folder, one per model, sorted by name.

    Raises :class:`RecordingError` when the folder is not such a trace.
    """
    keys = {"model": pl.String(), "client": pl.Int64(), "t_s": pl.Int64()}
    rows = read_table(folder, "rates.parquet", keys, {"rate_rps": pl.Float64(), "cv": pl.Float64()}).rows
    if rows["t_s"].min() < 0:  # type: ignore[operator]
        raise RecordingError(f"{folder / 'rates.parquet'}: t_s must be seconds from 0 on; fetch it again")
    fleets: list[Clients] = []
    for name in rows["model"].unique().sort().to_list():
        model = rows.filter(pl.col("model") == name)
        ids = model["client"].unique().sort().to_list()
        first = int(cast("int", model["t_s"].min())) // WINDOW_S
        windows = int(cast("int", model["t_s"].max())) // WINDOW_S - first + 1
        at = np.searchsorted(ids, model["client"].to_numpy()), model["t_s"].to_numpy() // WINDOW_S - first
        rate, cv = np.full((len(ids), windows), np.nan), np.zeros((len(ids), windows))
        rate[at] = model["rate_rps"].to_numpy()
        cv[at] = model["cv"].fill_null(0.0).to_numpy()
        fleets.append(_without_gaps(name, tuple(ids), np.maximum(rate, 0.0), np.maximum(cv, 0.0)))
    return fleets


def _without_gaps(name: str, ids: tuple[int, ...], rate: Floats, cv: Floats) -> Clients:
    total = np.nansum(rate, axis=0)
    known = total >= GAP_SHARE * np.median(total)
    rate, gap, at = np.nan_to_num(rate), np.flatnonzero(~known), np.flatnonzero(known)
    for values in (*rate, *cv):
        values[gap] = np.interp(gap, at, values[at])
    about = f"ServeGen {name}: {len(ids)} clients, {rate.shape[1] * WINDOW_S / 86_400:.0f} d"
    gaps = int((~known).sum())
    return Clients(name, ids, rate, cv, about + (f", {gaps} windows without data interpolated" if gaps else ""))


class Sums(NamedTuple):
    """Work and number of requests of each second, float64 [seconds]; empty arrays receive nothing."""

    work: Floats
    requests: Floats


class Singles(NamedTuple):
    """Arrival time [s] and token count of single requests in the `wanted` windows, [n].

    Further requests are dropped.
    """

    wanted: NDArray[np.bool_]
    at_s: Floats
    token: NDArray[np.int32]


NO_SUMS = Sums(np.zeros(0), np.zeros(0))
NO_SINGLES = Singles(np.zeros(0, np.bool_), np.zeros(0), np.zeros(0, np.int32))


@kept
def draw_requests(
    rate: Floats, cv: Floats, tokens: Floats, draw: Any, sums: Sums, singles: Singles, filled: int
) -> int:
    """Draw a client's requests.

    They are added to sums per second, stored as single requests from `filled` on, or both. Returns the new end of the
    single requests.
    """
    work, requests, at_s, which = sums.work, sums.requests, singles.at_s, singles.token
    adds, room, count = len(work) > 0, len(at_s), len(tokens)
    for window in range(len(rate)):
        if rate[window] <= 0.0:
            continue
        spread = cv[window] if cv[window] > STEADY_CV else 1.0
        shape = max(LEAST_SHAPE, 1.0 / (spread * spread))
        scale = 1.0 / (rate[window] * shape)
        start = window * WINDOW_S
        noted = filled < room and singles.wanted[window]
        at = draw.standard_gamma(shape) * scale
        while at < WINDOW_S:
            token = int(draw.random() * count)
            if adds:
                second = start + int(at)
                work[second] += tokens[token]
                requests[second] += 1.0
            if noted and filled < room:
                at_s[filled], which[filled] = start + at, token
                filled += 1
            at += draw.standard_gamma(shape) * scale
    return filled


def arrivals(fleet: Clients, tokens: Floats, seed: int, mean_rps: float = MEAN_RPS) -> Demand:
    """Draw the demand of a fleet; `tokens` is the work of real requests, float64 [requests].

    The same fleet, tokens and seed give the same demand, and a client's arrivals do not depend on other clients.
    """
    sums = Sums(np.zeros(fleet.seconds), np.zeros(fleet.seconds))
    factor = mean_rps / float(fleet.rate.sum(axis=0).mean())
    for client, rate, cv in zip(fleet.ids, fleet.rate, fleet.cv, strict=True):
        draw = np.random.default_rng(1000 * seed + client)
        draw_requests(rate * factor, cv, tokens, draw, sums, NO_SINGLES, 0)
    return Demand(fleet.name, sums.work, sums.requests, fleet.about).scaled(MEAN_WORK)
