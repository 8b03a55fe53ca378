"""Spot prices and risks of the clouds, and the signature that AWS wants."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from tests.collectors.cloud.cloud_server import metadata
from tests.collectors.feeds.feed_server import (
    NOW_NS,
    Answer,
    Provider,
    S,
    as_json,
    provider,
    retail_prices,
    spot_advice,
    spot_prices,
)

from flyball_collectors.feeds import Feed, FeedError, open_feeds
from flyball_collectors.feeds.client import Client
from flyball_collectors.feeds.parameters import (
    AwsSpotAdvisorParameters,
    AwsSpotPriceParameters,
    AzureSpotPriceParameters,
)
from flyball_collectors.feeds.spot.aws_keys import RoleKeys
from flyball_collectors.feeds.spot.aws_signature import AwsKey, Target, signed_headers
from flyball_collectors.feeds.spot.aws_spot_advisor import AwsSpotAdvisor
from flyball_collectors.feeds.spot.aws_spot_price import AwsSpotPrice
from flyball_collectors.feeds.spot.azure_spot_price import AzureSpotPrice
from flyball_contracts.codec import decode_message, record_message
from flyball_contracts.config import AnyFeed
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import Signal

KEY = AwsKey("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
ENVIRON = {"AWS_ACCESS_KEY_ID": KEY.access_key, "AWS_SECRET_ACCESS_KEY": KEY.secret_key}
MACHINE: dict[str, Any] = {"zone": "us-east-2", "region": "us-east-2", "instance_type": "p5.48xlarge"}
SIZE: dict[str, Any] = {"zone": "NL", "region": "westeurope", "instance_type": "Standard_ND96isr_H100_v5"}
DAY = tuple(NOW_NS + hour * 3600 * S for hour in range(24))


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with provider() as found:
        yield found


def feed_of(kind: str, url: str, environ: Mapping[str, str] = ENVIRON, **more: Any) -> Feed:
    feeds: dict[str, Callable[[], AnyFeed]] = {
        "price": lambda: AwsSpotPriceParameters(base_url=url, **MACHINE, **more),
        "advisor": lambda: AwsSpotAdvisorParameters(base_url=url, **MACHINE, **more),
        "azure": lambda: AzureSpotPriceParameters(base_url=url, **SIZE, **more),
    }
    (source,) = open_feeds((feeds[kind](),), environ)
    return source.feed


def test_the_price_of_aws_is_the_lowest_zones(there: Provider) -> None:
    there.respond(spot_prices({"us-east-2a": 23.6712, "us-east-2b": "21.500000", "us-east-2c": 30}))
    feed = feed_of("price", there.url)
    (signal,) = feed.fetch(NOW_NS + 60 * S)
    assert signal == Signal(
        zone="us-east-2",
        kind="spot_price",
        published_ns=NOW_NS + 60 * S,
        start_ns=NOW_NS,
        step_s=3600.0,
        p50=(21.5,) * 24,
        forecast=False,
        source="aws_spot_price",
    )
    assert feed.left_out == 2
    (request,) = there.requests
    assert request.query == {
        "Action": "DescribeSpotPriceHistory",
        "Version": "2016-11-15",
        "InstanceType.1": "p5.48xlarge",
        "ProductDescription.1": "Linux/UNIX",
        "StartTime": "2026-03-01T12:01:00Z",
    }
    expected = signed_headers(
        KEY, Target(request.headers["Host"], "us-east-2", "ec2"), "/", request.query, NOW_NS + 60 * S
    )
    sent = {name.lower(): value for name, value in request.headers.items()}
    assert {name: sent[name] for name in expected} == expected


def test_the_price_of_one_zone_over_empty_pages(there: Provider) -> None:
    there.respond(spot_prices({}, "t1"), spot_prices({}, "t2"), spot_prices({"us-east-2a": 20.0, "us-east-2b": 25.0}))
    (signal,) = feed_of("price", there.url, availability_zone="us-east-2b").fetch(NOW_NS)
    assert signal.p50[0] == 25.0
    assert [request.query.get("NextToken") for request in there.requests] == [None, "t1", "t2"]
    assert {request.query["AvailabilityZone"] for request in there.requests} == {"us-east-2b"}
    there.respond(spot_prices({}, "again"))
    with pytest.raises(FeedError, match="more than 10 pages"):
        feed_of("price", there.url).fetch(NOW_NS)


def test_a_session_token_is_sent_and_signed(there: Provider) -> None:
    there.respond(spot_prices({"us-east-2a": 20.0}))
    feed_of("price", there.url, ENVIRON | {"AWS_SESSION_TOKEN": "tok-5d"}).fetch(NOW_NS)
    headers = {name.lower(): value for name, value in there.requests[0].headers.items()}
    assert headers["x-amz-security-token"] == "tok-5d"
    assert "SignedHeaders=host;x-amz-date;x-amz-security-token," in headers["authorization"]


def test_a_key_is_needed_and_never_shown() -> None:
    for name in ENVIRON:
        (missing,) = ENVIRON.keys() - {name}
        with pytest.raises(ConfigError, match=rf"feeds\[0\]: the environment variable {missing}"):
            feed_of("price", "", {name: ENVIRON[name]})
    assert KEY.secret_key not in repr(KEY)
    source = open_feeds((AwsSpotPriceParameters(**MACHINE),), ENVIRON)[0]
    assert source.feed.name == "aws_spot_price/us-east-2"


def test_the_key_of_the_instances_role(there: Provider) -> None:
    role = "/latest/meta-data/iam/security-credentials/"

    def credentials(name: str, ends: str) -> str:
        return msgspec.json.encode(
            {"Code": "Success", "AccessKeyId": name, "SecretAccessKey": "s", "Token": "t", "Expiration": ends}
        ).decode()

    there.respond(spot_prices({"us-east-2a": 20.0}))
    with metadata() as machine:
        machine.tokens = []
        feed = feed_of("price", there.url, {}, metadata_url=machine.url)
        with pytest.raises(FeedError, match="the instance has no role; set AWS_ACCESS_KEY_ID"):
            feed.fetch(NOW_NS)
        machine.pages = {role: "prices", f"{role}prices": credentials("AKID1", "2026-03-01T18:00:00Z")}
        feed.fetch(NOW_NS)
        machine.pages[f"{role}prices"] = credentials("AKID2", "2026-03-02T00:00:00Z")
        feed.fetch(NOW_NS + 3600 * S)
        feed.fetch(NOW_NS + 6 * 3600 * S - 200 * S)
        machine.pages[f"{role}prices"] = "{}"
        with pytest.raises(FeedError, match="not the JSON that is known"):
            RoleKeys(machine.url).key(NOW_NS)
    with pytest.raises(FeedError, match=r"no answer.*; set AWS_ACCESS_KEY_ID"):
        RoleKeys(machine.url).key(NOW_NS)
    used = [
        {k.lower(): v for k, v in request.headers.items()}["authorization"].split("/")[0] for request in there.requests
    ]
    assert [text[-5:] for text in used] == ["AKID1", "AKID1", "AKID2"]


@pytest.mark.parametrize(("band", "share"), [(0, 0.025), (1, 0.08), (2, 0.135), (3, 0.19), (4, 0.25)])
def test_the_advisors_band_is_a_risk_per_hour(there: Provider, band: int, share: float) -> None:
    there.respond(as_json(spot_advice(band)))
    (signal,) = feed_of("advisor", there.url).fetch(NOW_NS)
    assert there.requests[0].path == "/spot-advisor-data.json"
    assert (signal.kind, signal.zone, signal.estimated, signal.forecast) == ("spot_risk", "us-east-2", True, True)
    assert 1 - (1 - signal.p50[0]) ** 730 == pytest.approx(share)
    assert len(signal.p50) == 24


def test_azures_price_is_the_newest_in_force(there: Provider) -> None:
    first = retail_prices(
        {"retailPrice": 41.0, "effectiveStartDate": "2025-06-01T00:00:00Z"},
        {"retailPrice": 1.0, "productName": "Virtual Machines NDsrH100v5 Series Windows"},
        {"retailPrice": 2.0, "skuName": "Standard_ND96isr_H100_v5 Low Priority"},
        {"retailPrice": 3.0, "skuName": "Standard_ND96isr_H100_v5"},
        {"retailPrice": 4.0, "type": "DevTestConsumption"},
        {"retailPrice": 5.0, "currencyCode": "EUR"},
        {"retailPrice": 6.0, "effectiveStartDate": "2026-03-02T00:00:00Z"},
        link="https://elsewhere.example/api/retail/prices?$filter=x%20eq%20'y'&$skip=100",
    )
    there.respond(as_json(first), as_json(retail_prices({"retailPrice": 36.9})))
    (signal,) = feed_of("azure", there.url).fetch(NOW_NS)
    assert (signal.zone, signal.kind, signal.p50[0], signal.source) == ("NL", "spot_price", 36.9, "azure_spot_price")
    wanted = "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and armRegionName eq 'westeurope' and "
    assert there.requests[0].query["$filter"] == wanted + "armSkuName eq 'Standard_ND96isr_H100_v5'"
    assert there.requests[1].query == {"$filter": "x eq 'y'", "$skip": "100"}
    assert {request.path for request in there.requests} == {"/api/retail/prices"}


GOOD = {
    "price": spot_prices({"us-east-2a": 20.0}),
    "advisor": as_json(spot_advice()),
    "azure": as_json(retail_prices({})),
}


@pytest.mark.parametrize("kind", GOOD)
def test_a_level_is_issued_when_it_first_reports_itmething_new(there: Provider, kind: str) -> None:
    there.respond(GOOD[kind])
    feed = feed_of(kind, there.url)
    issued = [feed.fetch(NOW_NS + t * S)[0].published_ns - NOW_NS for t in (0, 300, 3599, 3600, 3900)]
    assert issued == [0, 0, 0, 3600 * S, 3600 * S]


BAD = {
    "no price": ("price", spot_prices({}), "no price; check instance_type"),
    "other zone": ("price", spot_prices({"us-east-2b": 1}), "no price; check instance_type"),
    "no number": ("price", spot_prices({"us-east-2a": "much"}), "spotPrice: 'much' is no number"),
    "negative": ("price", spot_prices({"us-east-2a": -1}), "-1 is no spot price"),
    "nan": ("price", spot_prices({"us-east-2a": "nan"}), "nan is no spot price"),
    "torn xml": ("price", Answer(b"<Describe"), "not whole XML"),
    "not xml": ("price", Answer(b"{}"), "not whole XML"),
    "other xml": ("price", Answer(b"<Response><Errors/></Response>"), "'Response' is not the answer that is known"),
    "refused": ("price", Answer(b"<Response/>", 403), "status 403, refused"),
    "no region": ("advisor", as_json(spot_advice() | {"spot_advisor": {}}), "no region 'us-east-2'; check region"),
    "no type": (
        "advisor",
        as_json(spot_advice() | {"spot_advisor": {"us-east-2": {}}}),
        "no 'p5.48xlarge' in us-east-2",
    ),
    "no band": ("advisor", as_json(spot_advice(7)), r"\$.ranges: no band 7"),
    "no file": ("advisor", Answer(b"<Error/>", 404), "status 404"),
    "no rows": ("azure", as_json(retail_prices()), "no spot price; check region and instance_type"),
    "odd row": ("azure", as_json({"Items": [{}]}), "missing required field"),
    "odd date": ("azure", as_json(retail_prices({"effectiveStartDate": "soon"})), "'soon' is no ISO 8601 time"),
    "endless": ("azure", as_json(retail_prices({}, link="x?$skip=1")), "more than 20 pages"),
}


@pytest.mark.parametrize("scenario", BAD)
def test_a_bad_answer_is_one_clear_error(there: Provider, scenario: str) -> None:
    kind, answer, reported = BAD[scenario]
    there.respond(answer)
    more: dict[str, Any] = {"availability_zone": "us-east-2a"} if scenario == "other zone" else {}
    feed = feed_of(kind, there.url, **more)
    with pytest.raises(FeedError, match=reported) as caught:
        feed.fetch(NOW_NS)
    assert str(caught.value).startswith(there.url)
    assert KEY.secret_key not in f"{caught.value!r}"


def test_one_price_a_zone() -> None:
    elsewhere: dict[str, Any] = {**SIZE, "zone": "us-east-2"}
    feeds = (AwsSpotPriceParameters(**MACHINE), AzureSpotPriceParameters(**elsewhere))
    with pytest.raises(ConfigError, match="has its spot_price from"):
        open_feeds(feeds, ENVIRON)


class Canned(Client):
    """Gives one answer without a network."""

    def __init__(self, body: bytes) -> None:
        super().__init__("http://there", 1.0)
        self.body = body

    def get(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str], now_ns: int, *, keep: bool = True
    ) -> bytes:
        del path, query, headers, now_ns, keep
        return self.body


@settings(max_examples=300)
@given(st.sampled_from(sorted(GOOD)), st.integers(0, 3000), st.integers(0, 40), st.binary(max_size=12))
def test_whatever_stands_in_an_answer_is_a_sound_curve_or_a_feed_error(
    kind: str, at: int, cut: int, odd: bytes
) -> None:
    body = GOOD[kind].body
    canned = Canned(body[:at] + odd + body[at + cut :])
    feeds: dict[str, Feed] = {
        "price": AwsSpotPrice(AwsSpotPriceParameters(**MACHINE), canned, lambda now_ns: KEY),
        "advisor": AwsSpotAdvisor(AwsSpotAdvisorParameters(**MACHINE), canned),
        "azure": AzureSpotPrice(AzureSpotPriceParameters(**SIZE), canned),
    }
    try:
        (signal,) = feeds[kind].fetch(NOW_NS)
    except FeedError:
        return
    message = record_message(signal, "/feed")
    assert decode_message(message.topic, message.value, message.headers) == signal
    assert tuple(signal.start_ns + i * 3600 * S for i in range(24)) == DAY


THEN_NS = round(datetime(2015, 8, 30, 12, 36, tzinfo=UTC).timestamp()) * S
VECTORS: list[tuple[dict[str, str], str]] = [
    ({}, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    ({"Param2": "value2", "Param1": "value1"}, "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
]


@pytest.mark.parametrize(("query", "signature"), VECTORS)
def test_the_signature_is_that_of_aws_test_suite(query: dict[str, str], signature: str) -> None:
    headers = signed_headers(KEY, Target("example.amazonaws.com", "us-east-1", "service"), "/", query, THEN_NS)
    assert headers == {
        "x-amz-date": "20150830T123600Z",
        "authorization": "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders=host;x-amz-date, Signature={signature}",
    }


def test_settings_are_checked() -> None:
    for wrong in ({"region": "US East"}, {"instance_type": "a' or 'b"}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(MACHINE | wrong, AwsSpotPriceParameters)
