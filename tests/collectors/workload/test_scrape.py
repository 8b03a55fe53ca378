"""Pages over real sockets: what is queried, what is made of bad answers, and that nothing blocks the tick."""

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.collectors.workload.workload_pages import Work, vllm
from tests.collectors.workload.workload_server import PageServer, Reply, certificate, page_server, until

from flyball_collectors.workload.discovery.targets import configured
from flyball_collectors.workload.scraping.fetch import Fetcher
from flyball_collectors.workload.scraping.poller import Limits
from flyball_collectors.workload.scraping.scraper import Scraper
from flyball_collectors.workload.scraping.token import FetchError, token_of
from flyball_contracts.config.workload import Series, TargetSettings
from flyball_contracts.errors import ConfigError

PATIENT = Limits(period_s=0.05, timeout_s=10.0, page_bytes=1 << 20)
METRICS = "/metrics"


def fetcher(url: str, *, timeout_s: float = 10.0, most: int = 1 << 20, token: str = "", ca_file: str = "") -> Fetcher:
    return Fetcher(url, timeout_s, most, lambda: token, ca_file)


def test_the_connection_is_kept_and_opened_anew_when_the_server_has_closed_it() -> None:
    with page_server() as server:
        server.respond("/a", "x")
        one = fetcher(server.url, token="s3cret")
        assert one.get("/a") == one.get("/a") == b"x"
        assert len({request.connection for request in server.requests}) == 1
        assert server.requests[0].headers["Authorization"] == "Bearer s3cret"
        port = int(server.url.rpartition(":")[2])
    with page_server(port=port) as again:
        again.respond("/a", "y")
        assert one.get("/a") == b"y"
        one.close()


def test_unix_socket_and_tls(tmp_path: Path) -> None:
    with page_server(unix=tmp_path / "s.sock") as server:
        server.respond("/m", "by socket")
        one = fetcher(server.url)
        assert one.get("/m") == b"by socket"
        one.close()
    context, ca_file = certificate(tmp_path)
    with page_server(tls=context) as server:
        server.respond("/m", "by tls")
        one = fetcher(server.url, ca_file=str(ca_file))
        assert one.get("/m") == b"by tls"
        one.close()
        with pytest.raises(
            FetchError, match=r"https://127\.0\.0\.1:\d+/m: its certificate is not trusted .*set ca_file"
        ):
            fetcher(server.url).get("/m")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(status=401), "status 401; check token_file"),
        (Reply(status=302, headers={"Location": "http://other/"}), "status 302; a redirect; set url to where it leads"),
        (Reply(status=404), "status 404; check url"),
        (Reply(status=503), "status 503; the server is not well"),
        (Reply("x" * 2000), "longer than 1000 bytes; let the server export less"),
        (Reply("x" * 100, whole=False), "the answer broke off"),
        (Reply("no length\r\n", headers={"Transfer-Encoding": "chunked"}), "the answer broke off"),
        (None, "the answer broke off|RemoteDisconnected"),
    ],
)
def test_a_bad_answer_is_one_error_with_a_remedy(reply: Reply | None, expected: str) -> None:
    with page_server() as server:
        server.replies["/a"] = reply
        one = fetcher(server.url, most=1000)
        with pytest.raises(FetchError, match=expected):
            one.get("/a")
        server.respond("/a", "well again")
        assert one.get("/a") == b"well again"
        one.close()


def test_nobody_there(tmp_path: Path) -> None:
    with page_server() as server:
        url = server.url
    for gone in (url, f"unix://{tmp_path / 'none'}"):
        with pytest.raises(FetchError, match="no server listens there; check url"):
            fetcher(gone).get("/a")


def test_a_server_that_drips_is_broken_off_from_the_tick() -> None:
    with page_server() as server:
        server.replies["/a"] = Reply(drip=True, headers={"Content-Length": "100000"})
        one = fetcher(server.url, timeout_s=0.3)
        done = threading.Event()

        def hurry() -> None:
            while not done.wait(0.02):
                one.hurry()

        helper = threading.Thread(target=hurry)
        helper.start()
        with pytest.raises(FetchError, match=r"no whole answer within 0\.3 s"):
            one.get("/a")
        done.set()
        helper.join()


def test_a_token_is_read_anew_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = token_of(str(file))
    with pytest.raises(FetchError, match="no token can be read there"):
        token()
    file.write_text("one\n")
    assert token() == "one"
    file.write_text("two\nlines")
    with pytest.raises(FetchError, match="characters that no HTTP header may have"):
        token()
    assert token_of("")() == ""


@contextmanager
def scraping(
    page: PageServer, /, *, limits: Limits = PATIENT, clock: Callable[[], float] = time.monotonic, **changes: object
) -> Generator[Scraper]:
    settings = TargetSettings(**{"workload": "chat", "url": page.url, "server": "vllm", **changes})  # type: ignore[arg-type]
    scraper = Scraper(configured(settings, "r0", "agent.workloads.targets[0]"), limits, clock)
    try:
        yield scraper
    finally:
        scraper.close()


def test_the_tick_takes_what_the_last_scrape_reported() -> None:
    with page_server() as server:
        server.respond("/health")
        server.respond(METRICS, vllm(Work(active=3)))
        with scraping(server) as scraper:
            until(lambda: scraper.take().ready == 1)
            assert scraper.take().active == 3
            server.respond(METRICS, vllm(Work([0.4] * 8, failed=2, active=7)))
            until(lambda: scraper.take().active == 7)
            assert scraper.errors == 0
        assert {request.path for request in server.requests} == {"/health", METRICS}


def test_the_health_of_a_server_on_a_unix_socket_is_there_too(tmp_path: Path) -> None:
    with page_server(unix=tmp_path / "s.sock") as server:
        server.respond("/health")
        server.respond(METRICS, vllm(Work(active=3)))
        with scraping(server, url=f"{server.url}:{METRICS}") as scraper:
            until(lambda: scraper.problem is not None)
            assert scraper.problem == ""
            assert (scraper.take().ready, scraper.take().active) == (1, 3)


def test_failures_are_reported_once_whenever_they_are_taken() -> None:
    with page_server() as server:
        server.respond("/health")
        server.respond(METRICS, vllm(Work()))
        with scraping(server) as scraper:
            until(lambda: scraper.take().failed == 0)
            server.respond(METRICS, vllm(Work(failed=2)))
            until(lambda: sum(request.path == METRICS for request in server.requests) > 6)
            server.respond(METRICS, vllm(Work(failed=5, active=1)))
            seen: list[float] = []

            def all_seen() -> bool:
                reported = scraper.take()
                seen.append(reported.failed)
                return reported.active == 1

            until(all_seen)
            assert sum(seen) == 5


def test_away_is_not_ready_and_unknown_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with page_server() as server:
        server.respond("/health")
        server.respond(METRICS, vllm(Work(active=3)))
        with scraping(server) as scraper:
            until(lambda: scraper.take().ready == 1)
            server.respond("/health", status=503)
            until(lambda: scraper.take().ready == 0)
            assert math.isnan(scraper.take().active)
            until(lambda: scraper.errors > 3)
            server.respond("/health")
            until(lambda: scraper.take().ready == 1)
            server.respond(METRICS, "<html>")
            until(lambda: scraper.take().ready == 0)
            server.respond(METRICS, vllm(Work(active=2)))
            until(lambda: scraper.take().active == 2)
    lines = [record.getMessage() for record in caplog.records if "workload chat" in record.getMessage()]
    assert len(lines) == 4
    assert f"{server.url}/health: status 503; the server is not well" in lines[0]
    assert "well again after" in lines[1]
    assert f"{server.url}/metrics: none of its series is known; check that url" in lines[2]


def test_what_is_too_old_is_unknown() -> None:
    ahead = [0.0]
    with page_server() as server:
        server.respond("/health")
        server.respond(METRICS, vllm(Work(active=3)))
        limits = Limits(period_s=3600.0, timeout_s=10.0, page_bytes=1 << 20)
        with scraping(server, limits=limits, clock=lambda: ahead[0]) as scraper:
            until(lambda: scraper.take().active == 3)
            ahead[0] += 3 * 3600.0
            assert scraper.take().active == 3
            ahead[0] += 1.0
            assert all(math.isnan(value) for value in scraper.take())


def test_a_slow_server_holds_up_neither_the_tick_nor_the_end() -> None:
    with page_server() as server:
        server.replies["/health"] = Reply(drip=True, headers={"Content-Length": "100000"})
        with scraping(server) as scraper:
            until(lambda: bool(server.requests))
            assert math.isnan(scraper.take().ready)
        assert not scraper.take().ready > 0


def test_health_may_be_elsewhere() -> None:
    with page_server() as server, page_server() as other:
        other.respond("/v2/health/ready")
        server.respond("/m", "")
        with scraping(server, url=f"{server.url}/m", server="triton", health=f"{other.url}/v2/health/ready") as scraper:
            until(lambda: scraper.take().ready == 1)
        assert other.requests
        assert {request.path for request in server.requests} == {"/m"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"server": "generic"}, r"targets\[0\]\.series: missing; name the series of a generic server"),
        ({"series": Series()}, "those of vllm are known; leave it out"),
        ({"server": "generic", "series": Series(active=("a b",))}, r"series\.active: 'a b' is no selector"),
    ],
)
def test_settings_that_cannot_work(changes: dict[str, object], expected: str) -> None:
    settings = TargetSettings(**{"workload": "w", "url": "http://h:1", "server": "vllm", **changes})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=expected):
        configured(settings, "r", "agent.workloads.targets[0]")


OTHER = "org/Other-70B"
BOTH = vllm(Work([1.0])) + vllm(Work([2.0]), model=OTHER)


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (
            {},
            r"its series are of 2 models, org/Model-8B, org/Other-70B; name one of them with match: \{model_name: org/",
        ),
        (
            {"model_name": "nope"},
            "no series has model_name='nope'; set match.model_name to one of org/Model-8B, org/Other",
        ),
        (
            {"model": OTHER},
            r"no series has the label 'model' that match names \(labels there: engine, finished_reason, ",
        ),
    ],
    ids=["no match", "no such value", "no such label"],
)
def test_what_is_not_distinguished_is_one_error_and_no_sum(match: dict[str, str], expected: str) -> None:
    with page_server() as server:
        server.respond("/health")
        server.respond(METRICS, BOTH)
        with scraping(server, match=match) as one:
            until(lambda: bool(one.problem))
            assert re.search(expected, one.problem or "")
            reading = one.take()
            assert reading.ready == 0
            assert math.isnan(reading.active)


def test_a_model_among_several_is_read_alone() -> None:
    with page_server() as server:
        server.respond("/health")
        server.respond(METRICS, vllm(Work([1.0], active=5)) + vllm(Work([2.0], active=2), model=OTHER))
        with scraping(server, match={"model_name": OTHER}) as one:
            until(lambda: one.take().active == 2)
            assert one.problem == ""


def test_a_series_that_the_page_lacks_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    def page(count: int) -> str:
        return "\n".join(x for x in vllm(Work([1.0] * count, cache=0.5)).splitlines() if "first_token" not in x)

    request: list[str] = []

    def more() -> str:
        request.append("")
        return page(len(request))

    with page_server() as server:
        server.respond("/health")
        server.replies[METRICS] = more
        with scraping(server) as one:
            until(lambda: len(request) >= 6)
            assert one.problem == ""
            assert one.take().kv_cache == 0.5
    reported = [r.getMessage() for r in caplog.records if "stays unknown" in r.getMessage()]
    assert len(reported) == 1
    assert "first_token stays unknown" in reported[0]
    assert "has no vllm:time_to_first_token_seconds; switch" in reported[0]
