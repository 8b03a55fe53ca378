"""Azure: the retail price of a spot machine.

See https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices. A row holds from its
effective date on; among those in force the newest counts. Rows of other meters of the same machine (Windows, low
priority, on demand) are ignored.
"""

from urllib.parse import parse_qsl, urlsplit

import msgspec

from flyball_collectors.feeds.answers import decode_json, time_ns
from flyball_collectors.feeds.base import FeedError
from flyball_collectors.feeds.client import Client
from flyball_collectors.feeds.curve import Shape
from flyball_collectors.feeds.level import Level
from flyball_contracts.config import AzureSpotPriceSettings
from flyball_contracts.records import Signal

PATH = "/api/retail/prices"
MOST_PAGES = 20


class _Item(msgspec.Struct, rename="camel"):
    currency_code: str
    retail_price: float
    effective_start_date: str
    unit_of_measure: str
    sku_name: str
    product_name: str
    arm_region_name: str
    arm_sku_name: str
    type: str


class _Answer(msgspec.Struct, rename="pascal"):
    items: list[_Item]
    next_page_link: str | None = None


class AzureSpotPrice:
    """The spot price of a size of machine; see :class:`flyball_collectors.feeds.base.Feed`."""

    def __init__(self, settings: AzureSpotPriceSettings, client: Client) -> None:
        self.name = f"azure_spot_price/{settings.zone}"
        self.left_out = 0
        self._settings = settings
        self._level = Level(Shape(settings.zone, "azure_spot_price", "spot_price", forecast=False))
        self._client = client

    def fetch(self, now_ns: int) -> list[Signal]:
        """One curve of the price in force; raises :class:`FeedError`."""
        settings = self._settings
        where = f"{self._client.where(PATH)} of {settings.instance_type} in {settings.region}"
        terms = {
            "serviceName": "Virtual Machines",
            "priceType": "Consumption",
            "armRegionName": settings.region,
            "armSkuName": settings.instance_type,
        }
        query = {
            "currencyCode": "USD",
            "$filter": " and ".join(f"{name} eq '{value}'" for name, value in terms.items()),
        }
        in_force: list[tuple[int, float]] = []
        for _ in range(MOST_PAGES):
            answer = decode_json(self._client.get(PATH, query, {}, now_ns, keep=False), _Answer, where)
            for i, item in enumerate(answer.items):
                since_ns = time_ns(item.effective_start_date, f"{where}: $.Items[{i}].effectiveStartDate")
                if self._is_meant(item) and since_ns <= now_ns:
                    in_force.append((since_ns, item.retail_price))
            if not answer.next_page_link:
                break
            # Only the query of the link: the next page comes from the same server, whatever the answer says.
            query = dict(parse_qsl(urlsplit(answer.next_page_link).query))
        else:
            raise FeedError(f"{where}: more than {MOST_PAGES} pages; check instance_type")
        if not in_force:
            text = "no spot price; check region and instance_type, e.g. westeurope and Standard_ND96isr_H100_v5"
            raise FeedError(f"{where}: {text}", lasting=True)
        newest_ns = max(since_ns for since_ns, _ in in_force)
        price = min(price for since_ns, price in in_force if since_ns == newest_ns)
        return [self._level.curve(price, now_ns, where)]

    def _is_meant(self, item: _Item) -> bool:
        """Whether a row is the hourly price of a spot machine with Linux; only meter names distinguish them."""
        same = (item.arm_region_name, item.arm_sku_name) == (self._settings.region, self._settings.instance_type)
        hourly = (item.type, item.currency_code, item.unit_of_measure) == ("Consumption", "USD", "1 Hour")
        return same and hourly and item.sku_name.endswith(" Spot") and "Windows" not in item.product_name
