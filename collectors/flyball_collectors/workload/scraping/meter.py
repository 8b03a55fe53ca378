"""Activity of a server between two reads of its page."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from flyball_collectors.base import NAN, Counters
from flyball_collectors.parameters import KnownSeries
from flyball_collectors.workload.scraping.page import PageError, Sample
from flyball_collectors.workload.scraping.selector import Samples, Terms, parse_terms
from flyball_contracts.config.constants import with_constants
from flyball_contracts.config.workload import Series

_PLAIN = (
    *("arrived", "ended", "failed", "active", "queued", "tokens_in", "tokens_out"),
    *("latency_sum", "latency_count", "kv_cache", "ready"),
)
_HISTOGRAM = ("_bucket", "_sum", "_count")
_TIMED = ("latency", "first_token", "output_token")
_UNITS_S = {"_ms": 1e-3, "_us": 1e-6}
_P99 = 0.99


def quantile(q: float, buckets: Mapping[float, float]) -> float:
    """The ``q`` quantile of observations with cumulative counts by upper bound, the last of which is infinite.

    Linear within a bucket, whose lower bound is the one below, or 0 for the lowest if its bound is above 0. Values
    beyond the last finite bound are reported as that bound. NaN without observations or without an infinite bound.
    """
    bounds = sorted(buckets)
    if len(bounds) < 2 or bounds[-1] != float("inf"):
        return NAN
    counts: list[float] = []
    for bound in bounds:  # a bucket that is read a moment later may be ahead of the next
        counts.append(max(buckets[bound], counts[-1] if counts else 0.0))
    if not counts[-1] > 0:
        return NAN
    rank = q * counts[-1]
    place = next(i for i, counted in enumerate(counts) if counted >= rank)
    if place == len(bounds) - 1:
        return bounds[-2]
    if place == 0 and bounds[0] <= 0:
        return bounds[0]
    low, below = (bounds[place - 1], counts[place - 1]) if place else (0.0, 0.0)
    inside = counts[place] - below
    return bounds[place] if inside <= 0 else low + (bounds[place] - low) * (rank - below) / inside


class ServerReading(NamedTuple):
    """Values from a page and the previous one; NaN for missing ones.

    Rates are per second over the time between the two, ``failed`` is an increase, latencies are of the requests that
    ended in between; times to the first token and between tokens are of the tokens in between.
    """

    request_rate: float = NAN
    work_rate: float = NAN
    active: float = NAN
    queued: float = NAN
    tokens_in_rate: float = NAN
    tokens_out_rate: float = NAN
    latency_mean_s: float = NAN
    latency_p99_s: float = NAN
    failed: float = NAN
    ready: float = NAN
    first_token_mean_s: float = NAN
    first_token_p99_s: float = NAN
    output_token_mean_s: float = NAN
    output_token_p99_s: float = NAN
    kv_cache: float = NAN


class Work(NamedTuple):
    """The unit of ``work.rate``, that of ``capacity_per_replica``: requests, or weighted tokens."""

    unit: Literal["requests", "tokens"] = "requests"
    input_weight: float = 1.0
    output_weight: float = 1.0


class Alternatives:
    """The parsed selectors of :class:`Series`, by its field names."""

    def __init__(self, section: Series, where: str) -> None:
        """Raise :class:`ConfigError` for a selector that cannot be read; ``where`` is its place."""
        series = with_constants(KnownSeries, section)

        def parsed(field: str, *endings: str) -> tuple[tuple[Terms, ...], ...]:
            texts: tuple[str, ...] = getattr(series, field)
            found = [parse_terms(text, f"{where}.{field}") for text in texts]
            return tuple(
                tuple(tuple(term._replace(name=term.name + ending) for term in terms) for ending in endings or ("",))
                for terms in found
            )

        self.of: Mapping[str, tuple[Terms, ...]] = {field: tuple(one for (one,) in parsed(field)) for field in _PLAIN}
        self.timed = {field: parsed(field, *_HISTOGRAM, "") for field in _TIMED}
        self.copies = series.copies
        self.model = series.model

    @property
    def names(self) -> set[str]:
        """Names of all series that are requested."""
        alternatives = [terms for one in self.of.values() for terms in one]
        alternatives += [terms for timed in self.timed.values() for series in timed for terms in series]
        return {term.name for terms in alternatives for term in terms}


class Meter:
    """Keeps the counters of the previous page; one for each server.

    A counter that went down was reset: its increase is unknown, hence NaN. One that appears after the first page counts
    from zero. A page without any series tells nothing, and counters continue behind it; those that are lower then began
    again from zero. ``absent`` are the fields without a series on the last page although requests had ended, and the
    expected names.
    """

    def __init__(self, series: Alternatives, work: Work, match: Mapping[str, str]) -> None:
        self._series = series
        self._work = work
        self._match = match
        self._counters = Counters()
        self._taken_s: float | None = None
        self._inside = NAN
        self._queued = NAN
        self._shown = self._again = False  # whether any page had series, and counters began again behind one without
        self._blank_s: float | None = None  # when a page had none, since the last with series
        self.absent: Mapping[str, str] = {}

    def take(self, found: Sequence[Sample], now_s: float, longest_s: float) -> ServerReading:
        """Add the samples of a page that was read at monotonic time ``now_s``.

        Rates over more than ``longest_s`` are out of date: NaN. Raises :class:`PageError` for a bucket without a bound.
        """
        page = Samples(found, self._match, self._series.copies)
        if self._shown and not page:
            self._blank_s = now_s
            return ServerReading()
        self._shown = self._shown or bool(page)
        active, queued = self._sum(page, "active"), self._sum(page, "queued")
        ended = self._increase(page, "ended")
        inside = _known_sum(active, queued)
        requests = self._increase(page, "arrived")
        if requests != requests:
            requests = max(ended + _or_zero(inside - self._inside), 0.0) if ended == ended else NAN
        grown, self._inside, self._queued = queued - self._queued, inside, queued
        tokens_in, tokens_out = self._increase(page, "tokens_in"), self._increase(page, "tokens_out")
        self.absent = self._lacks(page) if ended > 0 else {}
        mean_s, p99_s = self._latency(page)
        first_token_mean_s, first_token_p99_s = self._timed(page, "first_token") or (NAN, NAN)
        output_token_mean_s, output_token_p99_s = self._timed(page, "output_token") or (NAN, NAN)
        failed = self._increase(page, "failed")
        since_s = self._blank_s if self._again else self._taken_s
        passed_s = now_s - since_s if since_s is not None else NAN
        per_s = 1 / passed_s if 0 < passed_s <= longest_s else NAN
        self._taken_s, self._blank_s, self._again = now_s, None, False
        return ServerReading(
            request_rate=requests * per_s,
            work_rate=self._work_done(page, requests, tokens_in, tokens_out, grown) * per_s,
            active=active,
            queued=queued,
            tokens_in_rate=tokens_in * per_s,
            tokens_out_rate=tokens_out * per_s,
            latency_mean_s=mean_s,
            latency_p99_s=p99_s,
            failed=failed,
            ready=self._sum(page, "ready"),
            first_token_mean_s=first_token_mean_s,
            first_token_p99_s=first_token_p99_s,
            output_token_mean_s=output_token_mean_s,
            output_token_p99_s=output_token_p99_s,
            kv_cache=self._mean(page, "kv_cache"),
        )

    def _work_done(
        self, page: Samples, requests: float, tokens_in: float, tokens_out: float, queue_grown: float
    ) -> float:
        """Work that came in: the served work, and the queue's growth times the mean work of all requests so far."""
        if self._work.unit == "requests":
            return requests
        done = self._weighted(tokens_in, tokens_out)
        so_far = self._weighted(self._sum(page, "tokens_in"), self._sum(page, "tokens_out"))
        ended = self._sum(page, "ended")
        waits = queue_grown * so_far / ended if ended > 0 else NAN
        return max(done + _or_zero(waits), 0.0) if done == done else NAN

    def _weighted(self, tokens_in: float, tokens_out: float) -> float:
        work = self._work
        parts = ((tokens_in, work.input_weight), (tokens_out, work.output_weight))
        return sum(tokens * weight for tokens, weight in parts if weight)  # NaN if a weighted kind is unknown

    def _latency(self, page: Samples) -> tuple[float, float]:
        """Mean and 99th percentile in seconds."""
        latency = self._timed(page, "latency")
        if latency is not None:
            return latency
        spent, counted = self._increase(page, "latency_sum"), self._increase(page, "latency_count")
        sums = self._series.of["latency_sum"]
        return (spent / counted * _unit_s(sums[0]) if sums and counted > 0 else NAN), NAN

    def _timed(self, page: Samples, field: str) -> tuple[float, float] | None:
        """Mean and 99th percentile in seconds, by the first histogram or summary that the page has of a field."""
        for buckets, total, count, quantiles in self._series.timed[field]:
            if not page.values(count):
                continue
            unit_s = _unit_s(quantiles)
            counted = self._counters.increase_of_sum(f"{field}.count", page.values(count))
            spent = self._counters.increase_of_sum(f"{field}.sum", page.values(total))
            counts: dict[float, float] = {}
            for bound, values in page.by_label(buckets, "le").items():
                counts[_bound(bound)] = self._counters.increase_of_sum(f"{field}.{bound}", values)
            p99 = NAN if any(n != n for n in counts.values()) else quantile(_P99, counts)
            if not counts and counted > 0:  # a summary: its quantiles cannot be added, the worst series is taken
                worst = [
                    v for q, vs in page.by_label(quantiles, "quantile").items() if q == "0.99" for v in vs.values()
                ]
                p99 = max(worst, default=NAN)
            return (spent / counted * unit_s if counted > 0 else NAN), p99 * unit_s
        return None

    def _lacks(self, page: Samples) -> dict[str, str]:
        series = self._series
        gauges: dict[str, list[tuple[Terms, Terms]]] = {
            field: [(count, plain) for _, _, count, plain in series.timed[field]] for field in _TIMED[1:]
        }
        gauges["kv_cache"] = [(terms, terms) for terms in series.of["kv_cache"]]
        return {
            field: " or ".join(dict.fromkeys(term.name for _, plain in either for term in plain))
            for field, either in gauges.items()
            if either and not any(page.values(there) for there, _ in either)
        }

    def _mean(self, page: Samples, field: str) -> float:
        """Mean over the series of a share, one per engine."""
        values = self._values(page, field)
        return sum(values) / len(values) if values else NAN

    def _sum(self, page: Samples, field: str) -> float:
        values = self._values(page, field)
        return sum(values) if values else NAN

    def _values(self, page: Samples, field: str) -> list[float]:
        return next(
            ([*found.values()] for terms in self._series.of[field] if (found := page.values(terms))), list[float]()
        )

    def _increase(self, page: Samples, field: str) -> float:
        """Increase of the first alternative on the page; counters of all are kept, in case another appears later."""
        first = NAN
        for place, terms in reversed(list(enumerate(self._series.of[field]))):
            values = page.values(terms)
            increase = self._counters.increase_of_sum(f"{field}.{place}", values)
            if values:
                again = self._blank_s is not None and increase != increase
                self._again = self._again or again
                first = sum(values.values()) if again else increase
        return first


def _known_sum(*values: float) -> float:
    known = [value for value in values if value == value]
    return sum(known) if known else NAN


def _or_zero(value: float) -> float:
    return value if value == value else 0.0


def _unit_s(terms: Terms) -> float:
    """Unit in the suffix of a series' name, in seconds; seconds by default."""
    return next((unit_s for end, unit_s in _UNITS_S.items() if terms[0].name.endswith(end)), 1.0)


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise PageError(f"a bucket has the bound le={text!r}, which is no number") from None
