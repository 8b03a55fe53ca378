"""Google Cloud: the spot prices of Compute Engine's parts, by the Cloud Billing Catalog API.

See https://docs.cloud.google.com/billing/docs/reference/rest/v1/services.skus/list. It needs an API key restricted to
the Cloud Billing API. The catalogue has tens of thousands of rows; only the fields used are requested.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from flyball_collectors.feeds.answers import decode_json, time_ns
from flyball_collectors.feeds.base import FeedError
from flyball_collectors.feeds.client import Client
from flyball_contracts.ids import NS_PER_S

PATH = "/v1/services/6F81-5844-456A/skus"  # Compute Engine
FIELDS = (
    "nextPageToken,skus(description,category/usageType,serviceRegions,pricingInfo(effectiveTime,"
    "pricingExpression(usageUnit,tieredRates(unitPrice(currencyCode,units,nanos)))))"
)
MOST_PAGES = 40
_ROWS = "5000"  # of a page; the API has no more
_SPOT = "Spot Preemptible "
_END = re.compile(r" attached to | running in ")
_HOURS = {"h": 1.0, "GiBy.h": 1.0, "GiBy.mo": 730.0}  # of a unit; a month as Google counts it


class _Money(msgspec.Struct, rename="camel"):
    currency_code: str = ""
    units: str = "0"  # 64 bits, and so a string
    nanos: int = 0


class _Rate(msgspec.Struct, rename="camel"):
    unit_price: _Money


class _Expression(msgspec.Struct, rename="camel"):
    usage_unit: str = ""
    tiered_rates: list[_Rate] = []


class _Pricing(msgspec.Struct, rename="camel"):
    pricing_expression: _Expression
    effective_time: str = ""


class _Category(msgspec.Struct, frozen=True, rename="camel"):
    usage_type: str = ""


class _Sku(msgspec.Struct, rename="camel"):
    description: str
    category: _Category = _Category()
    service_regions: list[str] = []
    pricing_info: list[_Pricing] = []


class _Answer(msgspec.Struct, rename="camel"):
    skus: list[_Sku] = []  # a page may have none
    next_page_token: str = ""


class Part(NamedTuple):
    """A priced part in a region."""

    region: str
    name: str


class _Price(NamedTuple):
    since_ns: int
    usd_per_hour: float


class Catalogue:
    """The spot prices of all parts and regions; the feeds of one key share it, and request it once per ``keep_s``.

    ``where`` is its address, for errors.
    """

    def __init__(self, client: Client, key: str, keep_s: float) -> None:
        self.where = client.where(PATH)
        self._client = client
        self._key = key
        self._keep_ns = round(keep_s * NS_PER_S)
        self._requested_ns: int | None = None
        self._prices: Mapping[Part, float] = {}

    def prices(self, now_ns: int) -> Mapping[Part, float]:
        """USD for an hour of one virtual CPU, GiB or GPU; raises :class:`FeedError`."""
        if self._requested_ns is None or not 0 <= now_ns - self._requested_ns < self._keep_ns:
            self._prices = self._fetch(now_ns)
            self._requested_ns = now_ns
        return self._prices

    def _fetch(self, now_ns: int) -> Mapping[Part, float]:
        found: dict[Part, _Price] = {}
        query = {"currencyCode": "USD", "pageSize": _ROWS, "fields": FIELDS}
        headers = {"X-Goog-Api-Key": self._key}
        for _ in range(MOST_PAGES):
            answer = decode_json(self._client.get(PATH, query, headers, now_ns, keep=False), _Answer, self.where)
            for sku in answer.skus:
                self._add(sku, found, now_ns)
            if not answer.next_page_token:
                return {part: price.usd_per_hour for part, price in found.items()}
            query["pageToken"] = answer.next_page_token
        raise FeedError(f"{self.where}: more than {MOST_PAGES} pages; please report it")

    def _add(self, sku: _Sku, found: dict[Part, _Price], now_ns: int) -> None:
        """Add the current price; of rows of one part and region the newest counts, of equally new ones the lowest."""
        # Rows of the newest machines show only in their description that they are spot.
        if sku.category.usage_type != "Preemptible" and not sku.description.startswith(_SPOT):
            return
        price = self._in_force(sku, now_ns)
        if price is None:
            return
        name = _END.split(sku.description.removeprefix(_SPOT), maxsplit=1)[0]
        for region in sku.service_regions:
            known = found.get(Part(region, name))
            if known is None or (price.since_ns, -price.usd_per_hour) > (known.since_ns, -known.usd_per_hour):
                found[Part(region, name)] = price

    def _in_force(self, sku: _Sku, now_ns: int) -> _Price | None:
        prices: list[_Price] = []
        for pricing in sku.pricing_info:
            since_ns = time_ns(pricing.effective_time, f"{self.where}: effectiveTime") if pricing.effective_time else 0
            expression = pricing.pricing_expression
            hours = _HOURS.get(expression.usage_unit)
            if since_ns > now_ns or hours is None or not expression.tiered_rates:
                continue
            money = expression.tiered_rates[-1].unit_price  # earlier tiers are the free amounts
            if money.currency_code == "USD":
                prices.append(_Price(since_ns, self._usd(money) / hours))
        return max(prices, default=None)

    def _usd(self, money: _Money) -> float:
        try:
            return int(money.units) + money.nanos / 1e9
        except ValueError as error:
            raise FeedError(f"{self.where}: units: {money.units[:40]!r} is no number; it is requested again") from error
