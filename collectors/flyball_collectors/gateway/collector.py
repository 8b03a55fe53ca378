"""Fills the ``GATEWAY`` layout: one row for each workload behind each gateway."""

from typing import cast
from urllib.parse import urlsplit

import numpy as np

from flyball_collectors.base import Collector, Parts, Reading
from flyball_collectors.gateway.kinds import KINDS
from flyball_collectors.gateway.scraper import GatewayPage, GatewayReading, GatewayScraper
from flyball_collectors.parameters import GatewayParameters
from flyball_collectors.workload.scraping.meter import Alternatives
from flyball_collectors.workload.scraping.poller import Limits, Place
from flyball_collectors.workload.scraping.token import token_of
from flyball_contracts.config import GatewayKind, Series, WorkloadsConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.metrics import GATEWAY
from flyball_contracts.records import Gateway

_COLUMNS = [GATEWAY.column(f"flyball.gateway.request.{key}") for key in ("rate", "queued", "active")]


class GatewayCollector(Collector):
    """The configured gateways.

    Raises :class:`ConfigError` for invalid settings.
    """

    name = "gateway"

    def __init__(self, gateways: tuple[GatewayParameters, ...]) -> None:
        pages: dict[str, tuple[GatewayPage, Limits]] = {}
        for settings in gateways:
            where = settings.place
            if settings.name in pages:
                raise ConfigError(f"{where}.replica: {settings.name!r} is taken already; name each gateway otherwise")
            limits = Limits(settings.period_s, settings.timeout_s, settings.page_bytes)
            pages[settings.name] = _page(settings, where), limits
        rows = {(workload, name) for name, (page, _) in pages.items() for workload in page.workloads.values()}
        self._rows = sorted(rows)
        self._parts = Parts(gateways=tuple(Gateway(workload=workload, name=name) for workload, name in self._rows))
        self._scrapers = {name: GatewayScraper(page, limits) for name, (page, limits) in pages.items()}

    @property
    def errors(self) -> int:
        """Number of pages that could not be read."""
        return sum(scraper.errors for scraper in self._scrapers.values())

    def problems(self) -> dict[str, str | None]:
        """Queried pages and their problems: empty without one, ``None`` before the first response."""
        return {name: scraper.problem or _absent(scraper) for name, scraper in self._scrapers.items()}

    def read(self, now_ns: int, period_ns: int) -> list[Reading]:
        """The last report of each gateway; requests nothing now."""
        readings = {name: scraper.take() for name, scraper in self._scrapers.items()}
        values = np.full((len(self._rows), len(GATEWAY)), np.nan, np.float32)
        values[:, _COLUMNS] = [readings.get(name, {}).get(workload, GatewayReading()) for workload, name in self._rows]
        return [Reading(GATEWAY.schema, values)]

    def parts(self) -> Parts:
        """The gateways with their workloads, in the order of the rows."""
        return self._parts

    def close(self) -> None:
        """End all threads."""
        for scraper in self._scrapers.values():
            scraper.stop()
        for scraper in self._scrapers.values():
            scraper.close()
        self._scrapers = {}


def _absent(scraper: GatewayScraper) -> str | None:
    if scraper.problem is None:
        return None
    if scraper.unlabelled:
        names = ", ".join(scraper.unlabelled)
        return f"{names} without the label are of no workload, for there are several; set series without them"
    if not scraper.absent:
        return scraper.problem
    absent = ", ".join(map(repr, scraper.absent))
    return f"nothing is reported for {absent} yet; check workloads and label, or send a request"


def gateways_of(config: WorkloadsConfig, node: str) -> tuple[GatewayParameters, ...]:
    """The pages of gateways among the targets; a gateway without a name gets the node's.

    Raises :class:`ConfigError` for series that gateways do not have.
    """
    found: list[GatewayParameters] = []
    for number, one in enumerate(config.targets):
        if not one.workloads:
            continue
        place = f"agent.workloads.targets[{number}]"
        series = one.series
        if series is not None:
            used = Series(arrived=series.arrived, ended=series.ended, queued=series.queued, active=series.active)
            if used != series:
                raise ConfigError(f"{place}.series: of a gateway they are arrived, ended, queued and active alone")
        settings = GatewayParameters(
            name=one.replica or node,
            url=one.url,
            kind=cast(GatewayKind, one.server),
            workloads=one.workloads,
            label=one.label,
            series=series,
            token_file=one.token_file,
            ca_file=one.ca_file,
            place=place,
        )
        found.append(settings)
    return tuple(found)


def _page(settings: GatewayParameters, where: str) -> GatewayPage:
    kind = KINDS[settings.kind]
    series = settings.series or Series()
    if settings.kind == "generic" and not (series.arrived or series.ended or series.queued or series.active):
        known = ", ".join(name for name in KINDS if name != "generic")
        raise ConfigError(f"{where}.series: missing; name arrived, queued or active, or set server to one of {known}")
    if settings.kind != "generic" and settings.series is not None:
        raise ConfigError(f"{where}.series: those of {settings.kind} are known; leave it out, or set server to generic")
    label = settings.label or kind.label
    if not label and any(settings.workloads):
        raise ConfigError(f"{where}.label: missing; name the label whose values stand under workloads")
    parts = urlsplit(settings.url)
    path = parts.path if parts.path.strip("/") else kind.path
    return GatewayPage(
        settings.name,
        Place(
            f"{parts.scheme}://{parts.netloc}",
            f"{path}?{parts.query}" if parts.query else path,
            token_of(settings.token_file),
            settings.ca_file,
        ),
        Alternatives(settings.series or kind.series, f"{where}.series"),
        label,
        settings.workloads,
        kind.read,
        kind.rate,
    )
