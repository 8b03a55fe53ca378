"""Each provider's answers become signals, right to the unit; bad ones become one clear error."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from tests.collectors.feeds.feed_server import (
    NOW_NS,
    Answer,
    Provider,
    S,
    as_json,
    maps,
    maps_latest,
    moer,
    provider,
    uk,
)

from flyball_collectors.feeds import Feed, FeedError, open_feeds
from flyball_collectors.feeds.client import LONGEST_WAIT_S, Client
from flyball_collectors.feeds.grid.electricity_maps import ElectricityMaps
from flyball_collectors.feeds.grid.uk_carbon import UkCarbon
from flyball_collectors.feeds.grid.watttime import WattTime
from flyball_collectors.feeds.parameters import ElectricityMapsParameters, UkCarbonParameters, WattTimeParameters
from flyball_collectors.retry_after import retry_after_s
from flyball_contracts.codec import decode_message, record_message
from flyball_contracts.config import AnyFeed
from flyball_contracts.records import Signal

TOKEN = "tok-8d1f2"
ENVIRON = {"ELECTRICITYMAPS_TOKEN": TOKEN, "WATTTIME_USER": "ada", "WATTTIME_PASSWORD": "pass-77c1"}
BEARER = "bearer-3e9a"
LOGIN = as_json({"token": BEARER})
SECRETS = (*ENVIRON.values(), BEARER, "YWRhOnBhc3MtNzdjMQ==")


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with provider() as found:
        found.respond(LOGIN, path="/login")
        yield found


def feed_of(kind: str, url: str, timeout_s: float = 10.0, **more: Any) -> Feed:
    settings: AnyFeed
    if kind == "uk":
        settings = UkCarbonParameters(base_url=url)
    elif kind == "maps":
        settings = ElectricityMapsParameters(zone="DE", base_url=url, **more)
    else:
        settings = WattTimeParameters(zone="us-west", region="CAISO_NORTH", base_url=url)
    (source,) = open_feeds((settings,), ENVIRON, timeout_s)
    return source.feed


def test_uk_carbon(there: Provider) -> None:
    there.respond(as_json(uk([200.0, 190, None, 150, 140, 130])))
    feed = feed_of("uk", there.url)
    (signal,) = feed.fetch(NOW_NS + 60 * S)
    assert there.requests[0].path == "/intensity/2026-03-01T12:00Z/fw48h"
    assert signal == Signal(
        zone="GB",
        kind="carbon_intensity",
        published_ns=NOW_NS + 60 * S,
        start_ns=NOW_NS + 3 * 1800 * S,
        step_s=1800.0,
        p50=(150.0, 140.0, 130.0),
        average=True,
        lifecycle=False,
        source="uk_carbon",
    )
    assert feed.left_out == 3


def test_uk_carbon_is_issued_when_it_first_reports_itmething_new(there: Provider) -> None:
    feed = feed_of("uk", there.url)
    there.respond(as_json(uk([200.0, 190.0])))
    issued = [feed.fetch(NOW_NS + t * S)[0].published_ns for t in (0, 300)]
    there.respond(as_json(uk([200.0, 191.0])))
    issued += [feed.fetch(NOW_NS + t * S)[0].published_ns for t in (600, 900)]
    there.respond(as_json(uk([191.0, 180.0], start_ns=NOW_NS + 1800 * S)))
    issued += [feed.fetch(NOW_NS + 1800 * S)[0].published_ns]
    assert [t - NOW_NS for t in issued] == [0, 0, 600 * S, 600 * S, 1800 * S]


def test_electricity_maps_forecast(there: Provider) -> None:
    there.respond(as_json(maps([301, 280, 250.5])))
    (signal,) = feed_of("maps", there.url, horizon_hours=24).fetch(NOW_NS)
    assert there.requests[0].query == {"zone": "DE", "horizonHours": "24"}
    assert there.requests[0].headers["auth-token"] == TOKEN
    assert signal == Signal(
        zone="DE",
        kind="carbon_intensity",
        published_ns=NOW_NS - 600 * S,
        start_ns=NOW_NS,
        step_s=3600.0,
        p50=(301.0, 280.0, 250.5),
        source="electricity_maps",
    )


def test_electricity_maps_latest(there: Provider) -> None:
    there.respond(as_json(maps_latest(312)))
    (signal,) = feed_of("maps", there.url, endpoint="latest").fetch(NOW_NS + 60 * S)
    assert there.requests[0].path == "/v3/carbon-intensity/latest"
    assert (signal.p50, signal.step_s, signal.forecast, signal.estimated) == ((312.0,), 3600.0, False, True)
    assert signal.published_ns == NOW_NS - 120 * S


def test_an_unchanged_answer_costs_no_transfer(there: Provider) -> None:
    there.respond(as_json(maps([300, 280]), headers={"ETag": '"v1"'}))
    feed = feed_of("maps", there.url)
    first, second = feed.fetch(NOW_NS), feed.fetch(NOW_NS + S)
    assert first == second
    assert "If-None-Match" not in there.requests[0].headers
    assert there.requests[1].headers["If-None-Match"] == '"v1"'


def test_watttime_is_marginal_and_in_grams(there: Provider) -> None:
    there.respond(as_json(moer([1000.0, 900.0, 0.0])))
    feed = feed_of("watt", there.url)
    (signal,) = feed.fetch(NOW_NS)
    assert there.requests[0].headers["Authorization"] == "Basic YWRhOnBhc3MtNzdjMQ=="
    assert there.requests[1].headers["Authorization"] == f"Bearer {BEARER}"
    assert there.requests[1].query == {"region": "CAISO_NORTH", "signal_type": "co2_moer", "horizon_hours": "24"}
    assert signal.p50 == pytest.approx((453.59237, 408.233133, 0.0))
    assert (signal.zone, signal.average, signal.lifecycle, signal.step_s) == ("us-west", False, False, 300.0)
    assert signal.published_ns == NOW_NS - 60 * S
    feed.fetch(NOW_NS)
    assert [request.path for request in there.requests] == ["/login", "/v3/forecast", "/v3/forecast"]


def test_watttime_logs_in_again_when_the_token_ran_out(there: Provider) -> None:
    there.respond(as_json(moer([1000.0])), Answer(b"", 401), as_json(moer([500.0])))
    feed = feed_of("watt", there.url)
    feed.fetch(NOW_NS)
    assert feed.fetch(NOW_NS)[0].p50 == pytest.approx((226.796185,))
    assert [request.path for request in there.requests].count("/login") == 2
    there.respond(Answer(b"", 403))
    with pytest.raises(FeedError, match="status 403"):
        feed.fetch(NOW_NS)
    assert [request.path for request in there.requests].count("/login") == 3  # once, not for ever
    with pytest.raises(FeedError, match="status 403"):
        feed_of("watt", there.url).fetch(NOW_NS)
    assert [request.path for request in there.requests].count("/login") == 4  # a fresh token is not the cause


HTML = Answer(b"<!doctype html><p>maintenance</p>", headers={"Content-Type": "text/html"})
BAD = {
    "html": ("maps", HTML, "an HTML page, not JSON; see whether a proxy wants a log-in"),
    "server": ("maps", Answer(b"", 500), "status 500, the provider's fault"),
    "many": (
        "maps",
        Answer(b"", 429, {"Retry-After": "90"}),
        "status 429, too many requests; configure fewer feeds",
    ),
    "token": ("maps", Answer(b"", 401), "status 401, refused; check the token"),
    "zone": ("maps", Answer(b"", 404), "status 404; check zone, region and key"),
    "moved": (
        "maps",
        Answer(b"", 302, {"Location": "http://elsewhere/x?y=1"}),
        "a redirect to 'http://elsewhere/x'; see whether a proxy",
    ),
    "torn": ("maps", as_json(maps([1, 2]), cut_at=40), "the answer broke off"),
    "half": ("maps", Answer(b'{"zone": "DE", "forec'), "not whole JSON"),
    "utf8": ("maps", Answer(b'{"zone": "\xff\xfe"}'), "not whole JSON|invalid|Invalid"),
    "null": ("maps", as_json(maps([1]) | {"forecast": None}), r"\$\.forecast: expected `array`, got `null`"),
    "empty": ("maps", as_json(maps([])), "none of the values is of now or later"),
    "type": (
        "maps",
        as_json(maps([cast("float", "a")])),
        r"\$\.forecast\[0\]\.carbonIntensity: expected `float \| null`, got `str`",
    ),
    "list": ("maps", as_json([1]), r"\$: expected `object`, got `array`"),
    "field": ("maps", as_json({"zone": "DE", "forecast": []}), "missing required field `updatedAt`"),
    "other": ("maps", as_json(maps([1]) | {"zone": "FR"}), r"\$\.zone: the answer is of 'FR'; check region"),
    "time": ("maps", as_json(maps([1]) | {"updatedAt": "soon"}), r"\$\.updatedAt: 'soon' is no ISO 8601 time"),
    "local": ("maps", as_json(maps([1]) | {"updatedAt": "2026-03-01T12:00"}), "has no offset from UTC; append Z"),
    "units": ("watt", as_json(moer([1], units="kg")), r"\$\.meta\.units: expected 'lbs_co2_per_mwh', got 'kg'"),
    "step": ("watt", as_json(moer([1], data_point_period_seconds=0)), "data_point_period_seconds: 0 is not in"),
    "uk": ("uk", as_json({"error": {"code": "500"}}), "missing required field `data`"),
    "nulls": ("uk", as_json(uk([None, None])), "none of the values is of now or later"),
    "deep": ("maps", Answer(b"[" * 100_000), "not whole JSON|expected"),
}


@pytest.mark.parametrize("scenario", BAD)
def test_a_bad_answer_is_one_clear_error(there: Provider, scenario: str) -> None:
    kind, answer, reported = BAD[scenario]
    there.respond(answer)
    feed = feed_of(kind, there.url)
    with pytest.raises(FeedError, match=reported) as caught:
        feed.fetch(NOW_NS)
    assert str(caught.value).startswith(f"{there.url}/")
    assert not any(secret in f"{caught.value!r} {caught.value}" for secret in SECRETS)
    assert caught.value.retry_after_s == (90.0 if scenario == "many" else 0.0)
    there.respond(as_json({"maps": maps([1.0]), "watt": moer([1.0]), "uk": uk([1.0])}[kind]))
    assert len(feed.fetch(NOW_NS)) == 1  # an error leaves nothing behind


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


class Canned(Client):
    """Gives one answer without a network."""

    def __init__(self, body: bytes) -> None:
        super().__init__("http://there", 1.0)
        self.body = body

    def get(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str], now_ns: int, *, keep: bool = True
    ) -> bytes:
        del query, headers, now_ns, keep
        return LOGIN.body if path == "/login" else self.body


def replaced(whole: Any, path: list[int], odd: Any) -> Any:
    """A copy of JSON with one part replaced: the one to which the choices of ``path`` lead."""
    if not path or not isinstance(whole, dict | list) or not whole:
        return odd
    copy: Any = cast("Any", whole).copy()
    keys: list[Any] = list(copy) if isinstance(whole, dict) else list(range(len(copy)))
    key = keys[path[0] % len(keys)]
    copy[key] = replaced(copy[key], path[1:], odd)
    return copy


@settings(max_examples=300)
@given(st.sampled_from(["uk", "maps", "latest", "watt"]), st.lists(st.integers(0, 9), max_size=5), JSON)
def test_whatever_stands_in_an_answer_is_a_sound_curve_or_a_feed_error(kind: str, path: list[int], odd: Any) -> None:
    """Any one part of a good answer is replaced by any JSON."""
    whole: Any = {"uk": uk([1, 2]), "maps": maps([1, 2]), "latest": maps_latest(1), "watt": moer([1, 2])}[kind]
    body = msgspec.json.encode(replaced(whole, path, odd))
    canned = Canned(body)
    feeds: dict[str, Feed] = {
        "uk": UkCarbon(UkCarbonParameters(), canned),
        "maps": ElectricityMaps(ElectricityMapsParameters(zone="DE"), canned, TOKEN),
        "latest": ElectricityMaps(ElectricityMapsParameters(zone="DE", endpoint="latest"), canned, TOKEN),
        "watt": WattTime(WattTimeParameters(zone="x", region="CAISO_NORTH"), canned, "a", "b"),
    }
    try:
        signals = feeds[kind].fetch(NOW_NS)
    except FeedError:
        return
    for signal in signals:
        message = record_message(signal, "/feed")
        assert decode_message(message.topic, message.value, message.headers) == signal
        assert signal.end_ns > NOW_NS
        assert all(0 <= value <= 5000 for value in signal.p50)


def test_a_slow_answer_is_given_up(there: Provider) -> None:
    release = threading.Event()
    there.respond(as_json(maps([1.0]), pause=lambda: release.wait(0.05)))
    try:
        with pytest.raises(FeedError, match=r"not whole after 0.2 s; it is requested again"):
            feed_of("maps", there.url, timeout_s=0.2).fetch(NOW_NS)
        there.respond(as_json(maps([1.0]), pause=lambda: release.wait(5)))
        with pytest.raises(FeedError, match=r"no answer within 0.2 s; it is requested again"):
            feed_of("maps", there.url, timeout_s=0.2).fetch(NOW_NS)
    finally:
        release.set()


def test_nobody_there() -> None:
    with pytest.raises(FeedError, match=r"^http://127.0.0.1:1/v3/carbon-intensity/forecast: no connection; check"):
        feed_of("maps", "http://127.0.0.1:1").fetch(NOW_NS)


def test_an_endless_answer_is_given_up(there: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flyball_collectors.feeds.client.MOST_BYTES", 1000)
    there.respond(Answer(b" " * 5000))
    with pytest.raises(FeedError, match="longer than 1000 bytes"):
        feed_of("maps", there.url).fetch(NOW_NS)


def test_the_proxy_of_the_environment_is_used(there: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", there.url.replace("://", "://eve:pw-5@"))
    there.respond(as_json(maps([1.0])))
    feed_of("maps", "http://grid.example").fetch(NOW_NS)
    assert there.requests[0].headers["Host"] == "grid.example"
    assert there.requests[0].headers["proxy-authorization"] == "Basic ZXZlOnB3LTU="
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    feed_of("maps", there.url).fetch(NOW_NS)
    assert "proxy-authorization" not in there.requests[1].headers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("120", 120.0),
        ("Sun, 01 Mar 2026 12:01:30 GMT", 90.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("999999999", 86_400.0),
        ("9" * 5000, None),
        ("soon", None),
        ("-5", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after(text: str | None, expected: float | None) -> None:
    assert retry_after_s(text, NOW_NS, LONGEST_WAIT_S) == expected
