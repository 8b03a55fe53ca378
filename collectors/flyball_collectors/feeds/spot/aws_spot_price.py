"""AWS: the spot price of a machine in force now, by EC2's ``DescribeSpotPriceHistory``.

It needs a key with only that permission. The response is the last change before ``StartTime`` in each availability
zone. Prices move a few times a day and are the same for everybody, so that one feed serves a fleet.
"""

from datetime import UTC, datetime
from urllib.parse import urlsplit
from xml.etree import ElementTree

from flyball_collectors.feeds.base import FeedError
from flyball_collectors.feeds.client import Client
from flyball_collectors.feeds.curve import Shape
from flyball_collectors.feeds.level import Level
from flyball_collectors.feeds.spot.aws_keys import Keys
from flyball_collectors.feeds.spot.aws_signature import Target, signed_headers
from flyball_contracts.config import AwsSpotPriceSettings
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Signal

VERSION = "2016-11-15"
PRODUCT = "Linux/UNIX"
MOST_PAGES = 10


class AwsSpotPrice:
    """The spot price of a type of machine; see :class:`flyball_collectors.feeds.base.Feed`."""

    def __init__(self, settings: AwsSpotPriceSettings, client: Client, keys: Keys) -> None:
        self.name = f"aws_spot_price/{settings.zone}"
        self.left_out = 0
        self._settings = settings
        self._level = Level(Shape(settings.zone, "aws_spot_price", "spot_price", forecast=False))
        self._client = client
        self._keys = keys

    def fetch(self, now_ns: int) -> list[Signal]:
        """One curve of the lowest price among the requested zones; raises :class:`FeedError`."""
        settings = self._settings
        where = f"{self._client.where('/')} of {settings.instance_type} in {settings.region}"
        query = {
            "Action": "DescribeSpotPriceHistory",
            "Version": VERSION,
            "InstanceType.1": settings.instance_type,
            "ProductDescription.1": PRODUCT,
            "StartTime": f"{datetime.fromtimestamp(now_ns // NS_PER_S, UTC):%Y-%m-%dT%H:%M:%SZ}",
        }
        if settings.availability_zone:
            query["AvailabilityZone"] = settings.availability_zone
        prices: list[float] = []
        for _ in range(MOST_PAGES):  # a page may be empty and still not be the last
            found, token = self._page(query, where, now_ns)
            prices += found
            if not token:
                break
            query["NextToken"] = token
        else:
            raise FeedError(f"{where}: more than {MOST_PAGES} pages; name an availability_zone")
        if not prices:
            text = f"{where}: no price; check instance_type, and that availability_zone has it as a spot machine"
            raise FeedError(text, lasting=True)
        return [self._level.curve(min(prices), now_ns, where)]

    def _page(self, query: dict[str, str], where: str, now_ns: int) -> tuple[list[float], str]:
        host = urlsplit(self._client.where("/")).netloc
        target = Target(host, self._settings.region, "ec2")
        headers = signed_headers(self._keys(now_ns), target, "/", query, now_ns)
        body = self._client.get("/", query, {"Accept": "text/xml", **headers}, now_ns, keep=False)
        try:
            root = ElementTree.fromstring(body)
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            raise FeedError(f"{where}: not whole XML: {error}") from error
        if root.tag.rpartition("}")[2] != "DescribeSpotPriceHistoryResponse":
            raise FeedError(f"{where}: {root.tag[:60]!r} is not the answer that is known", lasting=True)
        prices = [self._price(item, where) for item in root.findall("{*}spotPriceHistorySet/{*}item")]
        return [price for price in prices if price is not None], root.findtext("{*}nextToken") or ""

    def _price(self, item: ElementTree.Element, where: str) -> float | None:
        """Price of an item, ``None`` for one that was not requested."""
        requested = {"instanceType": self._settings.instance_type, "productDescription": PRODUCT}
        if self._settings.availability_zone:
            requested["availabilityZone"] = self._settings.availability_zone
        if any(item.findtext(f"{{*}}{name}") != value for name, value in requested.items()):
            self.left_out += 1
            return None
        text = item.findtext("{*}spotPrice") or ""
        try:
            return float(text)
        except ValueError as error:
            raise FeedError(f"{where}: spotPrice: {text[:40]!r} is no number; it is requested again") from error
