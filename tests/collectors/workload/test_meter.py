"""From two pages to a row: rates, latencies, resets, for each server and several of its versions."""

import math
from collections.abc import Sequence

import pytest
from tests.collectors.workload.workload_pages import Work, metric_family, sglang, tgi, triton, vllm

from flyball_collectors.workload.scraping.meter import Alternatives, Meter, ServerReading, Work as Unit
from flyball_collectors.workload.scraping.page import PageError, Reader
from flyball_collectors.workload.servers import SERVERS
from flyball_contracts.config.workload import Series

FIVE = [0.2, 0.4, 0.4, 0.9, 1.4]
BEFORE = Work([1.0] * 10, failed=1, tokens_in=1000, tokens_out=500, active=2, queued=1)
AFTER = Work([*BEFORE.latencies_s, *FIVE], failed=2, tokens_in=1600, tokens_out=900, active=4, queued=3)
TOKENS = Unit(unit="tokens", output_weight=2.0)


def reported(
    server: str,
    pages: Sequence[str],
    *,
    unit: Unit | None = None,
    match: dict[str, str] | None = None,
    step_s: float = 4.0,
) -> ServerReading:
    """What the last of the pages says, each read `step_s` after the one before."""
    series = Alternatives(SERVERS[server].series, "test")  # type: ignore[index]  # pyright: ignore[reportArgumentType]
    meter = Meter(series, unit or Unit(), match or {})
    reader = Reader(series.names)
    last = ServerReading()
    for place, page in enumerate(pages):
        last = meter.take(reader.read(page), 100.0 + place * step_s, 15.0)
    return last


def test_vllm() -> None:
    one = reported("vllm", [vllm(BEFORE), vllm(AFTER)])
    # 5 ended well and 1 with an error, and 4 more are inside than before
    assert one.request_rate == one.work_rate == (6 + 4) / 4
    assert (one.active, one.queued, one.failed) == (4, 3, 1)
    assert (one.tokens_in_rate, one.tokens_out_rate) == (150, 100)
    assert one.latency_mean_s == pytest.approx(sum(FIVE) / 5)
    assert one.latency_p99_s == pytest.approx(1.0 + 0.5 * (0.99 * 5 - 4))
    assert math.isnan(one.ready)


def test_vllm_of_two_engines_is_their_sum() -> None:
    pages = [vllm(work) + vllm(work, engine="1") for work in (BEFORE, AFTER)]
    one, two = reported("vllm", [vllm(BEFORE), vllm(AFTER)]), reported("vllm", pages)
    assert two.request_rate == 2 * one.request_rate
    assert (two.active, two.queued, two.failed) == (8, 6, 2)
    assert two.latency_p99_s == pytest.approx(one.latency_p99_s)
    assert reported("vllm", pages, match={"engine": "1"}) == pytest.approx(one, nan_ok=True)


def test_the_first_vllm_engine_does_not_report_errors() -> None:
    one = reported("vllm", [vllm(BEFORE, v0=True), vllm(AFTER, v0=True)])
    assert one.request_rate == (5 + 4) / 4
    assert one.queued == 4  # with the one that is swapped
    assert math.isnan(one.failed)


def test_work_in_tokens_is_what_was_done_and_what_queued_up() -> None:
    done = (600 + 2 * 400) / 4
    per_request = (1600 + 2 * 900) / 17
    assert reported("vllm", [vllm(BEFORE), vllm(AFTER)], unit=TOKENS).work_rate == pytest.approx(
        done + 2 * per_request / 4
    )
    idle = AFTER._replace(queued=BEFORE.queued)
    assert reported("vllm", [vllm(BEFORE), vllm(idle)], unit=TOKENS).work_rate == done


@pytest.mark.parametrize(("ranks", "priorities"), [(1, False), (2, False), (2, True)])
def test_sglang(ranks: int, priorities: bool) -> None:
    one = reported("sglang", [sglang(work, ranks=ranks, priorities=priorities) for work in (BEFORE, AFTER)])
    assert (one.active, one.queued) == (4, 3)
    assert one.request_rate == (5 + 4) / 4
    assert (one.tokens_in_rate, one.tokens_out_rate) == (150, 100)
    assert one.latency_mean_s == pytest.approx(sum(FIVE) / 5)
    assert 1.0 < one.latency_p99_s <= 2.0


def test_sglang_before_it_counted_requests() -> None:
    pages = ["\n".join(x for x in sglang(w).splitlines() if "num_requests" not in x) for w in (BEFORE, AFTER)]
    assert reported("sglang", pages).request_rate == (5 + 4) / 4


def test_a_sleeping_vllm_is_not_ready() -> None:
    def page(awake: int) -> str:
        states = {'engine="0",sleep_state="awake"': awake, 'engine="0",sleep_state="discard_all"': 1 - awake}
        return vllm(BEFORE) + metric_family("vllm:engine_sleep_state", "gauge", states)

    assert (reported("vllm", [page(1)]).ready, reported("vllm", [page(0)]).ready) == (1, 0)


def test_tgi() -> None:
    one = reported("tgi", [tgi(BEFORE, came_in=14), tgi(AFTER, came_in=30)])
    assert one.request_rate == 16 / 4
    assert (one.active, one.queued, one.failed) == (4, 3, 1)
    assert (one.tokens_in_rate, one.tokens_out_rate) == (150, 100)
    assert one.latency_mean_s == pytest.approx(sum(FIVE) / 5)
    assert 1.0 < one.latency_p99_s < 2.0


def test_tgi_that_nobody_has_used_yet_counts_from_zero() -> None:
    empty = reported("tgi", ["", tgi(Work(), came_in=0)])
    assert math.isnan(empty.request_rate)
    assert empty.queued == 0
    assert reported("tgi", [tgi(Work(), came_in=0), tgi(Work(), came_in=8)]).request_rate == 2
    assert reported("tgi", [tgi(Work(), came_in=0), tgi(Work(failed=3), came_in=8)]).failed == 3


def test_triton() -> None:
    one = reported("triton", [triton(BEFORE), triton(AFTER)])
    assert one.request_rate == (6 + 2) / 4  # it does not know what is in service
    assert (one.queued, one.failed) == (3, 1)
    assert one.latency_mean_s == pytest.approx(sum(FIVE) / 5)
    assert math.isnan(one.latency_p99_s)
    assert math.isnan(one.active)
    assert math.isnan(one.tokens_in_rate)


def test_triton_with_more_switched_on() -> None:
    pages = [triton(work, ensemble=True, summaries=True, tensorrt_llm=True) for work in (BEFORE, AFTER)]
    one = reported("triton", pages, match={"model": "chat"})
    assert (one.active, one.queued, one.failed) == (4, 3, 1)
    assert one.request_rate == (6 + 4) / 4
    assert (one.tokens_in_rate, one.tokens_out_rate) == (150, 100)
    assert one.latency_mean_s == pytest.approx(sum(FIVE) / 5)
    assert one.latency_p99_s == pytest.approx(1.4)
    assert reported("triton", pages).failed == 3


def test_a_server_that_was_started_anew_reports_nothing_for_one_page() -> None:
    after = Work([0.3], tokens_in=10, tokens_out=5)
    again = reported("vllm", [vllm(BEFORE), vllm(after)])
    assert math.isnan(again.request_rate)
    assert math.isnan(again.tokens_in_rate)
    assert math.isnan(again.latency_p99_s)
    assert (again.active, again.queued) == (0, 0)
    later = reported("vllm", [vllm(BEFORE), vllm(after), vllm(after._replace(latencies_s=[0.3, 0.6], tokens_in=30))])
    assert (later.request_rate, later.tokens_in_rate) == (0.25, 5)
    assert later.latency_mean_s == pytest.approx(0.6)


@pytest.mark.parametrize("blank", ["", "# HELP vllm:num_requests_running Running\n"])
def test_counters_continue_behind_a_page_without_series(blank: str) -> None:
    pages = [vllm(BEFORE), blank, vllm(AFTER)]
    assert all(math.isnan(value) for value in reported("vllm", pages[:2]))
    behind = reported("vllm", pages)
    assert (behind.request_rate, behind.failed) == (10 / 8, 1)  # over the time since the page before
    assert behind.latency_mean_s == pytest.approx(sum(FIVE) / 5)
    again = reported("vllm", [vllm(AFTER), blank, vllm(Work([0.3] * 3, active=4, queued=3))])
    assert again.request_rate == 3 / 4  # since the page without


def test_values_that_cannot_be_are_left_out() -> None:
    found = reported("vllm", [vllm(BEFORE), vllm(AFTER._replace(queued=-5)) + "vllm:num_requests_running 1e999\n"])
    assert math.isnan(found.queued)
    assert found.active == 4


def test_rates_are_over_the_time_that_passed_and_old_ones_report_nothing() -> None:
    assert reported("vllm", [vllm(BEFORE), vllm(AFTER)], step_s=8.0).request_rate == 10 / 8
    late = reported("vllm", [vllm(BEFORE), vllm(AFTER)], step_s=20.0)
    assert math.isnan(late.request_rate)
    assert math.isnan(late.work_rate)
    assert late.failed == 1  # an increase is true however long it took


def test_without_requests_there_is_no_latency() -> None:
    one = reported("vllm", [vllm(BEFORE), vllm(BEFORE)])
    assert one.request_rate == 0
    assert one.failed == 0
    assert math.isnan(one.latency_mean_s)
    assert math.isnan(one.latency_p99_s)


def test_a_generic_server_has_the_series_that_it_is_reported_to_have() -> None:
    series = Series(
        arrived=("no_such_total", "http_requests_total"),
        failed=('http_responses_total{code="500"} + http_responses_total{code="503"}',),
        latency=("http_ms",),
        ready=("up_and_ready",),
    )
    meter = Meter(Alternatives(series, "test"), Unit(), {})
    reader = Reader(Alternatives(series, "test").names)

    def page(n: int) -> str:
        return (
            f'http_requests_total {n}\nhttp_responses_total{{code="500"}} {n}\nhttp_responses_total{{code="200"}} {n}\n'
            f'http_ms_bucket{{le="+Inf"}} {n}\nhttp_ms_bucket{{le="100"}} {n}\n'
            f"http_ms_sum {50 * n}\nhttp_ms_count {n}\nup_and_ready 0\n"
        )

    meter.take(reader.read(page(1)), 0.0, 15.0)
    one = meter.take(reader.read(page(21)), 10.0, 15.0)
    assert (one.request_rate, one.failed, one.ready) == (2, 20, 0)
    assert one.latency_mean_s == pytest.approx(0.05)
    assert one.latency_p99_s == pytest.approx(0.099)


GAPS = [0.02, 0.04, 0.04, 0.1]
THEN, NOW = BEFORE._replace(gaps_s=[0.5] * 7), AFTER._replace(gaps_s=[*[0.5] * 7, *GAPS], cache=0.6)


@pytest.mark.parametrize(
    ("server", "pages", "first_token_s", "cache"),
    [
        ("vllm", [vllm(THEN), vllm(NOW)], sum(FIVE) / 20, 0.6),
        ("vllm", [vllm(THEN, v0=True), vllm(NOW, v0=True)], sum(FIVE) / 20, 0.6),
        ("sglang", [sglang(THEN), sglang(NOW)], sum(FIVE) / 20, 0.6),
        ("sglang", [sglang(w, ranks=2, priorities=True, old=True) for w in (THEN, NOW)], sum(FIVE) / 20, 0.6),
        ("tgi", [tgi(THEN, came_in=14), tgi(NOW, came_in=30)], math.nan, math.nan),
    ],
    ids=["vllm", "vllm before 0.10", "sglang", "sglang by ranks, old names", "tgi"],
)
def test_answers_and_cache(server: str, pages: list[str], first_token_s: float, cache: float) -> None:
    """Only of the tokens between the two pages, whatever the version calls them."""
    one = reported(server, pages)
    assert one.output_token_mean_s == pytest.approx(sum(GAPS) / 4)
    assert one.output_token_p99_s == pytest.approx(0.075 + 0.025 * 0.96)
    assert one.first_token_mean_s == pytest.approx(first_token_s, nan_ok=True)
    assert one.kv_cache == pytest.approx(cache, nan_ok=True)


def test_answers_of_two_engines_and_of_triton() -> None:
    pages = [vllm(work) + vllm(work._replace(cache=0.2), engine="1") for work in (THEN, NOW)]
    assert reported("vllm", pages).kv_cache == pytest.approx(0.4)  # the mean, as they share the requests
    assert reported("vllm", pages).output_token_mean_s == pytest.approx(sum(GAPS) / 4)
    with_it = reported("triton", [triton(work, tensorrt_llm=True) for work in (THEN, NOW)])
    assert with_it.first_token_mean_s == pytest.approx(sum(FIVE) / 20)  # reported in milliseconds
    assert with_it.first_token_p99_s == pytest.approx(0.1 + 0.4 * (0.99 * 5 - 3) / 2)
    assert with_it.kv_cache == 0.6
    without = reported("triton", [triton(work) for work in (THEN, NOW)])
    assert math.isnan(without.first_token_mean_s)
    assert math.isnan(without.kv_cache)


def test_a_bucket_without_a_bound_is_refused() -> None:
    page = 'tgi_request_duration_bucket{le="x"} 1\ntgi_request_duration_count 1\n'
    with pytest.raises(PageError, match="le='x', which is no number"):
        reported("tgi", [page])
