"""A provider on loopback: answers in the documented shapes, and all that can go wrong with them."""

import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

S = 1_000_000_000
NOW_NS = 1_772_366_400 * S  # 2026-03-01T12:00Z
HALF_HOUR_S = 1800


@dataclass(frozen=True)
class Answer:
    """``cut_at`` breaks the body off there; ``pause`` is waited for before each byte of the body."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    cut_at: int | None = None
    pause: Callable[[], object] | None = None


class Request(NamedTuple):
    path: str
    query: dict[str, str]
    headers: dict[str, str]


@dataclass
class Provider:
    """Gives the answers of ``queue`` in turn, the last one for ever; by path where ``by_path`` has it."""

    url: str
    queue: deque[Answer] = field(default_factory=deque[Answer])
    by_path: dict[str, deque[Answer]] = field(default_factory=dict[str, "deque[Answer]"])
    requests: list[Request] = field(default_factory=list[Request])

    def respond(self, *answers: Answer, path: str | None = None) -> None:
        """What is answered from now on."""
        if path is None:
            self.queue = deque(answers)
        else:
            self.by_path[path] = deque(answers)

    def next(self, path: str) -> Answer:
        queue = self.by_path.get(path, self.queue)
        return queue.popleft() if len(queue) > 1 else queue[0]


@contextmanager
def provider() -> Generator[Provider]:
    """A running provider; it ends with the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            found.requests.append(Request(parts.path, dict(parse_qsl(parts.query)), dict(self.headers)))
            answer = found.next(parts.path)
            if "ETag" in answer.headers and self.headers.get("If-None-Match") == answer.headers["ETag"]:
                answer = Answer(b"", 304)
            self.send_response(answer.status)
            for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            body = answer.body[: answer.cut_at]
            try:
                if answer.pause is None:
                    self.wfile.write(body)
                else:
                    for byte in body:
                        answer.pause()
                        self.wfile.write(bytes([byte]))
                        self.wfile.flush()
            except OSError:
                return  # the feed has had enough

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Provider(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def iso(time_ns: int, form: str = "%Y-%m-%dT%H:%MZ") -> str:
    return datetime.fromtimestamp(time_ns // S, UTC).strftime(form)


def as_json(value: Any, **more: Any) -> Answer:
    return Answer(msgspec.json.encode(value), **more)


def uk(values: list[float | None], start_ns: int = NOW_NS) -> dict[str, Any]:
    """The half hour before is reported too, as the real one does; ``actual`` is null ahead."""
    step_ns = HALF_HOUR_S * S
    rows = [
        {
            "from": iso(start_ns + i * step_ns),
            "to": iso(start_ns + (i + 1) * step_ns),
            "intensity": {"forecast": value, "actual": 201 if i < 0 else None, "index": "moderate"},
        }
        for i, value in enumerate([204.0, *values], -1)
    ]
    return {"data": rows}


def maps(values: list[float | None], *, start_ns: int = NOW_NS, updated_ns: int = NOW_NS - 600 * S) -> dict[str, Any]:
    full = "%Y-%m-%dT%H:%M:%S.000Z"
    slots = [
        {"carbonIntensity": value, "datetime": iso(start_ns + i * 3600 * S, full)} for i, value in enumerate(values)
    ]
    return {"zone": "DE", "forecast": slots, "updatedAt": iso(updated_ns, full), "temporalGranularity": "hourly"}


def maps_latest(value: float | None) -> dict[str, Any]:
    full = "%Y-%m-%dT%H:%M:%S.000Z"
    return {
        "zone": "DE",
        "carbonIntensity": value,
        "datetime": iso(NOW_NS, full),
        "updatedAt": iso(NOW_NS - 120 * S, full),
        "createdAt": iso(NOW_NS - 86_400 * S, full),
        "emissionFactorType": "lifecycle",
        "isEstimated": True,
        "estimationMethod": "TIME_SLICER_AVERAGE",
    }


def moer(values: list[float | None], **meta: Any) -> dict[str, Any]:
    full = "%Y-%m-%dT%H:%M:%S+00:00"
    rows = [{"point_time": iso(NOW_NS + i * 300 * S, full), "value": value} for i, value in enumerate(values)]
    zone: dict[str, Any] = {
        "region": "CAISO_NORTH",
        "signal_type": "co2_moer",
        "model": {"date": "2025-10-01"},
        "units": "lbs_co2_per_mwh",
        "data_point_period_seconds": 300,
        "generated_at": iso(NOW_NS - 60 * S, full),
        "generated_at_period_seconds": 300,
        "warnings": [],
    }
    return {"data": rows, "meta": zone | meta}


def spot_prices(prices: dict[str, float | str], token: str = "", kind: str = "p5.48xlarge") -> Answer:
    """EC2's answer: a price for each availability zone; a fleet's other machines and Windows come along."""
    rows = [(kind, "Linux/UNIX", str(price), zone) for zone, price in prices.items()]
    rows += (
        [(kind, "Windows", "0.1", "us-east-2a"), ("p4d.24xlarge", "Linux/UNIX", "0.2", "us-east-2a")] if rows else []
    )
    items = "".join(
        f"<item><instanceType>{kind}</instanceType><productDescription>{product}</productDescription>"
        f"<spotPrice>{price}</spotPrice><timestamp>2026-03-01T09:30:11.000Z</timestamp>"
        f"<availabilityZone>{zone}</availabilityZone></item>"
        for kind, product, price, zone in rows
    )
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<DescribeSpotPriceHistoryResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        "<requestId>9a2c1e0b-6d3f-4b7a-8f55-1c2d3e4f5a6b</requestId>"
        f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{token}</nextToken>"
        "</DescribeSpotPriceHistoryResponse>"
    )
    return Answer(text.encode(), headers={"Content-Type": "text/xml;charset=UTF-8"})


def spot_advice(band: int = 0) -> dict[str, Any]:
    labels = {5: "<5%", 11: "5-10%", 16: "10-15%", 22: "15-20%", 100: ">20%"}
    ranges = [{"index": i, "label": labels[most], "dots": i, "max": most} for i, most in enumerate(labels)]
    types = {"p5.48xlarge": {"s": 57, "r": band}, "p4d.24xlarge": {"s": 64, "r": 4}}
    return {
        "global_rate": "<5%",
        "instance_types": {"p5.48xlarge": {"emr": True, "cores": 192, "ram_gb": 2048.0}},
        "ranges": ranges,
        "spot_advisor": {"us-east-2": {"Linux": types, "Windows": {"p5.48xlarge": {"s": 1, "r": 4}}}},
    }


def retail_prices(*rows: dict[str, Any], link: str | None = None) -> dict[str, Any]:
    """Azure's answer: rows of one size of machine; `rows` change what they say."""
    usual: dict[str, Any] = {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": 36.9,
        "unitPrice": 36.9,
        "armRegionName": "westeurope",
        "location": "EU West",
        "effectiveStartDate": "2026-01-01T00:00:00Z",
        "meterName": "ND96isr H100 v5 Spot",
        "productName": "Virtual Machines NDsrH100v5 Series",
        "skuName": "Standard_ND96isr_H100_v5 Spot",
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": "Standard_ND96isr_H100_v5",
    }
    items = [usual | row for row in rows]
    return {
        "BillingCurrency": "USD",
        "CustomerEntityId": "Default",
        "CustomerEntityType": "Retail",
        "Items": items,
        "NextPageLink": link,
        "Count": len(items),
    }


def gcp_sku(description: str, usd: float, unit: str = "h", *more_regions: str) -> dict[str, Any]:
    """A row of Google Cloud's catalogue; a spot one by its usage type."""
    nanos = round(usd * 1e9)
    regions = ("us-central1", *more_regions)
    price = {"currencyCode": "USD", "units": str(nanos // 10**9), "nanos": nanos % 10**9}
    return {
        "name": "services/6F81-5844-456A/skus/0000-1111-2222",
        "skuId": "0000-1111-2222",
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Compute",
            "resourceGroup": "GPU",
            "usageType": "Preemptible",
        },
        "serviceRegions": list(regions),
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": {
                    "usageUnit": unit,
                    "displayQuantity": 1,
                    "tieredRates": [{"startUsageAmount": 0, "unitPrice": price}],
                    "usageUnitDescription": "hour",
                    "baseUnit": "s",
                },
                "currencyConversionRate": 1,
                "effectiveTime": "2026-02-20T08:00:00.123456Z",
            }
        ],
        "serviceProviderName": "Google",
        "geoTaxonomy": {"type": "REGIONAL", "regions": list(regions)},
    }


def gcp_skus(*rows: dict[str, Any], token: str = "") -> Answer:
    """A page of the catalogue: the parts of a3-highgpu-8g in Iowa, and more rows."""
    americas = "running in Americas"
    parts = [
        gcp_sku(f"Spot Preemptible A3 Instance Core {americas}", 0.01),
        gcp_sku(f"Spot Preemptible A3 Instance Ram {americas}", 0.001, "GiBy.h"),
        gcp_sku(f"Nvidia H100 80GB GPU attached to Spot Preemptible VMs {americas}", 2.5, "h", "us-east4"),
        gcp_sku("SSD backed Local Storage attached to Spot Preemptible VMs", 0.073, "GiBy.mo"),
    ]
    return as_json({"skus": [*parts, *rows], "nextPageToken": token})
