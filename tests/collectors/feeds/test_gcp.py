"""The spot price of Google Cloud's machines, from the prices of their parts."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from tests.collectors.feeds.feed_server import NOW_NS, Answer, Provider, S, as_json, gcp_sku, gcp_skus, provider

from flyball_collectors.feeds import Feed, FeedError, open_feeds
from flyball_collectors.feeds.parameters import GcpSpotPriceParameters
from flyball_collectors.feeds.spot import gcp_catalogue
from flyball_collectors.feeds.spot.gcp_catalogue import Catalogue
from flyball_collectors.feeds.spot.gcp_spot_price import MACHINES
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import Signal

ENVIRON = {"GCP_API_KEY": "AIzaExample-9k"}
MACHINE: dict[str, Any] = {"zone": "us-central1", "region": "us-central1", "instance_type": "a3-highgpu-8g"}
PRICE = 208 * 0.01 + 1872 * 0.001 + 8 * 2.5 + 6000 * 0.073 / 730


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with provider() as found:
        yield found


def feeds_of(there: Provider, *more: dict[str, Any]) -> list[Feed]:
    several = tuple(GcpSpotPriceParameters(base_url=there.url, **MACHINE | one) for one in more)
    return [source.feed for source in open_feeds(several, ENVIRON)]


def price_of(there: Provider, **more: Any) -> float:
    return feeds_of(there, more)[0].fetch(NOW_NS)[0].p50[0]


def test_the_price_of_a_machine_is_that_of_its_parts_over_pages(there: Provider) -> None:
    other = gcp_sku("Nvidia L4 GPU attached to Spot Preemptible VMs running in Americas", 0.2)
    there.respond(as_json({"skus": [other], "nextPageToken": "t1"}), as_json({"nextPageToken": "t2"}), gcp_skus())
    (feed,) = feeds_of(there, {})
    (signal,) = feed.fetch(NOW_NS)
    assert signal == Signal(
        zone="us-central1",
        kind="spot_price",
        published_ns=NOW_NS,
        start_ns=NOW_NS,
        step_s=3600.0,
        p50=(pytest.approx(PRICE),) * 24,  # type: ignore[arg-type]
        forecast=False,
        source="gcp_spot_price",
    )
    assert [request.query.get("pageToken") for request in there.requests] == [None, "t1", "t2"]
    assert {request.path for request in there.requests} == {"/v1/services/6F81-5844-456A/skus"}
    assert {request.query["currencyCode"] for request in there.requests} == {"USD"}
    assert {dict(request.headers)["X-Goog-Api-Key"] for request in there.requests} == {"AIzaExample-9k"}
    assert not any("key" in request.query for request in there.requests)


def test_rows_that_do_not_count(there: Provider) -> None:
    gpu = "Nvidia H100 80GB GPU"
    spot = f"{gpu} attached to Spot Preemptible VMs running in Americas"
    on_demand, dws, later, euros, odd_unit, free, older = (gcp_sku(spot, 0.01) for _ in range(7))
    on_demand |= {"description": f"{gpu} running in Americas", "category": {"usageType": "OnDemand"}}
    dws |= {"description": f"{gpu} attached to DWS Defined Duration VMs", "category": {"usageType": "OnDemand"}}
    later["pricingInfo"][0]["effectiveTime"] = "2026-04-01T00:00:00Z"
    euros["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]["currencyCode"] = "EUR"
    odd_unit["pricingInfo"][0]["pricingExpression"]["usageUnit"] = "mo"
    free["pricingInfo"] = []
    older["pricingInfo"][0]["effectiveTime"] = "2025-01-01T00:00:00Z"
    there.respond(gcp_skus(on_demand, dws, later, euros, odd_unit, free, older))
    assert price_of(there) == pytest.approx(PRICE)
    dearer = gcp_sku(spot, 99.0)  # as new, so that the lower counts
    first_free = gcp_sku(spot, 2.0)
    rates = first_free["pricingInfo"][0]["pricingExpression"]["tieredRates"]
    rates.insert(0, {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 0}})
    there.respond(gcp_skus(dearer, first_free))
    assert price_of(there) == pytest.approx(PRICE - 8 * 0.5)


def test_parts_by_other_names_and_by_hand(there: Provider) -> None:
    b200 = gcp_sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", 4.95)
    b200["category"]["usageType"] = "OnDemand"  # as the catalogue has it
    there.respond(gcp_skus(b200))
    assert price_of(there, instance_type="a4-highgpu-8g") == pytest.approx(8 * 4.95)
    parts = {"No Such GPU | Nvidia H100 80GB GPU": 1, "A3 Instance Core": 26}
    assert price_of(there, instance_type="a3-new-1g", parts=parts) == pytest.approx(2.5 + 0.26)
    assert all(amount > 0 for machine in MACHINES.values() for amount in machine.values())


def test_feeds_of_one_key_share_the_catalogue_for_half_a_period(there: Provider) -> None:
    there.respond(gcp_skus())
    parts = {"Nvidia H100 80GB GPU": 8.0}
    west, east = feeds_of(there, {}, {"zone": "us-east4", "region": "us-east4", "parts": parts})
    assert west.name == "gcp_spot_price/us-central1"
    west.fetch(NOW_NS)
    assert east.fetch(NOW_NS + S)[0].p50[0] == 20.0
    assert len(there.requests) == 1
    west.fetch(NOW_NS + 10_801 * S)
    assert len(there.requests) == 2


def test_an_unknown_machine_and_an_absent_key(there: Provider) -> None:
    with pytest.raises(ConfigError, match=r"feeds\[0\].instance_type: the parts of 'x1' are not known; name"):
        feeds_of(there, {"instance_type": "x1"})
    with pytest.raises(ConfigError, match=r"feeds\[0\]: the environment variable GCP_API_KEY"):
        open_feeds((GcpSpotPriceParameters(**MACHINE),), {})


BAD: dict[str, tuple[Answer, str]] = {
    "no rows": (as_json({}), "no spot price of 'A3 Instance Core'; check region and instance_type"),
    "odd row": (as_json({"skus": [{}]}), "missing required field `description`"),
    "odd price": (gcp_skus(gcp_sku("Spot Preemptible X", -1.0)), ""),
    "odd units": (Answer(gcp_skus().body.replace(b'"units":"2"', b'"units":"two"')), "units: 'two' is no number"),
    "odd date": (Answer(gcp_skus().body.replace(b"2026-02-20T", b"soon")), "effectiveTime: 'soon.* is no ISO 8601"),
    "wrong key": (Answer(b'{"error":{"code":400,"message":"API key not valid"}}', 400), "status 400; check .*key"),
    "refused": (Answer(b"{}", 403), "status 403, refused"),
    "endless": (as_json({"nextPageToken": "again"}), "more than 3 pages"),
}


@pytest.mark.parametrize("scenario", BAD)
def test_a_bad_answer_is_one_clear_error(there: Provider, scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gcp_catalogue, "MOST_PAGES", 3)
    answer, reported = BAD[scenario]
    there.respond(answer)
    if not reported:
        assert price_of(there) == pytest.approx(PRICE)  # of no part of this machine
        return
    with pytest.raises(FeedError, match=reported) as caught:
        price_of(there)
    assert str(caught.value).startswith(there.url)
    assert ENVIRON["GCP_API_KEY"] not in repr(caught.value)


@settings(max_examples=150)
@given(st.integers(0, 3000), st.integers(0, 40), st.binary(max_size=12))
def test_whatever_stands_in_an_answer_is_prices_or_a_feed_error(at: int, cut: int, odd: bytes) -> None:
    body = gcp_skus().body
    answer = body[:at] + odd + body[at + cut :]

    class Canned:
        def where(self, path: str) -> str:
            return f"http://there{path}"

        def get(self, *_: object, **__: object) -> bytes:
            return answer

    try:
        prices = Catalogue(Canned(), "k", 1.0).prices(NOW_NS)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    except FeedError:
        return
    assert all(part.region and price == price for part, price in prices.items() if part.region)


def test_settings_are_checked() -> None:
    for wrong in ({"parts": {"A3 Instance Core": 0}}, {"region": "US East"}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(MACHINE | wrong, GcpSpotPriceParameters)
